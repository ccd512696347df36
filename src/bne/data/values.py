"""Images of more than 8 bits, and the range of values that becomes black to white.

A range belongs to a dataset, not to an image: all its images are shown alike, in training and ever
after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bne.errors import DataError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

Window = tuple[float, float]
"""The values that become black and white; what lies beyond is clipped."""

PERCENTILES = (0.5, 99.5)
SAMPLE_IMAGES = 1_000
SAMPLE_VALUES = 16_384  # per image
MOST_CLIPPED = 0.01  # by a window that somebody states
WORTH_A_NOTE = 0.02  # by a model's own: percentiles clip 1 % of the images they are from
NARROW = 1 / 16  # of the full range: 12 bits in a file of 16


@dataclass(frozen=True)
class Values:
    """An image's values as they were stored or measured, before they have a range.

    Attributes:
        array: (H, W) gray or (H, W, N), of any number type.
        name: the image's name, for errors.
        full: the full range; None if it is unknown.
        inverted: whether low values are bright.
        windowed: (H, W), the values under the window that the file itself names, in its full range.
        transparent: the value that is shown as white.
        clips: whether a window is meant to clip, as for DICOM.
    """

    array: NDArray[Any]
    name: str
    full: Window | None
    inverted: bool = False
    windowed: NDArray[Any] | None = None
    transparent: int | None = None
    clips: bool = False

    def to_8_bits(self, window: Window | None = None) -> NDArray[np.uint8]:
        """Scales a window, or the full range, to 0..255; 8-bit values stay as they are.

        Raises:
            DataError: The full range is wanted and unknown.
        """
        if self.array.dtype == np.uint8:
            return self.array
        values, span = self.array, window
        if span is None:
            if self.full is None:
                raise DataError(
                    f"{self.name}: signed, 32-bit or float values have no known range; set range "
                    "to [low, high] or percentiles, or save it with 8 or 16 bits."
                )
            values, span = self.array if self.windowed is None else self.windowed, self.full
        low, high = span
        # In double precision if values need it, so that 32-bit ones keep their differences.
        wide: Any = values.astype(np.float32 if values.dtype.itemsize <= 2 else np.float64)
        scaled = (wide - low) * (255 / (high - low))
        shown: NDArray[np.uint8] = np.rint(scaled.clip(0, 255)).astype(np.uint8)
        if self.inverted:
            shown = 255 - shown
        if self.transparent is not None:
            shown[self.array == self.transparent] = 255
        return shown


class Tally(NamedTuple):
    """What images of more than 8 bits lose under a range.

    Attributes:
        images: how many there are.
        narrow: those whose values use at most a sixteenth of the full range, where that is shown.
        values: of all of them, where a window is given.
        clipped: those outside of it.
    """

    images: int = 0
    narrow: int = 0
    values: int = 0
    clipped: int = 0

    @classmethod
    def of(cls, image: object, window: Window | None) -> Tally:
        """Of one image; what is meant to clip does not count."""
        if not isinstance(image, Values) or image.array.dtype == np.uint8:
            return cls()
        values = image.array
        if window is None:
            full, own = image.full, image.windowed is not None
            used = float(values.max()) - float(values.min())
            narrow = full is not None and not own and used <= NARROW * (full[1] - full[0] + 1)
            return cls(1, int(narrow))
        if image.clips:
            return cls(1)
        clipped = int(np.count_nonzero((values < window[0]) | (values > window[1])))
        return cls(1, 0, values.size, clipped)

    def __add__(self, other: Tally) -> Tally:  # type: ignore[override]
        return Tally(*map(sum, zip(self, other, strict=True)))

    def check(self, window: Window | None, each: Iterable[tuple[str, Tally]]) -> None:
        """Refuses a window that clips more than 1 % of the values.

        Args:
            window: the values that become black and white.
            each: names of the images, each with what it loses by itself; read if it is refused.

        Raises:
            DataError: It does; the message says the share, and an image that loses more than 1 %.
        """
        if window is None or not self._clips_too_much:
            return
        name, own = next((name, own) for name, own in each if own._clips_too_much)
        raise DataError(
            f"{self._clipping(window)}, more than {MOST_CLIPPED:.0%}, and of those of {name} "
            f"{own.clipped / own.values:.1%}; widen it, or set it to percentiles."
        )

    @property
    def _clips_too_much(self) -> bool:
        return self.clipped > MOST_CLIPPED * self.values

    def notes(self, window: Window | None) -> tuple[str, ...]:
        """What one should know of images under a window, or in their full range, in sentences."""
        if window is not None and self.clipped > WORTH_A_NOTE * self.values:
            return (f"{self._clipping(window)}.",)
        if 2 * self.narrow <= self.images:
            return ()
        return (
            f"{self.narrow} of {self.images} images with more than 8 bits use at most a sixteenth "
            "of their range and come out nearly black; train with range percentiles or [low, "
            "high].",
        )

    def _clipping(self, window: Window) -> str:
        low, high = window
        return f"range [{low:g}, {high:g}] clips {self.clipped / self.values:.1%} of the values"


def parse_range(asked: str | Sequence[float]) -> Window | None:
    """The window of a setting that names one; None for the full range.

    Raises:
        SettingsError: It is no range, or `percentiles`, which training images decide.
    """
    if asked == "full":
        return None
    if isinstance(asked, str) or len(asked) != 2 or not asked[0] < asked[1]:
        shown = asked if isinstance(asked, str) else list(asked)
        raise SettingsError(
            f"range is {shown!r}; it must be full, percentiles or [low, high], the lower value "
            "first."
        )
    return float(asked[0]), float(asked[1])


def percentile_window(images: Iterable[object]) -> Window:
    """The window between two percentiles of images, from evenly spaced values of each.

    Raises:
        DataError: None has more than 8 bits, or all values are the same.
    """
    parts = []
    for image in images:
        if isinstance(image, Values) and image.array.dtype != np.uint8:
            flat = image.array.reshape(-1)
            parts.append(flat[:: -(-flat.size // SAMPLE_VALUES)].astype(np.float64))
    if not parts:
        raise DataError(
            "range is percentiles, but no training image has more than 8 bits; leave it out."
        )
    low, high = map(float, np.percentile(np.concatenate(parts), PERCENTILES))
    if low == high:
        raise DataError(
            f"range is percentiles, but nearly all values of the training images are {low:g}; set "
            "it to [low, high]."
        )
    return low, high
