"""Random changes to training images, on the device they are on, for a whole batch at once.

What happens to an image follows from the seed, the step and the image's position in the batch and
from nothing else, so that a resumed run, another device and several processes change it alike.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

import torch

from bne.data import colour
from bne.data.crops import crop, resized_crop
from bne.data.images import DataError
from bne.data.transform import normalise
from bne.data.upload import upload

if TYPE_CHECKING:
    from torch import Tensor

    from bne.models.preprocessing import Preprocessing

Strength = Literal["paper", "strong"]

MIN_AREA = 0.5
MAX_LOG_ASPECT = 0.2877  # log(4/3)
JITTER = 0.3
GREY_SHARE = 0.1
DRAWS = 10  # random numbers an image, as many as the strong augmentation takes


class Augmentation:
    """Augments and normalises training batches.

    "paper": a random crop and a random horizontal flip.
    "strong": a random crop of at least half the area and an aspect of 3:4 to 4:3, resized; a random
        flip; brightness, contrast and saturation scaled by 0.7 to 1.3 and hue turned by up to 0.3,
        in this order; one image in ten made grey.
    """

    def __init__(self, strength: Strength, preprocessing: Preprocessing, seed: int = 0) -> None:
        if strength not in ("paper", "strong"):
            raise DataError(f"augmentation={strength!r} is not known; use 'paper' or 'strong'.")
        self._change = _paper if strength == "paper" else _strong
        self._preprocessing = preprocessing
        self._seed = seed

    def __call__(self, images: Tensor, step: int, positions: Tensor | None = None) -> Tensor:
        """Augments one batch.

        Args:
            images: (B, 3, H, W) uint8.
            step: Steps of training before this one.
            positions: (B,) int64 on the CPU, where each image stands in the batch of all processes
                together; 0, 1, 2, ... if there is one process.

        Returns:
            (B, 3, size, size) float32, normalised, where `size` is the preprocessing's.
        """
        size = self._preprocessing.size
        if min(images.shape[-2:]) < size:
            raise DataError(
                f"Images of {images.shape[-1]} pixels are too small for crops of {size}; "
                "prepare them with a larger size."
            )
        if positions is None:
            positions = torch.arange(len(images))
        draws = _draws(self._seed, step, positions)
        return normalise(self._change(images, draws, size), self._preprocessing)


def _draws(seed: int, step: int, positions: Tensor) -> Tensor:
    """(B, DRAWS) in [0, 1) on the CPU, so that every device gets the same."""
    key = hashlib.sha256(f"augment/{seed}/{step}".encode()).digest()[:8]
    generator = torch.Generator().manual_seed(int.from_bytes(key, "little", signed=True))
    # Filled row by row, so a row does not depend on how many follow.
    return torch.rand(int(positions.max()) + 1, DRAWS, generator=generator)[positions]


def _paper(images: Tensor, draws: Tensor, size: int) -> Tensor:
    height, width = images.shape[-2:]
    top = (draws[:, 0] * (height - size + 1)).long()
    left = (draws[:, 1] * (width - size + 1)).long()
    return crop(images, top, left, draws[:, 2] < 0.5, size)


def _strong(images: Tensor, draws: Tensor, size: int) -> Tensor:
    full_height, full_width = images.shape[-2:]
    area = full_height * full_width * _between(draws[:, 0], MIN_AREA, 1)
    aspect = _between(draws[:, 1], -MAX_LOG_ASPECT, MAX_LOG_ASPECT).exp()
    height = (area / aspect).sqrt().round().clamp(max=full_height)
    width = (area * aspect).sqrt().round().clamp(max=full_width)
    top = (draws[:, 2] * (full_height - height + 1)).floor()
    left = (draws[:, 3] * (full_width - width + 1)).floor()
    changed = resized_crop(images.float() / 255, top, left, height, width, draws[:, 4] < 0.5, size)
    jitter = upload(_between(draws[:, 5:9].T, -JITTER, JITTER), images.device)
    changed = colour.adjust_brightness(changed, 1 + jitter[0])
    changed = colour.adjust_contrast(changed, 1 + jitter[1])
    changed = colour.adjust_saturation(changed, 1 + jitter[2])
    changed = colour.adjust_hue(changed, jitter[3])
    return colour.drop_colour(changed, upload(draws[:, 9] < GREY_SHARE, images.device))


def _between(draws: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * draws
