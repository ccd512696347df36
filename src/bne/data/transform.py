"""From images to what a network sees when nothing is random: resize, centre crop, normalise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bne.data.crops import centre_crop
from bne.data.images import DataError, decode, to_rgb
from bne.data.resize import resize
from bne.models.inputs import Preprocessing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from PIL import Image
    from torch import Tensor


def normalise(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Brings colours to what the network was trained on, channel by channel.

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


@dataclass(frozen=True)
class EvalTransform:
    """How images are prepared for a trained network; kept with it and used for every prediction.

    Attributes:
        preprocessing: The size of the centre crop, and the normalisation.
        resize: Height and width images are resized to before that.
    """

    preprocessing: Preprocessing
    resize: int = 256

    def __post_init__(self) -> None:
        if self.resize < self.preprocessing.size:
            raise DataError(
                f"Images resized to {self.resize} pixels are too small for a crop of "
                f"{self.preprocessing.size}; choose resize >= {self.preprocessing.size}."
            )

    def __call__(self, images: Tensor) -> Tensor:
        """Crops and normalises a batch.

        Args:
            images: (B, 3, resize, resize) uint8, on any device.

        Returns:
            (B, 3, size, size) float32.
        """
        if images.dtype != torch.uint8 or images.shape[1:] != (3, self.resize, self.resize):
            raise DataError(
                f"Images of shape {tuple(images.shape)} and {images.dtype} were given where uint8 "
                f"of (B, 3, {self.resize}, {self.resize}) is expected; prepare them with "
                f"size={self.resize}."
            )
        cropped = centre_crop(images, self.preprocessing.size)
        return normalise(cropped, self.preprocessing)

    def image(self, image: Image.Image) -> Tensor:
        """(1, 3, size, size) from a PIL image of any size and mode, EXIF rotation applied."""
        return self(self._pixels(to_rgb(image, "image")))

    def file(self, path: Path | str) -> Tensor:
        """(1, 3, size, size) from an image file."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"{path}: the image cannot be read ({error.strerror}).") from error
        return self(self._pixels(decode(data, str(path))))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EvalTransform:
        """What `to_dict` gave."""
        try:
            inner = fields["preprocessing"]
            mean, std = ((r, g, b) for r, g, b in (map(float, inner[k]) for k in ("mean", "std")))
            return cls(Preprocessing(int(inner["size"]), mean, std), int(fields["resize"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"The stored image preprocessing is not valid ({error!r}); it needs resize and "
                "preprocessing with size, mean and std."
            ) from error

    def _pixels(self, image: Image.Image) -> Tensor:
        """(1, 3, resize, resize) uint8, the very pixels the cache holds."""
        data = bytearray(resize(image, self.resize).tobytes())
        pixels = torch.frombuffer(data, dtype=torch.uint8)
        return pixels.view(1, self.resize, self.resize, 3).permute(0, 3, 1, 2)
