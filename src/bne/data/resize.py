"""The one resize every image goes through, for training, evaluation and prediction alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image


def resize(image: Image.Image, size: int) -> Image.Image:
    """Resizes an RGB image to `size` x `size`, whatever its aspect, as the paper does.

    Bilinear with antialiasing: what torchvision's `Resize` does to a PIL image by default, so the
    pixels are those of the field's usual pipelines.
    """
    from PIL.Image import Resampling

    return image.resize((size, size), Resampling.BILINEAR)


def resize_recipe(size: int) -> str:
    """Names all that decides the pixels of a resized image besides the encoded file.

    Two versions of the decoder may round differently, so they are part of the name.
    """
    import PIL
    from PIL import features

    jpeg = features.version_feature("libjpeg_turbo") or features.version_codec("jpg")
    return f"bilinear {size}x{size} RGB, pillow {PIL.__version__}, jpeg {jpeg}"
