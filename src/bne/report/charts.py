"""What charts show: `charts.js` draws it on pages, matplotlib on paper."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bne.report.look import PALETTE, sheet
from bne.words import ordinal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from bne.inspection.analysis import Analysis
    from bne.report.look import Look
    from bne.training.events import Epoch, Score

    Scores = Mapping[str, Mapping[str, int]]  # `correct` ones and `images`, by domain

STAGES = {"head": "last layer alone", "train": "training"}
EXACT = "exact statistics"
BARS = 8  # of weights beside an image: the largest, where there are more
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
    """Plain numbers and texts for `map.js`.

    Args:
        analysis: with at least one map.
        looks: of the domains, by name.
    """
    observed, points = analysis.observed, analysis.points
    places = {name: place for place, name in enumerate(observed.classes)}
    return {
        "maps": [
            {
                "name": one.name,
                **dict(zip("xy", _columns(one.images), strict=True)),
                **dict(zip(("dx", "dy"), _columns(one.domains), strict=True)),
                "distances": [[float(f"{value:.3g}") for value in row] for row in one.distances],
                "neighbors": one.neighbors.tolist(),
            }
            for one in analysis.maps
        ],
        "points": {
            "name": [point.name for point in points],
            "domain": [observed.domains.index(point.domain) for point in points],
            "truth": [places[point.truth] for point in points],
            "answer": [places[point.answer] for point in points],
            "confidence": [round(point.confidence, 3) for point in points],
            "weights": [[round(weight, 3) for weight in p.weights.values()] for p in points],
        },
        "sheet": sheet(analysis.prepared, [point.number for point in points], MAP_SIDE, MAP_BUDGET),
        "classes": observed.classes,
        "domains": [looks[name] for name in observed.domains],
        "branches": [looks[name] for name in observed.branches],
        "palette": PALETTE,
        "chosen": analysis.chosen,
        "bars": BARS,
    }


def _columns(places: NDArray[Any]) -> list[list[float]]:
    return [[round(float(place), 2) for place in column] for column in places.T]
