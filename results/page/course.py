"""The accuracy on the target after every epoch of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.benchmark.tables import percent

if TYPE_CHECKING:
    from bne.benchmark.records import Record


def course(record: Record) -> list[float]:
    """In percent, with running statistics, without the head phase."""
    epochs = [e for e in record.epochs if e["phase"] == "train" and e["statistics"] == "running"]
    return [percent(epoch["target"]) for epoch in epochs]


def second_half(record: Record) -> list[float]:
    """Of a course."""
    values = course(record)
    return values[len(values) // 2 :]


def last_third(record: Record) -> list[float]:
    """Of a course."""
    values = course(record)
    return values[-max(1, len(values) // 3) :]
