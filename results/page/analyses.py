"""Figures out of the analysis in a run's record; None where it has no such figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import Any

from bne.benchmark.records import Record
from bne.benchmark.tables import percent

Value = Callable[[Record], float | None]


def prediction(record: Record) -> float:
    """Accuracy of the network's own answer on the target, in percent."""
    return percent(_accuracy(record)["prediction"])


def ranks(record: Record) -> list[float]:
    """Accuracy of its branches on the target, in percent, for each image the nearest first."""
    return [percent(scores) for scores in _accuracy(record)["by_rank"]]


def of_rank(place: int) -> Value:
    """Accuracy of the nearest branch, which is number 0, or of a farther one."""
    return lambda record: ranks(record)[place] if place < len(ranks(record)) else None


def of_weighting(name: str) -> Value:
    """Accuracy under another distance than its own, whose accuracy is that of the prediction."""

    def value(record: Record) -> float | None:
        others = _accuracy(record)["by_weighting"]
        own = record.settings["options"].get("distance")
        return percent(others[name]) if name in others and name != own else None

    return value


def mean_weight(branch: str) -> Value:
    """Of a branch for the images of the target, in [0, 1]."""

    def value(record: Record) -> float | None:
        by_domain = record.analysis["target"]["weights"].values()
        weights = [own[branch] for own in by_domain if branch in own]
        return fmean(weights) if weights else None

    return value


def domain_accuracy(part: str) -> Value:
    """How often "train" or "validation" images lie nearest to their domain, mean over domains."""
    return lambda record: _mean(record.analysis["sources"]["domain_accuracy"][part].values())


def layers(record: Record) -> list[str]:
    """The layers whose statistics are compared; none if branches are not weighed by distance."""
    return list(_layers(record))


def share(layer: str) -> Value:
    """Of a layer, or of all in a block of that name, in the distances, in percent."""

    def value(record: Record) -> float | None:
        own = [n for n in layers(record) if n == layer or block(n) == layer]
        return 100 * sum(float(_layers(record)[name]["share"]) for name in own)

    return value


def layer_accuracy(layer: str) -> Value:
    """How often training images lie nearest to their domain by one layer alone, in percent."""
    return lambda record: _mean(_layers(record)[layer]["domain_accuracy"].values())


def block(layer: str) -> str:
    """The part of the network that a layer belongs to: layer1 for layer1.0.bn1."""
    return layer.split(".")[0]


def mean(records: Iterable[Record], value: Value) -> float | None:
    """Over the runs that have the figure."""
    figures = [figure for record in records if (figure := value(record)) is not None]
    return fmean(figures) if figures else None


def _mean(scores: Iterable[Mapping[str, int]]) -> float | None:
    shares = [percent({"": score}) for score in scores]
    return fmean(shares) if shares else None


def _accuracy(record: Record) -> Mapping[str, Any]:
    scores: Mapping[str, Any] = record.analysis["target"]["accuracy"]
    return scores


def _layers(record: Record) -> Mapping[str, Any]:
    found: Mapping[str, Any] = record.analysis["sources"].get("layers", {})
    return found
