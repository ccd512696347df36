"""Labeled images of several domains, and the one way an encoded image becomes RGB pixels."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bne.errors import DataError, SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from PIL import Image

Fit = Literal["squash", "letterbox"]
"""How an image becomes square: stretched, or whole between black borders."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
MAX_PIXELS = 64_000_000
ORIENTATION = 0x0112  # in EXIF
BITS_PER_SAMPLE, COMPRESSION, PHOTOMETRIC, PLANAR = 258, 259, 262, 284  # in TIFF


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One labeled image, wherever it lies.

    Attributes:
        name: Unique and readable, `domain/class/file`.
        label: Index into `ImageSet.classes`.
        domain: Index into `ImageSet.domains`.
        read: Returns the encoded bytes, or raises `DataError`; safe from any thread.
        stamp: Cheap to get, and different when the image may have changed.
        group: What it must not be parted from in a split: a patient, a video; empty if unknown.
    """

    name: str
    label: int
    domain: int
    read: Callable[[], bytes]
    stamp: str
    group: str = ""


@dataclass(frozen=True)
class ImageSet:
    """The images of several domains that share one list of classes, in a fixed order."""

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    files: tuple[ImageFile, ...]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def labels(self) -> list[int]:
        """The class of every image, an index into `classes`."""
        return [file.label for file in self.files]

    @property
    def domain_ids(self) -> list[int]:
        """The domain of every image, an index into `domains`."""
        return [file.domain for file in self.files]

    def select(self, indices: Iterable[int]) -> ImageSet:
        """The images at `indices`, in that order; `domains` and `classes` stay as they are."""
        return ImageSet(self.domains, self.classes, tuple(self.files[i] for i in indices))

    def indices_of(self, domains: Collection[str]) -> list[int]:
        """Where the images of the named domains stand in `files`, ascending."""
        unknown = sorted(set(domains) - set(self.domains))
        if unknown:
            nearest = did_you_mean(unknown[0], self.domains)
            raise SettingsError(f"There is no domain {unknown[0]!r} in the data; {nearest}.")
        wanted = {self.domains.index(domain) for domain in domains}
        return [i for i, file in enumerate(self.files) if file.domain in wanted]


def decode(data: bytes, name: str, most: int = MAX_PIXELS) -> Image.Image:
    """Decodes an encoded image to the RGB a person would see, each channel 8 bits.

    EXIF rotation is applied; transparent pixels are composited on white; gray, palette and CMYK
    become RGB; 12 and 16 bits are scaled to 8; of several frames or pages the first is taken.
    Color profiles are not applied, as in the field's usual loaders. What Pillow makes of a file
    stands: it does not see the one transparent color of a PNG of 2 or 4 bits, or of 16-bit RGB.

    Args:
        data: A whole JPEG, PNG, WebP, BMP or TIFF file; its content decides, not its extension.
        name: The image's name, for errors.
        most: Pixels, `MAX_PIXELS` or fewer.

    Raises:
        DataError: The image is damaged, of another format or a kind Pillow cannot read, of unknown
            range (signed or 32-bit pixels) or larger than `most`, which is checked before anything
            is decoded.
    """
    from PIL import Image, UnidentifiedImageError

    too_large = f"{name}: more than {most / 10**6:g} megapixels; make the image smaller."
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > most:
                raise DataError(too_large)
            return to_rgb(image, name)
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(too_large) from None
    except UnidentifiedImageError:
        raise DataError(
            f"{name}: the file is not a JPEG, PNG, WebP, BMP or TIFF image, or a rare kind of one; "
            "save it anew or remove it."
        ) from None
    except Exception as error:  # damaged bytes make decoders raise almost anything
        raise DataError(
            f"{name}: the image is damaged or of a rare kind ({error}); replace or remove it."
        ) from error


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    """Converts a PIL image of any mode to RGB as `decode` promises."""
    from PIL import Image

    tags = getattr(image, "tag_v2", {})  # of a TIFF; gone once the image is turned
    if image.mode in ("I", "F"):
        raise DataError(
            f"{name}: signed or 32-bit pixels have no known range; save it with 8 or 16 bits."
        )
    raw_planes = (tags.get(PLANAR), tags.get(COMPRESSION, 1)) == (2, 1)
    if raw_planes and (set(tags.get(BITS_PER_SAMPLE, (1,))) != {8} or tags.get(PHOTOMETRIC) == 0):
        raise DataError(
            f"{name}: Pillow misreads this kind of TIFF, uncompressed with a plane for each "
            "channel; save it anew or remove it."
        )
    picture = _upright(image)
    if picture.mode.startswith("I;16"):
        white = 4095 if tags.get(BITS_PER_SAMPLE) == (12,) else 65535
        black, white = (white, 0) if tags.get(PHOTOMETRIC) == 0 else (0, white)
        return _grey_from_16_bits(picture, black, white).convert("RGB")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(paper, picture).convert("RGB")
    return picture.convert("RGB")


def resize(image: Image.Image, size: int, fit: Fit = "squash") -> Image.Image:
    """Resizes an RGB image to `size` x `size`.

    Bilinear with antialiasing: what torchvision's `Resize` does to a PIL image by default, so the
    pixels are those of the field's usual pipelines.

    Args:
        image: of any size.
        size: height and width of the result.
        fit: "squash" stretches it, whatever its aspect, as the paper does; "letterbox" keeps its
            aspect, in the center between black borders.
    """
    from PIL import Image
    from PIL.Image import Resampling

    if fit == "squash":
        return image.resize((size, size), Resampling.BILINEAR)
    longest = max(image.size)
    width, height = (max(1, round(side * size / longest)) for side in image.size)
    square = Image.new("RGB", (size, size))
    square.paste(
        image.resize((width, height), Resampling.BILINEAR),
        ((size - width) // 2, (size - height) // 2),
    )
    return square


def resize_recipe(size: int, fit: Fit = "squash") -> str:
    """Names all that decides the pixels of a resized image besides the encoded file.

    Two versions of the decoder may round differently, so they are part of the name.
    """
    import PIL
    from PIL import features

    jpeg = features.version_feature("libjpeg_turbo") or features.version_codec("jpg")
    way = "bilinear" if fit == "squash" else f"bilinear {fit}"
    return f"{way} {size}x{size} RGB, pillow {PIL.__version__}, jpeg {jpeg}"


def _upright(image: Image.Image) -> Image.Image:
    """Turns an image as its EXIF block says; one without a legible block stays as it is.

    `ImageOps.exif_transpose` also writes the block anew, and fails where it cannot.
    """
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    image.load()  # a TIFF is turned here, and then says so; and damaged pixels must not pass below
    try:
        turn = turns.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged bytes make it raise almost anything
        return image
    return image if turn is None else image.transpose(turn)


def _grey_from_16_bits(image: Image.Image, black: int, white: int) -> Image.Image:
    """Scales black..white to 0..255 and shows transparent pixels on white.

    Pillow's own conversion to 8 bits clips at 255.
    """
    import numpy as np
    from PIL import Image

    values = np.asarray(image)
    grey = np.rint((values.astype(np.float32) - black) * (255 / (white - black)))
    grey[values == image.info.get("transparency", -1)] = 255
    return Image.fromarray(grey.astype(np.uint8))
