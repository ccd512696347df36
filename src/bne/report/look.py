"""Colors and shapes of domains, and small pictures."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from PIL.Image import Image
    from torch import Tensor

    from bne.data.cache import PreparedImages

# Okabe and Ito's colors, which color-blind readers can tell apart.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
SEEN = (("o", "circle"), ("s", "square"), ("p", "pentagon"))
UNSEEN = (("^", "triangle-up"), ("D", "diamond"), ("v", "triangle-down"))
SIDES = (128, 96, 72, 56, 40, 28, 20)  # of thumbnails
QUALITY = 72
LARGEST_JPEG = 16_384  # pixels to a side that browsers draw


@dataclass(frozen=True)
class Look:
    """How a domain is drawn.

    Attributes:
        name: of the domain.
        colour: as #RRGGBB.
        marker: matplotlib's name of its shape.
        symbol: name of the same shape in `charts.js`.
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


def sheet(
    prepared: PreparedImages, numbers: Sequence[int], largest: int, budget: int
) -> dict[str, Any]:
    """The same on one JPEG, row by row: thousands take little more than their pixels.

    Returns:
        `href`, the address that holds it; `side` of an image in pixels, and `columns`.
    """
    from PIL import Image

    columns = max(1, isqrt(len(numbers) - 1) + 1)
    largest = min(largest, max(SIDES[-1], *prepared.pixels.shape[1:3]))
    found = {"href": "", "side": SIDES[-1], "columns": columns}
    for side in (side for side in SIDES if side <= largest):
        if side * columns > LARGEST_JPEG:
            continue
        whole = Image.new("RGB", (side * columns, side * -(-len(numbers) // columns)), "white")
        for place, number in enumerate(numbers):
            one = _image(prepared.pixels[number])
            one.thumbnail((side, side))
            row, column = divmod(place, columns)
            corner = column * side + (side - one.width) // 2, row * side + (side - one.height) // 2
            whole.paste(one, corner)
        found = {"href": _address(whole, "JPEG"), "side": side, "columns": columns}
        if len(str(found["href"])) <= budget:
            break
    return found


def picture(pixels: Tensor, side: int | None = None) -> str:
    """An image, (H, W, C) uint8, as an address that holds it; of many channels the first is shown.

    Args:
        pixels: of the image.
        side: of a JPEG, in pixels at most; without it, a PNG of every pixel.
    """
    image = _image(pixels)
    if side is not None:
        image.thumbnail((side, side))
    return _address(image, "PNG" if side is None else "JPEG")


def _image(pixels: Tensor) -> Image:
    from PIL import Image

    return Image.fromarray((pixels if pixels.shape[2] == 3 else pixels[..., 0]).numpy())


def _address(image: Image, form: str) -> str:
    buffer = io.BytesIO()
    image.save(buffer, form, **({"quality": QUALITY, "optimize": True} if form == "JPEG" else {}))
    return f"data:image/{form.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
