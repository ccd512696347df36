"""Pictures as text that a page can hold."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from bne.data.prepared import PreparedImages

SIDES = (128, 96, 72, 56, 40, 28, 20)
QUALITY = 72


def thumbnails(
    prepared: PreparedImages, numbers: Sequence[int], largest: int, budget: int
) -> list[str]:
    """Small JPEGs in base64, as large as their budget allows.

    Args:
        prepared: the images.
        numbers: of those wanted.
        largest: their height and width in pixels at most.
        budget: characters of all of them together.
    """
    found: list[str] = []
    for side in (side for side in SIDES if side <= largest):
        found = [base64.b64encode(jpeg(prepared.pixels[n], side)).decode() for n in numbers]
        if sum(map(len, found)) <= budget:
            break
    return found


def jpeg(pixels: Tensor, side: int) -> bytes:
    """A JPEG of an image, (H, W, 3) uint8, no larger than `side` pixels unless it is smaller."""
    from PIL import Image

    image = Image.fromarray(pixels.numpy())
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()


def data_url(kind: str, content: bytes) -> str:
    """An address that holds its content.

    Args:
        kind: its media type.
        content: the bytes.
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
