"""Labeled images of several domains, and the one way an encoded image becomes pixels."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from bne.data import dicom
from bne.data.dicom import is_dicom
from bne.data.values import Values, Window
from bne.errors import BneError, DataError, SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    Picture = Image.Image | Values

Fit = Literal["squash", "letterbox"]
"""How an image becomes square: stretched, or whole between black borders."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
KINDS = "JPEG, PNG, WebP, BMP, TIFF, DICOM or .npy"
MAX_PIXELS = 64_000_000
ORIENTATION = 0x0112  # in EXIF
DEEP = "bne deep"  # under which an image of 16-bit color has its name
NUMPY = b"\x93NUMPY"
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
        part: What a published split makes of it: train, validation or apart; empty if there is
            none, see `bne.data.layouts`.
    """

    name: str
    label: int
    domain: int
    read: Callable[[], bytes]
    stamp: str
    group: str = ""
    part: str = ""


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

    @property
    def is_split(self) -> bool:
        """Whether images come with a published split."""
        return any(file.part for file in self.files)

    def select(self, indices: Iterable[int]) -> ImageSet:
        """The images at `indices`, in that order; `domains` and `classes` stay as they are."""
        return ImageSet(self.domains, self.classes, tuple(self.files[i] for i in indices))

    def without(self, domains: Collection[str]) -> ImageSet:
        """The images of all other domains; classes that only the named ones have are gone too."""
        if not domains:
            return self
        left_out = set(self.indices_of(domains))
        kept = [file for number, file in enumerate(self.files) if number not in left_out]
        labels = {old: new for new, old in enumerate(sorted({file.label for file in kept}))}
        others = [number for number, name in enumerate(self.domains) if name not in domains]
        places = {old: new for new, old in enumerate(others)}
        return ImageSet(
            tuple(self.domains[number] for number in others),
            tuple(self.classes[label] for label in labels),
            tuple(replace(f, label=labels[f.label], domain=places[f.domain]) for f in kept),
        )

    def indices_of(self, domains: Collection[str]) -> list[int]:
        """Where the images of the named domains stand in `files`, ascending."""
        unknown = sorted(set(domains) - set(self.domains))
        if unknown:
            nearest = did_you_mean(unknown[0], self.domains)
            raise SettingsError(f"There is no domain {unknown[0]!r} in the data; {nearest}.")
        wanted = {self.domains.index(domain) for domain in domains}
        return [i for i, file in enumerate(self.files) if file.domain in wanted]


@dataclass(frozen=True)
class Way:
    """How an encoded image becomes the pixels that are kept and shown to a network.

    Attributes:
        size: height and width.
        fit: how images become square, see `resize`.
        window: the values of images of more than 8 bits that become black and white; None takes
            their full range, or the window that a DICOM file names itself.
        channels: 3 for color, 1 for gray, or as many as arrays in `.npy` files have.
    """

    size: int = 256
    fit: Fit = "squash"
    window: Window | None = None
    channels: int = 3

    def __str__(self) -> str:
        """Names all that decides the pixels besides the encoded file.

        Two versions of the decoder may round differently, so they are part of the name.
        """
        import PIL
        from PIL import features

        jpeg = features.version_feature("libjpeg_turbo") or features.version_codec("jpg")
        way = "bilinear" if self.fit == "squash" else f"bilinear {self.fit}"
        kind = {1: "gray", 3: "RGB"}.get(self.channels, f"{self.channels} channels")
        window = f" of {self.window[0]!r} to {self.window[1]!r}" if self.window else ""
        return (
            f"{way} {self.size}x{self.size} {kind}{window}, pillow {PIL.__version__}, jpeg {jpeg}"
        )


def pixels(data: bytes, name: str, way: Way, most: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """(size, size, channels) from a whole encoded file; see `read`."""
    return resized(read(data, name, most), name, way)


def resized(image: Picture, name: str, way: Way) -> NDArray[np.uint8]:
    """(size, size, channels) from an image that was read.

    Raises:
        DataError: It has no pixels, another number of channels, or no known range.
    """
    import numpy as np
    from PIL import Image

    if not math.prod(image.array.shape if isinstance(image, Values) else image.size):
        raise DataError(f"{name}: the image has no pixels; give one that has.")
    planes = [as_rgb(image, way.window)] if way.channels == 3 else []
    if way.channels == 1:
        planes = [as_rgb(image, way.window).convert("L")]
    elif way.channels != 3:
        shape = image.array.shape[2:] if isinstance(image, Values) else ()
        if not isinstance(image, Values) or shape != (way.channels,):
            found = f"has {shape[0]} channels" if shape else "is gray or color"
            raise DataError(
                f"{name}: the image {found}, where channels is {way.channels}; save it as an "
                f".npy array of (height, width, {way.channels}), or change channels."
            )
        array = image.to_8_bits(way.window)
        planes = [Image.fromarray(array[..., place]) for place in range(way.channels)]
    made = [np.asarray(resize(plane, way.size, way.fit)) for plane in planes]
    return made[0] if made[0].ndim == 3 else np.stack(made, axis=-1)


def decode(data: bytes, name: str, window: Window | None = None) -> Image.Image:
    """Decodes an encoded image to the RGB a person would see, each channel 8 bits; see `read`."""
    return as_rgb(read(data, name), window)


def read(data: bytes, name: str, most: int = MAX_PIXELS) -> Picture:
    """Decodes an encoded image: to RGB, or to the values of one that has more than 8 bits.

    EXIF rotation is applied; transparent pixels are composited on white; gray, palette and CMYK
    become RGB; of several frames or pages the first is taken. Color profiles are not applied, as in
    the field's usual loaders. What Pillow makes of a file stands: it does not see the one
    transparent color of a PNG of 2 or 4 bits, or of 16-bit RGB, of which it keeps 8 bits.

    Args:
        data: A whole JPEG, PNG, WebP, BMP, TIFF, DICOM or `.npy` file; its content decides, not its
            extension.
        name: The image's name, for errors.
        most: Pixels, `MAX_PIXELS` or fewer.

    Raises:
        DataError: The image is damaged, of another format or a kind Pillow cannot read, or larger
            than `most`, which is checked before anything is decoded.
        MissingLibraryError: It is a DICOM file, and pydicom is not installed.
    """
    from PIL import Image, UnidentifiedImageError

    too_large = f"{name}: more than {most / 10**6:g} megapixels; make the image smaller."
    try:
        if is_dicom(data):
            return dicom.read(data, name, most)
        if data.startswith(NUMPY):
            return _array(data, name, most)
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > most:
                raise DataError(too_large)
            return of_pillow(image, name)
    except BneError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(too_large) from None
    except UnidentifiedImageError:
        raise DataError(
            f"{name}: the file is not a {KINDS} image, or a rare kind of one; save it anew or "
            "remove it."
        ) from None
    except Exception as error:  # damaged bytes make decoders raise almost anything
        raise DataError(
            f"{name}: the image is damaged or of a rare kind ({error}); replace or remove it."
        ) from error


def as_rgb(image: Picture, window: Window | None = None) -> Image.Image:
    """An image that was read, as RGB of 8 bits a channel."""
    from PIL import Image

    if not isinstance(image, Values):
        if window is not None and image.info.get(DEEP):
            raise DataError(
                f"{image.info[DEEP]}: 16-bit color, of which Pillow keeps 8 bits, so that range "
                "cannot be followed; save it as an .npy array of (height, width, 3)."
            )
        return image
    shape = image.array.shape
    if len(shape) == 3 and shape[2] != 3:
        raise DataError(
            f"{image.name}: the array has {shape[2]} channels; set channels to {shape[2]}."
        )
    return Image.fromarray(image.to_8_bits(window)).convert("RGB")


def of_pillow(image: Image.Image, name: str) -> Picture:
    """What `read` promises, from a PIL image of any mode."""
    import numpy as np
    from PIL import Image

    tags = getattr(image, "tag_v2", {})  # of a TIFF; gone once the image is turned
    raw_planes = (tags.get(PLANAR), tags.get(COMPRESSION, 1)) == (2, 1)
    if raw_planes and (set(tags.get(BITS_PER_SAMPLE, (1,))) != {8} or tags.get(PHOTOMETRIC) == 0):
        raise DataError(
            f"{name}: Pillow misreads this kind of TIFF, uncompressed with a plane for each "
            "channel; save it anew or remove it."
        )
    deep = any(";16" in str(tile) for tile in getattr(image, "tile", ()))  # gone once it is loaded
    picture = _upright(image)
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        full = (0.0, 4095.0 if tags.get(BITS_PER_SAMPLE) == (12,) else 65535.0)
        known = picture.mode.startswith("I;16")
        values = _finite(np.asarray(picture), name)
        return Values(
            values,
            name,
            full if known else None,
            inverted=tags.get(PHOTOMETRIC) == 0,
            transparent=image.info.get("transparency"),
        )
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(paper, picture).convert("RGB")
    shown = picture.convert("RGB")
    if deep:
        shown.info[DEEP] = name
    return shown


def resize(image: Image.Image, size: int, fit: Fit = "squash") -> Image.Image:
    """Resizes an RGB or gray image to `size` x `size`.

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
    square = Image.new(image.mode, (size, size))
    square.paste(
        image.resize((width, height), Resampling.BILINEAR),
        ((size - width) // 2, (size - height) // 2),
    )
    return square


def _array(data: bytes, name: str, most: int) -> Values:
    """An array of (H, W) or (H, W, N) in a `.npy` file; objects, which are pickled, are refused."""
    import numpy as np

    file = io.BytesIO(data)
    np.lib.format.read_magic(file)
    shape, _, kind = np.lib.format.read_array_header_1_0(file)
    if kind.kind not in "uif" or len(shape) not in (2, 3) or not math.prod(shape):
        raise DataError(
            f"{name}: the array has shape {shape} and type {kind}; it must hold numbers, as "
            "(height, width) or (height, width, channels)."
        )
    if math.prod(shape) * kind.itemsize != len(data) - file.tell():  # before memory is set aside
        raise DataError(f"{name}: the array is not as large as it says; save it again.")
    if shape[0] * shape[1] > most:
        raise DataError(f"{name}: more than {most / 10**6:g} megapixels; make it smaller.")
    array = np.load(io.BytesIO(data), allow_pickle=False)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    full = (0.0, 65535.0) if array.dtype == np.uint16 else None
    return Values(_finite(array, name), name, full)


def _finite(values: NDArray[Any], name: str) -> NDArray[Any]:
    import numpy as np

    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise DataError(f"{name}: some values are not finite; replace them.")
    return values


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
