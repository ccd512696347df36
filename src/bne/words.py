"""Numbers and names as people say them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
SHOWN = 10


def readable_size(count: int) -> str:
    """A number of bytes in the largest unit of which there is at least one: `1.57 MB`."""
    for unit, size in UNITS.items():
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"


def readable_list(items: Sequence[str], separator: str = ", ", shown: int = SHOWN) -> str:
    """The first items, and how many there are besides: `a, b, … and 3 more`."""
    rest = len(items) - shown
    return separator.join((*items[:shown], f"… and {rest} more") if rest > 0 else items)


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
