"""The demo set: real handwritten digits, rendered in four ways that stand for four domains.

    blueprint: pale outlines on blue, some of them faintly filled.
    chalk: grainy pale strokes on a dark, smudged board.
    ink: dark pens on bright paper.
    poster: pale on a two-colored pattern, one in five the other way round.

The digits are scikit-learn's `load_digits`, 1,797 images of 8×8 pixels. They are dealt out, so that
no digit is in two domains, and every image has a tilt, a stroke and colors of its own.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import affine_grid, grid_sample, interpolate

from bne.data.batches import seed_of
from bne.data.cache import PreparedImages
from bne.data.images import ImageFile, ImageSet
from bne.errors import MissingLibraryError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from torch import Tensor

SIZE = 36  # leaves random crops of 32 some room
EDGE = 9.0  # how sharp a stroke's edge is
INVERTED_CHANCE = 0.2


def load(seed: int = 0, per_domain: int | None = None) -> PreparedImages:
    """Renders the set, which takes a fraction of a second; nothing is written to disk.

    Mirroring spoils digits: do not train on this set with random flips.

    Args:
        seed: Number that decides which digit is in which domain, and how each is drawn.
        per_domain: Images in each domain, in equal parts of the ten classes; all 449 or 450 if not
            given. Those of a smaller set are among those of a larger one of the same seed.

    Returns:
        Images named `domain/class/number.png`, where the number is scikit-learn's, ordered by
        domain and class; pixels (N, 36, 36, 3).

    Raises:
        MissingLibraryError: scikit-learn is not installed.
        SettingsError: `per_domain` makes no sense.
    """
    digits, labels = handwriting()
    smallest = len(labels) // len(DOMAINS)
    if per_domain is not None and not 1 <= per_domain <= smallest:
        raise SettingsError(f"per_domain is {per_domain}; choose from 1 to {smallest}.")
    shuffled = torch.randperm(len(labels), generator=_generator(seed))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    chosen, drawings, domains = [], [], []
    for number, (domain, render) in enumerate(DOMAINS.items()):
        dealt = by_class[number :: len(DOMAINS)]
        draws = Draws(_generator(seed, domain), len(dealt))
        drawn = render(strokes(digits[dealt], draws), draws)
        # Rendered whole and then thinned out, evenly over the classes.
        count = per_domain or len(dealt)
        kept = torch.arange(count) * len(dealt) // count
        chosen += dealt[kept].tolist()
        drawings.append(drawn[kept])
        domains += [number] * count
    pixels = (torch.cat(drawings).clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = pixels.permute(0, 2, 3, 1).contiguous()
    # A copy: torch moves a tensor's memory when it is sent to another process, and a view of it
    # would be left dangling.
    pictures = pixels.numpy().copy()
    files = (
        _image_file(index, int(labels[index]), domain, picture)
        for index, domain, picture in zip(chosen, domains, pictures, strict=True)
    )
    images = ImageSet(tuple(DOMAINS), tuple("0123456789"), tuple(files))
    return PreparedImages(images, pixels, folder=Path())


@dataclass(frozen=True)
class Draws:
    """Random numbers for the images of one domain."""

    generator: torch.Generator
    images: int

    def between(self, low: float, high: float, channels: int = 1, size: int = 1) -> Tensor:
        """(images, channels, size, size), uniform and independent: with size 1, one per image."""
        shape = (self.images, channels, size, size)
        return low + (high - low) * torch.rand(shape, generator=self.generator)

    def patches(self, low: float, high: float, cells: int) -> Tensor:
        """(images, 1, SIZE, SIZE), smooth, about `cells` patches along each side."""
        coarse = self.between(low, high, size=cells)
        return interpolate(coarse, size=SIZE, mode="bicubic", align_corners=False)


def _blueprint(stroke: Tensor, draws: Draws) -> Tensor:
    line = 4 * stroke * (1 - stroke) + draws.between(0, 0.3) * stroke
    paper = _colour(0.10, 0.27, 0.62) + draws.between(-0.05, 0.05, channels=3)
    paper = paper + draws.between(-0.02, 0.02, size=SIZE)
    return torch.lerp(paper, _colour(0.92, 0.96, 1.0), line * draws.between(0.7, 1))


def _chalk(stroke: Tensor, draws: Draws) -> Tensor:
    board = _colour(0.13, 0.24, 0.19) + draws.between(-0.04, 0.04, channels=3)
    board = board + draws.patches(-0.02, 0.1, cells=5)
    covered = draws.between(0, 1, size=SIZE) < draws.between(0.4, 0.75)
    chalk = _colour(0.90, 0.90, 0.85) + draws.between(-0.1, 0.1)
    drawn = torch.lerp(board, chalk, stroke * (0.05 + 0.95 * covered))
    return drawn + draws.between(-0.03, 0.03, size=SIZE)


def _ink(stroke: Tensor, draws: Draws) -> Tensor:
    paper = _colour(0.95, 0.92, 0.84) + draws.between(-0.05, 0.05, channels=3)
    paper = paper + draws.between(-0.03, 0.03, size=SIZE)
    pen = _colour(0.12, 0.14, 0.40) + draws.between(-0.12, 0.12, channels=3)
    return torch.lerp(paper, pen, stroke * draws.between(0.65, 1))


def _poster(stroke: Tensor, draws: Draws) -> Tensor:
    ground = draws.between(0, 0.7, channels=3)
    pattern = ground + draws.between(-0.35, 0.35, channels=3)
    ground = torch.lerp(ground, pattern, draws.patches(-2, 3, cells=6).clamp(0, 1))
    printed = torch.lerp(ground, draws.between(0.75, 1, channels=3), stroke)
    return torch.where(draws.between(0, 1) < INVERTED_CHANCE, 1 - printed, printed)


DOMAINS: Mapping[str, Callable[[Tensor, Draws], Tensor]] = {
    "blueprint": _blueprint,
    "chalk": _chalk,
    "ink": _ink,
    "poster": _poster,
}
"""From strokes (N, 1, SIZE, SIZE) in [0, 1] to RGB (N, 3, SIZE, SIZE), which may overshoot it."""


def strokes(digits: Tensor, draws: Draws) -> Tensor:
    """Enlarges (N, 8, 8) to (N, 1, SIZE, SIZE), smoothly, each with its own tilt and thickness."""
    angle, zoom, slant = (
        draws.between(*bounds).flatten() for bounds in ((-0.2, 0.2), (1.15, 1.45), (-0.15, 0.15))
    )
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows = (zoom * cos, zoom * (slant - sin), zero), (zoom * sin, zoom * cos, zero)
    placing = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)
    grid = affine_grid(placing, [len(digits), 1, SIZE, SIZE], align_corners=False)
    grey = grid_sample(digits.unsqueeze(1), grid, mode="bicubic", align_corners=False)
    return ((grey - draws.between(0.35, 0.55)) * EDGE).sigmoid()


def _colour(red: float, green: float, blue: float) -> Tensor:
    return torch.tensor((red, green, blue)).view(1, 3, 1, 1)


def _generator(*key: object) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of("digits", *key))


def handwriting() -> tuple[Tensor, Tensor]:
    """The digits (1797, 8, 8) in [0, 1] and their classes (1797,) int64."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            "The demo set needs scikit-learn, which is not installed; pip install 'bne[demo]'"
            " brings it.",
            name="sklearn",
        ) from error
    found = load_digits()
    return torch.from_numpy(found.images).float() / 16, torch.from_numpy(found.target).long()


def _image_file(index: int, label: int, domain: int, pixels: np.ndarray) -> ImageFile:
    name = f"{tuple(DOMAINS)[domain]}/{label}/{index:04d}.png"
    stamp = hashlib.sha256(pixels.tobytes()).hexdigest()
    return ImageFile(name, label, domain, partial(_png, pixels), stamp)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
