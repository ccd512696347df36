"""Measurements, and what they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bne.speed.clock import Timing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bne.speed.settings import Case

Timings = Mapping["Case", Timing]
"""What the clock says; a case that the memory could not hold is missing."""

NO_ROOM = "does not fit into the device's memory"
NOT_COUNTED = "memory is counted on a GPU only"


@dataclass(frozen=True)
class Measurement:
    """One line of the comparison.

    Attributes:
        part: of the comparison.
        what: was measured.
        domains: K; 0 is the plain network.
        images: at once.
        graph: whether it ran as a CUDA graph; memory is always that of a call.
        unit: of the next four.
        value: the median of all repeats; None if it could not be measured.
        low: the least.
        high: the most.
        plain: what the plain network takes for as many images, run the same way, if measured.
        reference: what the value is compared with, if anything.
        reference_is: that, in words.
        goal: the most that `ratio` should be, if there is a goal.
        note: why there is no value.
        compiled: whether the network went through `torch.compile`.
    """

    part: str
    what: str
    domains: int
    images: int
    graph: bool
    unit: Literal["ms", "MiB"]
    value: float | None = None
    low: float | None = None
    high: float | None = None
    plain: float | None = None
    reference: float | None = None
    reference_is: str = ""
    goal: float | None = None
    note: str = ""
    compiled: bool = False

    @property
    def to_plain(self) -> float | None:
        """How many times what the plain network takes."""
        return _quotient(self.value, self.plain)

    @property
    def ratio(self) -> float | None:
        """How many times the reference."""
        return _quotient(self.value, self.reference)

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached, if there is one."""
        return None if self.ratio is None or self.goal is None else self.ratio <= self.goal

    @property
    def images_per_s(self) -> float | None:
        """Throughput."""
        return self.images / self.value * 1e3 if self.unit == "ms" and self.value else None


@dataclass(frozen=True)
class Entry:
    """A line to come: what is timed, and what it will be compared with.

    Attributes:
        what: is measured.
        case: that is timed.
        unit: "ms" a call, or "MiB" at its peak.
        reference: computes what it is compared with, in the same unit.
        reference_is: that, in words.
        goal: the most that the ratio should be.
    """

    what: str
    case: Case
    unit: Literal["ms", "MiB"] = "ms"
    reference: Callable[[Timings], float] | None = None
    reference_is: str = ""
    goal: float | None = None

    def measured(self, part: str, timings: Timings) -> Measurement:
        """The line, once all cases of the part are timed."""
        case, timing = self.case, timings.get(self.case)
        graph = case.graph and self.unit == "ms"
        line = (part, self.what, case.domains, case.images, graph, self.unit)
        if timing is None:
            return Measurement(*line, note=NO_ROOM, compiled=case.compiled)
        if self.unit == "MiB" and timing.peak is None:
            return Measurement(*line, note=NOT_COUNTED)
        values = timing.milliseconds if self.unit == "ms" else [peak(timings, case)]
        return Measurement(
            *line,
            value=middle(timings, case) if self.unit == "ms" else values[0],
            low=min(values),
            high=max(values),
            plain=self._plain(timings),
            reference=self._reference(timings),
            reference_is=self.reference_is,
            goal=self.goal,
            compiled=case.compiled,
        )

    def _plain(self, timings: Timings) -> float | None:
        if not self.case.domains or self.case.work == "distance" or self.case.plain not in timings:
            return None
        return (middle if self.unit == "ms" else peak)(timings, self.case.plain)

    def _reference(self, timings: Timings) -> float | None:
        try:
            return None if self.reference is None else self.reference(timings)
        except KeyError:  # it did not fit into the memory
            return None


def middle(timings: Timings, case: Case) -> float:
    """What a call takes, in milliseconds."""
    return timings[case].median


def peak(timings: Timings, case: Case) -> float:
    """The most memory in use at a time, in MiB."""
    most = timings[case].peak
    if most is None:
        raise KeyError(case)
    return most


def best(timings: Timings, cases: Iterable[Case]) -> float:
    """The least time for one image, in milliseconds, at any number of images at once."""
    found = [timings[case].median / case.images for case in cases if case in timings]
    if not found:
        raise KeyError("none of the cases was timed")
    return min(found)


def _quotient(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other else value / other
