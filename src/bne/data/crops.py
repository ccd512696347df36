"""Crops and flips of a whole batch at once, each image with its own box.

Boxes are on the CPU, where so little arithmetic is quicker than the launch of a GPU kernel; images
are on any device.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from bne.data.upload import upload


def pick(images: Tensor, chosen: Tensor) -> Tensor:
    """The chosen ones, (B,) int64 on the CPU, of (N, C, H, W) images in `channels_last` format."""
    pixels = images.permute(0, 2, 3, 1)
    return pixels.index_select(0, upload(chosen, images.device)).permute(0, 3, 1, 2)


def crop(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    flip: Tensor,
    size: int,
    chosen: Tensor | None = None,
) -> Tensor:
    """Cuts a square out of every image, and mirrors some: no pixel changes its value.

    Args:
        images: (N, C, H, W) of any dtype; copied first if not in `channels_last` format.
        top: (B,) int64, the first row of each image's crop.
        left: (B,) int64, its first column.
        flip: (B,) bool, whether to mirror it left to right.
        size: Height and width of the crop.
        chosen: (B,) int64, which of the images to cut from, all in order by default; of the others
            nothing is read.

    Returns:
        (B, C, size, size), in `channels_last` format.
    """
    if chosen is None:
        chosen = torch.arange(len(images))
    channels, height, width = images.shape[1:]
    places = torch.arange(size)
    # Pixels are counted through all images: by one number each they are found two to three times
    # as fast as by image, row and column.
    lines = ((chosen * height + top) * width + left)[:, None] + places * width
    columns = torch.where(flip[:, None], places.flip(0), places)
    lines, columns = upload(torch.stack((lines, columns)), images.device).unbind()
    numbers = lines[:, :, None] + columns[:, None, :]
    pixels = images.permute(0, 2, 3, 1).reshape(-1, channels)
    found = pixels.index_select(0, numbers.flatten())
    return found.view(*numbers.shape, channels).permute(0, 3, 1, 2)


def centre_crop(images: Tensor, size: int) -> Tensor:
    """Cuts the middle (B, C, size, size) out of images, to torchvision's rounding."""
    height, width = images.shape[-2:]
    top, left = round((height - size) / 2), round((width - size) / 2)
    return images[..., top : top + size, left : left + size]


def resized_crop(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    height: Tensor,
    width: Tensor,
    flip: Tensor,
    size: int,
) -> Tensor:
    """Cuts a box out of every image, resizes it bilinearly to a square, and mirrors some.

    Sampling is that of `interpolate(..., align_corners=False)`, without antialiasing, which makes
    no difference to speak of at the mild scales of augmentation.

    Args:
        images: (B, C, H, W) of floating point.
        top: (B,) the first row of each image's box.
        left: (B,) its first column.
        height: (B,) its rows.
        width: (B,) its columns.
        flip: (B,) bool, whether to mirror it left to right.
        size: Height and width of the result.

    Returns:
        (B, C, size, size).
    """
    rows = _sample_places(top, height, size, images.shape[-2])
    columns = _sample_places(left, width, size, images.shape[-1])
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    rows, columns = upload(torch.stack((rows, columns)), images.device).unbind()
    grid = torch.stack(
        (columns[:, None, :].expand(-1, size, -1), rows[:, :, None].expand(-1, -1, size)), dim=-1
    )
    return grid_sample(images, grid.to(images.dtype), padding_mode="border", align_corners=True)


def _sample_places(start: Tensor, length: Tensor, size: int, full: int) -> Tensor:
    """(B, size) where along one side to sample, with -1 and 1 the centres of its end pixels."""
    start, length = start.float()[:, None], length.float()[:, None]
    steps = torch.arange(size) + 0.5
    places = steps * (length / size) - 0.5
    # Clamped to the box: nothing outside of it may bleed in.
    places = start + torch.minimum(places.clamp(min=0), length - 1)
    return places * (2 / (full - 1)) - 1
