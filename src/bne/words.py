"""Numbers and lists as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
MINUTE, HOUR = 60, 3600
SHOWN = 10  # items of a list


def readable_size(count: int) -> str:
    """A number of bytes in the largest unit of which there is at least one: `1.57 MB`."""
    for unit, size in UNITS.items():
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def listed(items: Iterable[str], separator: str = ", ", last: str = " and ") -> str:
    """`a, b and c`; of more than ten items the first ten, then `and 3 more`."""
    shown = list(items)
    if len(shown) > SHOWN:
        shown[SHOWN:] = [f"{len(shown) - SHOWN} more"]
    *first, final = shown
    return f"{separator.join(first)}{last}{final}" if first else final


def counted(count: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`."""
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
