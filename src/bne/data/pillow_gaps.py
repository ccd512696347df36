"""What Pillow leaves undone between a file and the picture a person would see."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from PIL import Image

ORIENTATION = 0x0112
BITS_PER_SAMPLE, PHOTOMETRIC, PLANAR = 258, 262, 284
WHITE_IS_ZERO, PLANES_APART = 0, 2


def upright(image: Image.Image) -> Image.Image:
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


def scale_transparent_value(image: Image.Image) -> None:
    """Brings the transparent colour of a PNG that is not loaded yet to the scale of its pixels.

    Pillow stretches 2 and 4 bits to 8 and cuts 16 to 8, but keeps the colour as the file has it.
    """
    colour, tiles = image.info.get("transparency"), getattr(image, "tile", None)
    if image.format != "PNG" or colour is None or not tiles:
        return
    *_, raw_mode = tiles[0]
    if raw_mode in ("L;2", "L;4"):
        image.info["transparency"] = colour * (85 if raw_mode == "L;2" else 17)
    elif raw_mode == "RGB;16B":
        image.info["transparency"] = tuple(channel >> 8 for channel in colour)


def mend_planes(image: Image.Image) -> None:
    """Tells a TIFF with a plane for each channel, not loaded yet, how its planes are to be read.

    Where they are not compressed, Pillow takes all for 8 bits with zero black.
    """
    tags: Any = getattr(image, "tag_v2", {})
    tiles = getattr(image, "tile", [])
    if tags.get(PLANAR) != PLANES_APART or not tiles or tiles[0].codec_name != "raw":
        return
    bits, *_ = tags.get(BITS_PER_SAMPLE, (1,))
    detail = str(bits) if bits in (2, 4, 12, 16) else ""
    if bits == 16:
        little_endian = "" if image.mode == "I;16" else "L"
        detail += "B" if tags.prefix == b"MM" else little_endian
    elif bits != 12 and tags.get(PHOTOMETRIC) == WHITE_IS_ZERO:
        detail += "I"
    if detail:
        tiles[:] = [t._replace(args=(f"{t.args[0]};{detail}", *t.args[1:])) for t in tiles]


def grey_range(image: Image.Image) -> tuple[int, int]:
    """The values that mean black and white in an image of mode `I;16`, by the tags of a TIFF."""
    tags = getattr(image, "tag_v2", {})
    white = 4095 if tags.get(BITS_PER_SAMPLE) == (12,) else 65535
    return (white, 0) if tags.get(PHOTOMETRIC) == WHITE_IS_ZERO else (0, white)


def grey_from_16_bits(image: Image.Image, black: int, white: int) -> Image.Image:
    """Scales black..white to 0..255 and shows transparent pixels on white.

    Pillow's own conversion to 8 bits clips at 255.
    """
    import numpy as np
    from PIL import Image

    values = np.asarray(image)
    grey = np.rint((values.astype(np.float32) - black) * (255 / (white - black)))
    grey[values == image.info.get("transparency", -1)] = 255
    return Image.fromarray(grey.astype(np.uint8))
