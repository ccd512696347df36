"""Colours and shapes that stand for domains, in figures and pages alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# Okabe and Ito's colours, which colour-blind readers can tell apart.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
SEEN, UNSEEN = (
    (("o", "circle"), ("s", "square"), ("p", "pentagon")),
    (
        ("^", "triangle-up"),
        ("D", "diamond"),
        ("v", "triangle-down"),
    ),
)


@dataclass(frozen=True)
class Look:
    """How a domain is drawn.

    Attributes:
        colour: as #RRGGBB.
        marker: matplotlib's name of its shape.
        symbol: plotly's name of the same shape.
        seen: whether the model was trained on it.
    """

    colour: str
    marker: str
    symbol: str
    seen: bool


def looks(domains: Sequence[str], seen: Collection[str]) -> dict[str, Look]:
    """A look for every domain: seen ones are round or broad, unseen ones pointed.

    The first eight differ in colour; then the colours come again with other shapes.
    """
    found = {}
    for number, domain in enumerate(domains):
        shapes = SEEN if domain in seen else UNSEEN
        turn, colour = divmod(number, len(PALETTE))
        found[domain] = Look(PALETTE[colour], *shapes[turn % len(shapes)], domain in seen)
    return found
