"""Sizes and lists as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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
