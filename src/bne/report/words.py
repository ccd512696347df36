"""Numbers and names as people say them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

RULES = {  # by which an epoch's network is chosen
    "last": "the last epoch",
    "validation": "the epoch best on held-out source images",
    "oracle": "the epoch best on the target: no fair choice, an upper bound",
}
MINUTE, HOUR = 60, 3600


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def listed(names: Iterable[str]) -> str:
    """`a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`."""
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def counted(count: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
