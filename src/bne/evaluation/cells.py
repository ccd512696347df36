"""A figure of a table: what several seeds gave, and how many more are planned."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NONE, AWAITED = "–", "…"


@dataclass(frozen=True)
class Cell:
    """A figure over seeds.

    Attributes:
        values: by seed.
        planned: seeds there will be.
    """

    values: Mapping[int, float]
    planned: int

    @property
    def mean(self) -> float | None:
        """Over the seeds there are; None if there are none."""
        return fmean(self.values.values()) if self.values else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean, which needs two seeds."""
        count = len(self.values)
        return stdev(self.values.values()) / count**0.5 if count > 1 else None

    @property
    def complete(self) -> bool:
        """Whether every planned seed is there."""
        return len(self.values) >= self.planned

    def difference(self, other: float, *, digits: int = 1) -> str:
        """By how much it exceeds a figure, in brackets; nothing if it is not there."""
        return "" if self.mean is None else f" ({signed(self.mean - other, digits)})"

    def __str__(self) -> str:
        if self.mean is None:
            return AWAITED if self.planned else NONE
        error = "" if self.error is None else f" ± {self.error:.1f}"
        return f"{self.mean:.1f}{error}{self._count()}"

    def _count(self) -> str:
        return "" if self.complete else f" [{len(self.values)}/{self.planned}]"


@dataclass(frozen=True)
class Gain(Cell):
    """By how many percent of a baseline one average exceeds another, Δ% of the paper's tables.

    Attributes:
        values: of the average, by seed.
        planned: seeds there will be.
        baseline: of the same seeds.
    """

    baseline: Cell

    @property
    def mean(self) -> float | None:
        """100 · (average − baseline) / baseline."""
        ours, base = super().mean, self.baseline.mean
        return 100 * (ours - base) / base if ours is not None and base else None

    @property
    def error(self) -> None:
        """The paper's tables give none."""

    def difference(self, other: float, *, digits: int = 2) -> str:
        """As of any figure, with one more digit."""
        return super().difference(other, digits=digits)

    def __str__(self) -> str:
        return super().__str__() if self.mean is None else f"{signed(self.mean, 2)}{self._count()}"


def average(cells: Sequence[Cell], weights: Sequence[float] | None = None) -> Cell:
    """The mean over targets, of the seeds that every target has.

    Args:
        cells: one a target.
        weights: of the targets; by default all weigh the same.
    """
    if not cells:
        return Cell({}, 0)
    seeds = set.intersection(*(set(cell.values) for cell in cells))
    means = {seed: fmean((c.values[seed] for c in cells), weights) for seed in sorted(seeds)}
    return Cell(means, max(cell.planned for cell in cells))


def compared(ours: Cell, baseline: Cell) -> tuple[Cell, Gain]:
    """The baseline and the gain over it, both over the seeds that there are of each."""
    common = ours.values.keys() & baseline.values.keys()
    base = Cell({seed: baseline.values[seed] for seed in sorted(common)}, ours.planned)
    return base, Gain({seed: ours.values[seed] for seed in sorted(common)}, ours.planned, base)


def signed(value: float, digits: int) -> str:
    """With its sign, which is a true minus."""
    text = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text.replace("-", "−")
