"""What a model says of images: the JSON of each answer, their places, and what a server counts.

It is made where the network is, in one go for all images of a batch. Between many requests, one by
one, the same work costs several times as much. It needs NumPy, and no torch.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bne.deploy.answers import Answers
from bne.deploy.rows import rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bne.deploy.answers import Seen
    from bne.deploy.manifest import Manifest
    from bne.deploy.monitor import Watch, Window

NEIGHBOURS = 5
DIGITS = 3
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


def map_of(model: Manifest) -> Mapping[str, Any] | None:
    """The map that a model file keeps; without one, the domains on a circle and no images.

    None if the model has no branches.
    """
    if model.map is not None or not model.branches:
        return model.map
    count = len(model.branches)
    angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    corners = np.stack((np.cos(angles), np.sin(angles)), 1).round(DIGITS).tolist()
    return {"branches": dict(zip(model.branches, corners, strict=True)), "images": []}


def place(model: Manifest, seen: Seen) -> list[list[float]] | None:
    """The places of N images on `map_of` a model; None if it has no map or they were not weighed.

    On a map of held-out images, a new one lies amid those whose distances to the domains are most
    like its own, in ratio. Otherwise the domains' weights pull it towards them.
    """
    shown = map_of(model)
    if shown is None or seen.weights is None:
        return None
    images = shown["images"]
    found: NDArray[Any]
    if seen.distances is not None and images and "distances" in images[0]:
        known = _logs(np.array([image["distances"] for image in images]))
        apart = np.square(_logs(seen.distances)[:, None] - known).sum(2)
        nearest = np.argsort(apart, 1, kind="stable")[:, :NEIGHBOURS]
        near = 1 / (np.take_along_axis(apart, nearest, 1) + 1e-6)
        places = np.array([image["place"] for image in images])[nearest]
        found = (places * (near / near.sum(1, keepdims=True))[:, :, None]).sum(1)
    else:
        found = seen.weights @ np.array([shown["branches"][name] for name in model.branches])
    plain: list[list[float]] = found.astype(float).round(DIGITS).tolist()
    return plain


def _logs(distances: NDArray[Any]) -> NDArray[Any]:
    logs: NDArray[Any] = np.log(np.maximum(distances, 1e-12))
    return logs
