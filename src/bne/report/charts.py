"""What charts show: `charts.js` draws it on pages, matplotlib on paper."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any
from zlib import compress

import numpy as np

from bne.report.look import PALETTE, sheet
from bne.words import ordinal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from bne.inspection.analysis import Analysis
    from bne.inspection.maps import Map
    from bne.report.look import Look
    from bne.training.events import Epoch, Score

    Scores = Mapping[str, Mapping[str, int]]  # `correct` ones and `images`, by domain

STAGES = {"head": "last layer alone", "train": "training"}
EXACT = "exact statistics"
BARS = 8  # of weights beside an image: the largest, where there are more
PART, RELATIVE, PLACES, LEAST = 1e-3, 5e-3, 4095, 1e-30  # how precise numbers on a page are
MAP_SIDE, MAP_BUDGET = 72, 4_500_000  # pixels, and characters of all images on the map together


@dataclass(frozen=True)
class Stage:
    """A stretch of a run in which the same is trained in the same way; records count from 1."""

    name: str
    first: int
    last: int


@dataclass(frozen=True)
class Line:
    """A curve: a value a record, None where there is none; `dash` is "solid" or "dash"."""

    name: str
    short: str
    colour: str
    dash: str
    symbol: str
    y: Sequence[float | None]


@dataclass(frozen=True)
class Curves:
    """How a run went, epoch by epoch; accuracies in percent."""

    stages: Sequence[Stage]
    loss: Sequence[Line]
    accuracy: Sequence[Line]


def stages(epochs: Sequence[Epoch]) -> list[Stage]:
    """The stretches of a run, in order."""
    found: list[Stage] = []
    for name, own in groupby(epochs, _stage):
        first = found[-1].last + 1 if found else 1
        found.append(Stage(name, first, first + len(list(own)) - 1))
    return found


def _stage(epoch: Epoch) -> str:
    return EXACT if epoch.statistics == "exact" else STAGES.get(epoch.stage, epoch.stage)


def rounded(values: Iterable[float | None]) -> list[float | None]:
    """To four digits; None where there is no finite value."""
    return [None if v is None or not isfinite(v) else float(f"{v:.4g}") for v in values]


def thinned(count: int, most: int) -> list[int]:
    """At most so many of some places, spread evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})


def curves(epochs: Sequence[Epoch], looks: Mapping[str, Look], unseen: str = "unseen") -> Curves:
    """The loss, and the accuracy on every domain.

    Args:
        epochs: at least one, all of the same domains.
        looks: of the domains, by name.
        unseen: what the target is called.
    """
    first = epochs[0]

    def line(domain: str, note: str, dash: str, scores: Iterable[Score]) -> Line:
        values = rounded(score.accuracy for score in scores)
        look = looks[domain]
        return Line(f"{domain} ({note})", domain, look.colour, dash, look.symbol, values)

    sources = [
        line(domain, "held out", "solid", (e.validation[domain] for e in epochs))
        for domain in first.validation
    ]
    note = f"{unseen}; nothing is chosen by it"
    targets = [
        line(domain, note, "dash", (e.target[domain] for e in epochs)) for domain in first.target
    ]
    losses = rounded(epoch.loss for epoch in epochs)
    loss = Line("loss", "loss", PALETTE[0], "solid", "circle", losses)
    return Curves(stages(epochs), [loss], [*sources, *targets])


def answers(accuracy: Mapping[str, Any]) -> dict[str, Scores]:
    """Scores by what gives the answer, in words, and by domain.

    Args:
        accuracy: as `bne.inspection.numbers` gives it.
    """
    found = {"the model": accuracy["prediction"]}
    for place, scores in enumerate(accuracy.get("by_rank", ()), start=1):
        found["nearest branch" if place == 1 else f"{ordinal(place)} nearest branch"] = scores
    found |= {f"branch {name}": s for name, s in accuracy.get("by_branch", {}).items()}
    found |= {f"{name} weights": s for name, s in accuracy.get("by_weighting", {}).items()}
    return found


def percent(score: Mapping[str, int]) -> float:
    """Correct ones of a domain's images."""
    return 100 * score["correct"] / score["images"]


def mean_percent(scores: Scores) -> float:
    """The mean over domains."""
    return fmean(map(percent, scores.values()))


def heaviest(weights: Mapping[str, float]) -> dict[str, float]:
    """The largest weights, in their order."""
    most = sorted(weights, key=weights.__getitem__, reverse=True)[:BARS]
    return {name: weight for name, weight in weights.items() if name in most}


def map_data(analysis: Analysis, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Plain numbers and texts for `map.js`; columns of M points are packed.

    Args:
        analysis: with at least one map.
        looks: of the domains, by name.
    """
    observed, points = analysis.observed, analysis.points
    places = {name: place for place, name in enumerate(observed.classes)}
    weights = [list(point.weights.values()) for point in points]
    return {
        "maps": [_map(one) for one in analysis.maps],
        "points": {
            "name": _deflated("\0".join(point.name for point in points).encode()),
            "domain": packed([observed.domains.index(point.domain) for point in points]),
            "truth": packed([places[point.truth] for point in points]),
            "answer": packed([places[point.answer] for point in points]),
            "confidence": packed([point.confidence for point in points], step=PART),
            "weights": packed(weights, step=PART),
        },
        "sheet": sheet(analysis.prepared, [point.number for point in points], MAP_SIDE, MAP_BUDGET),
        "classes": observed.classes,
        "domains": [looks[name] for name in observed.domains],
        "branches": [looks[name] for name in observed.branches],
        "palette": PALETTE,
        "chosen": analysis.chosen,
        "bars": BARS,
    }


def _map(one: Map) -> dict[str, Any]:
    """Distances as logarithms, which are as precise near as far."""
    both = np.concatenate([one.images, one.domains])
    low, high = float(both.min()), float(both.max())
    return {
        "name": one.name,
        "places": packed(one.images, low, (high - low) / PLACES or 1.0),
        "domains": one.domains.round(2).tolist(),
        "logs": packed(np.log(one.distances.clip(LEAST)), float(np.log(LEAST)), RELATIVE),
        "neighbors": packed(one.neighbors),
    }


def packed(numbers: ArrayLike, low: float = 0.0, step: float = 1.0) -> dict[str, Any]:
    """(M,) or (M, C) numbers, in a third of the room that digits take.

    Each is `low` and up to 65,535 steps; `bytes` has the steps' low bytes, column by column, then
    their high ones, which differ less.

    Args:
        numbers: none below `low`.
        low: the least there can be.
        step: their precision.
    """
    steps = ((np.asarray(numbers, float) - low) / step).round().astype(np.uint16).T.reshape(-1)
    parts = np.concatenate([steps & 255, steps >> 8]).astype(np.uint8)
    return {"low": low, "step": step, "bytes": _deflated(parts.tobytes())}


def _deflated(content: bytes) -> str:
    return b64encode(compress(content, 9)).decode()
