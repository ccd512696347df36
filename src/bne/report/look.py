"""Colors and shapes of domains, and small pictures."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from torch import Tensor

    from bne.data.cache import PreparedImages

# Okabe and Ito's colors, which color-blind readers can tell apart.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
SEEN = (("o", "circle"), ("s", "square"), ("p", "pentagon"))
UNSEEN = (("^", "triangle-up"), ("D", "diamond"), ("v", "triangle-down"))
SIDES = (128, 96, 72, 56, 40, 28, 20)  # of thumbnails
QUALITY = 72


@dataclass(frozen=True)
class Look:
    """How a domain is drawn.

    Attributes:
        name: of the domain.
        colour: as #RRGGBB.
        marker: matplotlib's name of its shape.
        symbol: plotly's name of the same shape.
        seen: whether the model was trained on it.
    """

    name: str
    colour: str
    marker: str
    symbol: str
    seen: bool


def looks(domains: Iterable[str], seen: Collection[str]) -> dict[str, Look]:
    """A look for every domain: seen ones are round or broad, unseen ones pointed.

    The first eight differ in color, neighbors in shape too; the first 24 in one or the other.
    """
    found = {}
    for number, name in enumerate(dict.fromkeys(domains)):
        shapes = SEEN if name in seen else UNSEEN
        colour = PALETTE[number % len(PALETTE)]
        found[name] = Look(name, colour, *shapes[number % len(shapes)], name in seen)
    return found


def thumbnails(
    prepared: PreparedImages, numbers: Sequence[int], largest: int, budget: int
) -> list[str]:
    """Small JPEGs, as large as their budget allows, as addresses that hold them.

    Args:
        prepared: the images.
        numbers: of those wanted.
        largest: their height and width in pixels at most.
        budget: characters of all of them together.
    """
    found: list[str] = []
    for side in (side for side in SIDES if side <= largest):
        found = [picture(prepared.pixels[number], side) for number in numbers]
        if sum(map(len, found)) <= budget:
            break
    return found


def picture(pixels: Tensor, side: int | None = None) -> str:
    """An image, (H, W, C) uint8, as an address that holds it; of many channels the first is shown.

    Args:
        pixels: of the image.
        side: of a JPEG, in pixels at most; without it, a PNG of every pixel.
    """
    from PIL import Image

    shown = pixels if pixels.shape[2] == 3 else pixels[..., 0]
    image = Image.fromarray(shown.numpy())
    buffer = io.BytesIO()
    if side is None:
        image.save(buffer, "PNG")
    else:
        image.thumbnail((side, side))
        image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    kind = "png" if side is None else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
