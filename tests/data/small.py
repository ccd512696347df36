"""Small pictures and datasets for the tests of bne.data."""

import io
import itertools
from pathlib import Path

import numpy as np
from PIL import Image

_colours = itertools.count(1)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png() -> bytes:
    """A picture unlike any other this function has returned."""
    number = next(_colours)
    return encode(Image.new("RGB", (4, 4), (number % 256, number // 256, 7)))


def write(root: Path, *names: str) -> Path:
    """Writes a different picture at each of the names below `root`."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png())
    return root


def names(domains: str, classes: str, count: int) -> list[str]:
    """`domain/class/number.png` for all combinations."""
    places = itertools.product(domains.split(), classes.split(), range(count))
    return [f"{domain}/{name}/{number}.png" for domain, name, number in places]


def pixels(image: Image.Image) -> np.ndarray:
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)
