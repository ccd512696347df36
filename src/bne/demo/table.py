"""The demo's table: mean and standard error over seeds."""

from __future__ import annotations

from math import isnan
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.demo.experiment import Outcome


class Cell(NamedTuple):
    """A mean and its standard error, which a single run does not have."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if isnan(self.error) else f" ± {self.error:.1f}")


def cells(outcomes: Sequence[Outcome], method: str) -> dict[str, Cell]:
    """A method's accuracy on each target."""
    targets = dict.fromkeys(outcome.target for outcome in outcomes)
    return {
        target: _cell([o.accuracy for o in outcomes if (o.method, o.target) == (method, target)])
        for target in targets
    }


def average(outcomes: Sequence[Outcome], method: str) -> Cell:
    """A method's accuracy over all targets: its error is that of the seeds' averages."""
    seeds = dict.fromkeys(outcome.seed for outcome in outcomes)
    return _cell(
        [
            fmean(o.accuracy for o in outcomes if (o.method, o.seed) == (method, seed))
            for seed in seeds
        ]
    )


def _cell(values: list[float]) -> Cell:
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return Cell(fmean(values), error)
