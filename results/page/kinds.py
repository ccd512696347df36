"""Runs of a kind: those that differ in target and seed alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from page.campaign import PAPERS, RECIPE, difference
from page.search import TUNED, tuning
from page.words import settings_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record


def kind(record: Record) -> str:
    """The method and what differs from the nearest recipe."""
    changes, recipe = min(
        ((difference(record, recipe), recipe) for recipe in (RECIPE, PAPERS)),
        key=lambda found: len(found[0]),
    )
    name = record.settings["method"] + ("" if recipe == RECIPE else f" by `{recipe}`")
    tuned = any(key.startswith(TUNED) for key in changes)
    rest = {key: value for key, value in changes.items() if not key.startswith(TUNED)}
    return ", ".join(filter(None, (name, tuned and tuning(record).how, settings_text(rest))))


def by_kind(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records of a kind together, in the order of their first."""
    kinds: dict[str, list[Record]] = {}
    for record in records:
        kinds.setdefault(kind(record), []).append(record)
    return kinds
