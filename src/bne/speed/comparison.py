"""The whole comparison, part by part."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bne.speed import growth, inference, memory, training
from bne.speed.clock import time_cases
from bne.speed.work import make_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bne.speed.measurement import Measurement
    from bne.speed.settings import Case, Settings

PARTS = {
    "train": training.entries,
    "inference": inference.entries,
    "memory": memory.entries,
    "growth": growth.entries,
}
"""What there is to compare, by name."""


def compare(
    settings: Settings, parts: Iterable[str], begin: Callable[[Case], None] = lambda _: None
) -> Iterator[list[Measurement]]:
    """Times all cases of each part.

    Args:
        settings: of all cases.
        parts: names in `PARTS`.
        begin: is told each case before it is run.

    Yields:
        The measurements of a part.
    """
    for part in parts:
        entries = PARTS[part](settings)
        works = {entry.case: partial(make_work, entry.case, settings) for entry in entries}
        timings = time_cases(works, settings.device, settings.repeat, begin)
        yield [entry.measured(part, timings) for entry in entries]


def number_of_cases(settings: Settings, parts: Iterable[str]) -> int:
    """How often `compare` calls `begin`."""
    return sum(len({entry.case for entry in PARTS[part](settings)}) for part in parts)
