"""Images that are nearly the same: saved again, resized, or the next frame of a video.

A 64-bit difference hash of every image finds candidates, small gray copies confirm them.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from PIL import Image

MOST_BITS = 2  # by which hashes of nearly the same images differ
BANDS, BITS = 4, 16
LEAST_CORRELATION = 0.98
SIDE = 16  # of the copies
MANY = 1_000


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

    Hashes that differ in two bits agree in two of four bands at least, so that only images that
    agree in two bands are compared, and at most `MANY` of them with each other: the cost does not
    grow with the square of their number. Images of one color are like no other.
    """
    if not sketches:
        return []
    copies = np.stack([one.copy for one in sketches]).astype(np.float32)
    copies -= copies.mean(1, keepdims=True)
    norms = np.linalg.norm(copies, axis=1)
    telling = np.flatnonzero(norms > SIDE)  # a deviation of one gray level
    copies[telling] /= norms[telling, None]
    hashes = np.array([one.hash for one in sketches], np.uint64)
    parents = list(range(len(sketches)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    for bucket in _buckets(hashes, telling):
        near = np.bitwise_count(hashes[bucket, None] ^ hashes[bucket]) <= MOST_BITS
        near &= copies[bucket] @ copies[bucket].T >= LEAST_CORRELATION
        for place, first in zip(bucket.tolist(), bucket[_connected(near)].tolist(), strict=True):
            parents[root(place)] = root(first)
    groups = defaultdict(list)
    for place in telling.tolist():
        groups[root(place)].append(place)
    return sorted(sorted(group) for group in groups.values() if len(group) > 1)


def _buckets(hashes: NDArray[np.uint64], among: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Places, two to `MANY` at a time, of hashes that agree in two bands; like hashes together."""
    bands = [(hashes >> np.uint64(BITS * band)) & np.uint64(2**BITS - 1) for band in range(BANDS)]
    for one, other in combinations(bands, BANDS - MOST_BITS):
        keys = (one << np.uint64(BITS)) | other
        order = among[np.lexsort((hashes[among], keys[among]))]
        ends = np.append(np.flatnonzero(np.diff(keys[order])) + 1, len(order))
        sizes = np.diff(ends, prepend=0)
        for end, size in zip(ends[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
            for start in range(end - size, end, MANY):
                yield order[start : min(start + MANY, end)]


def _connected(near: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The first member of everyone's group, (N,), where `near`, (N, N), tells who is like whom."""
    np.fill_diagonal(near, True)
    found = np.arange(len(near))
    while True:
        lowest: NDArray[np.intp] = np.where(near, found, len(near)).min(1)
        if (lowest == found).all():
            return lowest
        found = lowest
