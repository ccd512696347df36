"""Colour changes of a whole batch at once, each image with its own strength.

All take and give images (B, 3, H, W) of floating point in [0, 1], and strengths of (B,). The
definitions are torchvision's.
"""

from __future__ import annotations

import torch
from torch import Tensor


def grey(images: Tensor) -> Tensor:
    """(B, 1, H, W), the luma of ITU-R 601."""
    red, green, blue = images.unbind(1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).unsqueeze(1)


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Scales every pixel: 0 gives black, 1 the image."""
    return (images * factor[:, None, None, None]).clamp(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Moves pixels from (0) the image's mean grey towards the image (1) and beyond."""
    return _blend(images, grey(images).mean((1, 2, 3), keepdim=True), factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Moves pixels from (0) their grey towards the image (1) and beyond."""
    return _blend(images, grey(images), factor)


def adjust_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turns hues round the colour circle; `turn` 1 is all the way round."""
    value, darkest = images.amax(1), images.amin(1)
    chroma = value - darkest
    red, green, blue = images.unbind(1)
    divisor = torch.where(chroma == 0, 1, chroma)
    sextant = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    sextant = sextant + 6 * turn[:, None, None]
    # A channel falls from the value by the chroma as the hue moves away from it (HSV to RGB).
    turns = [torch.remainder(offset + sextant, 6) for offset in (5, 3, 1)]
    falls = [torch.minimum(t, 4 - t).clamp(0, 1) for t in turns]
    return torch.stack([value - chroma * fall for fall in falls], dim=1)


def drop_colour(images: Tensor, chosen: Tensor) -> Tensor:
    """Makes the chosen images, (B,) bool, grey."""
    return torch.where(chosen[:, None, None, None], grey(images), images)


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(other, images, factor[:, None, None, None]).clamp(0, 1)
