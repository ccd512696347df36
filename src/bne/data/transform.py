"""From decoded images to a network's input: cropped, normalized, on their device.

`EvalTransform` is what happens when nothing is random; `bne.data.augment` is built from the same
parts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch.nn.functional import grid_sample

from bne.data.images import Fit, Way, of_pillow, pixels, resized
from bne.errors import DataError, SettingsError
from bne.models.registry import Preprocessing

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image
    from torch import Tensor

    from bne.data.values import Window


@dataclass(frozen=True)
class EvalTransform:
    """How images are prepared for a trained network; kept with it and used for every prediction.

    Attributes:
        preprocessing: The size of the centre crop, and the normalization.
        resize: Height and width images are resized to before that.
        fit: How they become square, see `bne.data.images.resize`.
        window: The values of images of more than 8 bits that become black and white, see
            `bne.data.images.Way`.
    """

    preprocessing: Preprocessing
    resize: int = 256
    fit: Fit = "squash"
    window: Window | None = None

    def __post_init__(self) -> None:
        size = self.preprocessing.size
        if self.resize < size:
            raise SettingsError(
                f"Images resized to {self.resize} pixels are too small for a crop of {size}; "
                f"choose resize >= {size}."
            )
        if self.fit not in get_args(Fit):
            raise SettingsError(f"fit is {self.fit!r}; it must be squash or letterbox.")

    @property
    def way(self) -> Way:
        """How an encoded image becomes what is cropped and normalized."""
        return Way(self.resize, self.fit, self.window, self.preprocessing.channels)

    def __call__(self, images: Tensor) -> Tensor:
        """Crops and normalizes a batch.

        Args:
            images: (B, C, resize, resize) uint8, on any device.

        Returns:
            (B, C, size, size) float32.
        """
        expected = (self.preprocessing.channels, self.resize, self.resize)
        if images.dtype != torch.uint8 or images.shape[1:] != expected:
            raise DataError(
                f"Images of shape {tuple(images.shape)} and {images.dtype} were given where uint8 "
                f"of (B, {', '.join(map(str, expected))}) is expected; prepare them with "
                f"size={self.resize}."
            )
        return normalise(centre_crop(images, self.preprocessing.size), self.preprocessing)

    def image(self, image: Image.Image) -> Tensor:
        """(1, C, size, size) from a PIL image of any size and mode, EXIF rotation applied."""
        return self._of_pixels(resized(of_pillow(image, "image"), "image", self.way))

    def file(self, path: Path | str) -> Tensor:
        """(1, C, size, size) from an image file."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"{path}: the image cannot be read ({error.strerror}).") from error
        return self._of_pixels(pixels(data, str(path), self.way))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        fields = asdict(self)
        if self.fit == "squash":  # as it was before there was a choice: models keep their checksums
            del fields["fit"]
        if self.window is None:
            del fields["window"]
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EvalTransform:
        """What `to_dict` gave."""
        try:
            inner = fields["preprocessing"]
            mean, std = (tuple(map(float, inner[key])) for key in ("mean", "std"))
            if not 0 < len(mean) == len(std):
                raise ValueError(f"mean has {len(mean)} values, std {len(std)}")
            window = fields.get("window")
            if window is not None:
                low, high = map(float, window)
                window = (low, high)
            known = Preprocessing(int(inner["size"]), mean, std)
            return cls(known, int(fields["resize"]), fields.get("fit", "squash"), window)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"The stored image preprocessing is not valid ({error!r}); it needs resize and "
                "preprocessing with size, mean and std."
            ) from error

    def _of_pixels(self, found: NDArray[np.uint8]) -> Tensor:
        """From the very pixels that the cache would hold."""
        return self(torch.from_numpy(found.copy())[None].permute(0, 3, 1, 2))


def normalise(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Brings colors to what the network was trained on, channel by channel.

    Args:
        images: (B, 3, H, W), uint8 or in [0, 1].
        preprocessing: Mean and standard deviation.

    Returns:
        (B, 3, H, W) float32.
    """
    white = 255 if images.dtype == torch.uint8 else 1
    scale, shift = _scale_and_shift(preprocessing, white, images.device)
    return torch.addcmul(shift, images, scale)


@cache  # making them anew would copy to the device at every step
def _scale_and_shift(
    preprocessing: Preprocessing, white: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    constants = torch.tensor((preprocessing.mean, preprocessing.std), device=device)
    mean, std = constants[..., None, None]
    return 1 / (white * std), -mean / std


def centre_crop(images: Tensor, size: int) -> Tensor:
    """Cuts the middle (B, C, size, size) out of images, to torchvision's rounding."""
    height, width = images.shape[-2:]
    top, left = round((height - size) / 2), round((width - size) / 2)
    return images[..., top : top + size, left : left + size]


def crop(
    images: Tensor, corner: Tensor, flip: Tensor, size: int, chosen: Tensor | None = None
) -> Tensor:
    """Cuts a square out of every image, and mirrors some: no pixel changes its value.

    Args:
        images: (N, C, H, W) of any dtype; copied first if not in `channels_last` format.
        corner: (2, B) int64, the first row and the first column of each image's crop.
        flip: (B,) bool, whether to mirror it left to right.
        size: Height and width of the crop.
        chosen: (B,) int64, the images to cut from, all in order by default; of the others nothing
            is read.

    Returns:
        (B, C, size, size), in `channels_last` format.
    """
    if chosen is None:
        chosen = torch.arange(len(images))
    channels, height, width = images.shape[1:]
    places = torch.arange(size)
    top, left = corner
    # Pixels are counted through all images: by one number each they are found two to three times
    # as fast as by image, row and column.
    lines = ((chosen * height + top) * width + left)[:, None] + places * width
    columns = torch.where(flip[:, None], places.flip(0), places)
    lines, columns = upload(torch.stack((lines, columns)), images.device).unbind()
    numbers = lines[:, :, None] + columns[:, None, :]
    pixels = images.permute(0, 2, 3, 1).reshape(-1, channels)
    found = pixels.index_select(0, numbers.flatten())
    return found.view(*numbers.shape, channels).permute(0, 3, 1, 2)


def resized_crop(images: Tensor, box: Tensor, flip: Tensor, size: int) -> Tensor:
    """Cuts a box out of every image, resizes it bilinearly to a square, and mirrors some.

    Sampling is that of `interpolate(..., align_corners=False)`, without antialiasing, which makes
    no difference to speak of at the mild scales of augmentation.

    Args:
        images: (B, C, H, W) of floating point.
        box: (4, B), the first row, the first column, the rows and the columns of each box.
        flip: (B,) bool, whether to mirror it left to right.
        size: Height and width of the result.

    Returns:
        (B, C, size, size).
    """
    top, left, height, width = box
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
    places = (torch.arange(size) + 0.5) * (length / size) - 0.5
    # Clamped to the box: nothing outside of it may bleed in.
    places = start + torch.minimum(places.clamp(min=0), length - 1)
    return places * (2 / (full - 1)) - 1


def pick(images: Tensor, chosen: Tensor) -> Tensor:
    """The chosen ones, (B,) int64 on the CPU, of (N, C, H, W) images in `channels_last` format."""
    pixels = images.permute(0, 2, 3, 1)
    return pixels.index_select(0, upload(chosen, images.device)).permute(0, 3, 1, 2)


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Copies a CPU tensor to a device without waiting for what the device has yet to do.

    Only from pinned memory is the driver sure not to wait.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
