"""Images that are nearly the same: saved again, resized, or the next frame of a video.

A 64-bit difference hash of every image finds candidates, small gray copies confirm them. Hashes of
copies may differ in many bits: in flat or grainy areas neighbors are nearly as dark as each other,
and which is darker changes when an image is saved again. Copies that small lose the grain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from PIL import Image

MOST_BITS = 10  # by which hashes of nearly the same images differ
LEAST_CORRELATION = 0.98
SIDE = 16  # of the copies
BLOCK = 2**22  # hashes to compare at a time


class Sketch(NamedTuple):
    """What is kept of an image to compare it with all others.

    Attributes:
        hash: of 64 bits: whether each of 8 x 8 places is darker than the one to its right.
        copy: (256,) uint8, the image as 16 x 16 gray pixels.
    """

    hash: int
    copy: NDArray[np.uint8]


def sketch(image: Image.Image) -> Sketch:
    """The sketch of an RGB or gray image."""
    from PIL.Image import Resampling

    gray = image.convert("L")
    rows = np.asarray(gray.resize((9, 8), Resampling.BILINEAR)).astype(int)
    bits = np.packbits(rows[:, 1:] > rows[:, :-1])
    copy = np.asarray(gray.resize((SIDE, SIDE), Resampling.BILINEAR)).reshape(-1)
    return Sketch(int.from_bytes(bits.tobytes(), "big"), copy)


def alike(sketches: Sequence[Sketch]) -> list[list[int]]:
    """Groups of images that are nearly the same, ascending; those like no other are in none.

    Every hash is compared with every other, a nanosecond or two each: far less than reading the
    images, unless there are millions. Images of one color are like no other.
    """
    if not sketches:
        return []
    copies = np.stack([one.copy for one in sketches]).astype(np.float32)
    copies -= copies.mean(1, keepdims=True)
    norms = np.linalg.norm(copies, axis=1)
    telling = np.flatnonzero(norms > SIDE)  # a deviation of one gray level
    copies = copies[telling] / norms[telling, None]
    hashes = np.array([one.hash for one in sketches], np.uint64)[telling]
    groups = np.arange(len(telling))  # the first image like each, as far as known
    rows = max(1, BLOCK // max(1, len(telling)))
    for start in range(0, len(telling), rows):
        block = slice(start, start + rows)
        near = np.bitwise_count(hashes[block, None] ^ hashes[start:]) <= MOST_BITS
        others = np.flatnonzero(near.sum(0) > 0)
        likely = copies[block] @ copies[start + others].T >= LEAST_CORRELATION
        near = near[:, others] & likely
        for row in np.flatnonzero(near.sum(1) > 1):
            joined = groups[start + others[near[row]]]
            if joined.min() < joined.max():
                groups[np.isin(groups, joined)] = joined.min()
    firsts, sizes = np.unique(groups, return_counts=True)
    return [telling[groups == first].tolist() for first in firsts[sizes > 1]]
