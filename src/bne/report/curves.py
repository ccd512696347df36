"""How a run went, epoch by epoch, as lines to draw."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING, Any

from bne.training.scores import mean_accuracy, pooled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bne.training.events import Epoch

    Line = list[float | None]


NAMES = {"head": "last layer alone", "train": "training"}
EXACT = "exact statistics"


@dataclass(frozen=True)
class Stage:
    """A stretch of a run in which the same is trained in the same way.

    Attributes:
        name: in words.
        first: its first record, counted from 1.
        last: its last one.
    """

    name: str
    first: int
    last: int


def stages(epochs: Sequence[Epoch]) -> list[Stage]:
    """The stretches of a run, in order."""
    found: list[Stage] = []
    for name, own in groupby(epochs, _stage):
        first = found[-1].last + 1 if found else 1
        found.append(Stage(name, first, first + len(list(own)) - 1))
    return found


def line(epochs: Sequence[Epoch], value: Callable[[Epoch], float | None]) -> Line:
    """A value of every record, to four digits; None where there is none."""
    values = [value(epoch) for epoch in epochs]
    return [None if v is None or not isfinite(v) else float(f"{v:.4g}") for v in values]


def source_accuracy(epoch: Epoch) -> float | None:
    """On held-out images, in percent, the mean over source domains."""
    return mean_accuracy(epoch.validation) if epoch.validation else None


def target_accuracy(epoch: Epoch) -> float | None:
    """In percent, of all images of the target together."""
    return pooled(epoch.target.values()).accuracy if epoch.target else None


def on_source(domain: str) -> Callable[[Epoch], float | None]:
    """Accuracy on a source domain's held-out images, in percent."""
    return lambda epoch: epoch.validation[domain].accuracy if domain in epoch.validation else None


def on_target(domain: str) -> Callable[[Epoch], float | None]:
    """Accuracy on a target domain, in percent."""
    return lambda epoch: epoch.target[domain].accuracy if domain in epoch.target else None


def thinned(count: int, most: int) -> list[int]:
    """At most so many of some places, spread evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})


def plain_stages(epochs: Sequence[Epoch]) -> list[dict[str, Any]]:
    """The same stretches for JSON."""
    return [asdict(stage) for stage in stages(epochs)]


def _stage(epoch: Epoch) -> str:
    return EXACT if epoch.statistics == "exact" else NAMES.get(epoch.stage, epoch.stage)
