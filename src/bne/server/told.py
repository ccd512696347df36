"""What a model says of images: the JSON of each answer, and what a server counts.

It is made where the network is, in one go for all images of a batch. Between many requests, one by
one, the same work costs several times as much.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from bne.deploy.answers import Answers
from bne.deploy.rows import rows
from bne.server.places import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.deploy.answers import Seen
    from bne.deploy.manifest import Manifest
    from bne.deploy.monitor import Watch, Window

_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Asked(NamedTuple):
    """What is asked of an image.

    Attributes:
        top: number of classes to name.
        abstain: probability below which the class is left open.
        places: whether weights and distances are wanted, which may cost another pass.
    """

    top: int = 1
    abstain: float = 0.0
    places: bool = True


class Told(NamedTuple):
    """What is said of N images.

    Attributes:
        rows: all that is known of each, a JSON object.
        classes: how many images are most probably of each class.
        nearest: how many lie nearest to each domain; empty if the model weighs none.
        unusual: how many of 100 held-out source images lie nearer to a domain than each; empty if
            that is unknown.
        windows: of the model's watch, that these images completed.
    """

    rows: list[str]
    classes: Counter[str | None]
    nearest: Counter[str]
    unusual: list[float]
    windows: tuple[Window, ...]


def tell(
    model: Manifest, seen: Seen, names: Sequence[str], asked: Sequence[Asked], watch: Watch | None
) -> Told:
    """What is said of N images.

    Args:
        model: what is known of the network.
        seen: what it gave.
        names: how each image is called in the answer.
        asked: of each image.
        watch: that takes note of them, if there is one.
    """
    answers = Answers(model, seen)
    columns = ["class", "probability", "top"]
    if seen.weights is not None:
        columns += ["nearest", "weights"]
    if answers.distances is not None:
        columns += ["distances"] + ["unusual"] * (answers.unusual is not None)
    found = rows(names, answers, columns, max(one.top for one in asked))
    places = place(model, seen)
    texts = []
    for number, (row, one) in enumerate(zip(found, asked, strict=True)):
        own = {"name": row.pop("file"), **row, "top": row["top"][: one.top]}
        if own["probability"] < one.abstain:
            own["class"] = None
        if not one.places:
            own = {key: own[key] for key in ("name", "class", "probability", "top")}
        elif places is not None:
            own["place"] = places[number]
        texts.append(_json(own))
    return Told(
        texts,
        Counter(answers.classes),
        Counter(answers.nearest_domains or ()),
        [] if answers.unusual is None else answers.unusual.tolist(),
        watch.take(answers).tested if watch is not None and seen.vectors is not None else (),
    )
