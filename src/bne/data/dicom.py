"""DICOM files: the values that they mean, and the window that they ask for."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

from bne.data.values import Values
from bne.errors import BneError, DataError, require

if TYPE_CHECKING:
    from PIL import Image

HEAD = 132
"""Bytes of a file that tell whether it is DICOM."""


def is_dicom(head: bytes) -> bool:
    """Whether a file that begins so is DICOM, whatever its name."""
    return head[128:HEAD] == b"DICM"


def read(data: bytes, name: str, most_pixels: int) -> Image.Image | Values:
    """An image of a DICOM file: the values of a gray one, a color one as RGB.

    Gray values are those that the file means, after its rescale slope and intercept or its lookup
    table. `Values.windowed` has them under its first window. Low values of MONOCHROME1 are bright.

    Args:
        data: the whole file.
        name: the image's name, for errors.
        most_pixels: more are refused before they are decoded.

    Raises:
        DataError: There are no pixels, several frames or too many pixels, or they cannot be
            decoded.
        MissingLibraryError: pydicom is not installed.
    """
    pydicom, pixels = require("pydicom", "dicom"), require("pydicom.pixels", "dicom")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that no standard allows, and many files have
        try:
            file = pydicom.dcmread(io.BytesIO(data))
            _check(file, name, most_pixels)
            stored = pixels.pixel_array(file)  # YBR is RGB by now
            if file.SamplesPerPixel > 1 or file.PhotometricInterpretation == "PALETTE COLOR":
                return _color(file, stored)
            values = pixels.apply_modality_lut(stored, file)
            values = values.astype("int32") if values.dtype == "uint8" else values
            windowed, full = pixels.apply_voi_lut(values, file, index=0), _full_range(file)
        except BneError:
            raise
        except Exception as error:  # damaged files make it raise almost anything
            reason = " ".join(str(error).split())
            raise DataError(
                f"{name}: the DICOM file cannot be decoded ({reason}); mend or remove it."
            ) from error
    return Values(
        values,
        name,
        full,
        inverted=file.PhotometricInterpretation == "MONOCHROME1",
        windowed=None if windowed is values else windowed,
        clips=True,
    )


def _check(file: Any, name: str, most_pixels: int) -> None:
    if "PixelData" not in file:
        raise DataError(f"{name}: the DICOM file has no pixels; remove it.")
    frames = int(file.get("NumberOfFrames") or 1)
    if frames > 1:
        raise DataError(
            f"{name}: the DICOM file has {frames} frames, and one image is one frame; save each "
            "as a file."
        )
    if file.Rows * file.Columns > most_pixels:
        raise DataError(
            f"{name}: more than {most_pixels // 10**6} megapixels; make the image smaller."
        )


def _color(file: Any, pixels: Any) -> Image.Image:
    import numpy as np
    from PIL import Image

    bits = file.BitsStored
    if file.PhotometricInterpretation == "PALETTE COLOR":
        pixels = require("pydicom.pixels", "dicom").apply_color_lut(pixels, file)
        bits = pixels.dtype.itemsize * 8
    if bits > 8:
        pixels = np.rint(pixels * (255 / (2**bits - 1)))
    return Image.fromarray(pixels.astype(np.uint8)[..., :3]).convert("RGB")


def _full_range(file: Any) -> tuple[float, float]:
    """All values that the file could hold after its window, or without one."""
    table = file.get("VOILUTSequence") or file.get("ModalityLUTSequence")
    if table:
        return 0.0, float(2 ** int(table[0].LUTDescriptor[2]) - 1)
    low, high = 0.0, float(2**file.BitsStored - 1)
    if file.PixelRepresentation:
        low, high = low - 2 ** (file.BitsStored - 1), high - 2 ** (file.BitsStored - 1)
    slope, start = float(file.get("RescaleSlope", 1)), float(file.get("RescaleIntercept", 0))
    first, last = low * slope + start, high * slope + start
    if "WindowCenter" in file:  # a window goes from the first to the last, also downward
        return first, last
    return min(first, last), max(first, last)
