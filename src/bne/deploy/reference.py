"""Where held-out images lie in the space of domains, kept for new ones to compare with.

Distances to the domains alone would not do: images of a new domain may lie as far from each known
one as its own images do, but in another direction. So a point is told by where it lies along the
principal axes, and by how far it lies from the mean of all in every direction: a new domain may
leave the space that the axes span. This file needs NumPy alone.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Rows = Sequence[Sequence[float]]

MOST, IN_ALL = 300, 3000  # images of each domain, and of all
DIGITS = 4  # decimals
AXES, PER_AXIS = 30, 8  # principal axes, and images that each needs
DEAD = 1e-4  # spread of a channel below which it tells nothing, and rounding much
AT_ONCE = 256  # images
LEAST = 1e-3  # share of a channel's variance that is left without an image


@dataclass(frozen=True)
class Reference:
    """Images of known domains, each in P numbers.

    Attributes:
        axes: (P, D), the directions in which points of images differ most, each channel to its own
            scale; float16, in base64.
        origin: (P,), where the images' mean lies along them.
        vectors: (n, P + 1) by domain, where its images lie along them, and the logarithm of their
            distance from the mean, each channel to its own scale, as if the image were a new one;
            (n, P) without `channels`.
        usual: by domain that images are weighed by, the mean logarithm of the distance of those
            images that lie nearest to it.
        channels: (2, D), the channels' means and what they are multiplied by, 0 for those that
            tell nothing; float32, in base64. None in files from before it was kept.
    """

    axes: str
    origin: Sequence[float]
    vectors: Mapping[str, Rows]
    usual: Mapping[str, float]
    channels: str | None = None

    @classmethod
    def of(cls, points: Mapping[str, Floats], usual: Mapping[str, float]) -> Reference:
        """Keeps held-out images.

        Args:
            points: (n, D) by domain, see `bne.deploy.engine.Engine`.
            usual: as the attribute.
        """
        every = np.concatenate([*points.values()])
        mean = every.mean(0, dtype=np.float64)
        apart = every - mean.astype(every.dtype)
        squares = np.einsum("nd,nd->d", apart, apart, dtype=np.float64)
        scale = np.sqrt(squares / len(every))
        times = np.where(scale > DEAD, 1 / np.maximum(scale, DEAD), 0)
        apart *= times.astype(every.dtype)
        count = int(np.clip(len(every) // PER_AXIS, 1, AXES))
        # Of far more channels than images, by the images' inner products.
        values, sides = np.linalg.eigh((apart @ apart.T).astype(np.float64))
        largest = np.argsort(values)[::-1][:count]
        length = np.sqrt(np.maximum(values[largest], DEAD))
        axes = ((sides[:, largest] / length).T.astype(every.dtype) @ apart * times).astype("<f2")
        origin = (axes.astype(np.float64) @ mean).round(DIGITS).tolist()
        found = cls(_text(axes), origin, {}, usual, _text(np.stack([mean, times]).astype("<f4")))
        some_at_once = np.array_split(every, -(-len(every) // AT_ONCE))
        own = np.concatenate([found.place(part) for part in some_at_once])
        own[:, -1] = logarithms(_left_out(apart))
        parts = np.split(own.round(DIGITS), np.cumsum([*map(len, points.values())])[:-1])
        return replace(found, vectors={k: o.tolist() for k, o in zip(points, parts, strict=True)})

    @property
    def numbers(self) -> int:
        """How many a vector has."""
        return len(self.origin) + (self.channels is not None)

    def place(self, points: Floats) -> Floats:
        """(N, `numbers`), the vectors of images, by their points, (N, D)."""
        points = points.astype(np.float64)
        axes = _rows(self.axes, "<f2", len(self.origin))
        found: Floats = points @ axes.T - np.asarray(self.origin)
        if self.channels is None:
            return found
        mean, times = _rows(self.channels, "<f4", 2)
        far = np.linalg.norm((points - mean) * times, axis=1)
        return np.column_stack([found, logarithms(far)])

    def including(self, name: str, vectors: Floats, distances: Floats) -> Reference:
        """The same with images of one more domain.

        Args:
            name: of the domain.
            vectors: as `place` gives them.
            distances: (N,), of its images to itself.
        """
        own = {name: float(logarithms(distances).mean())}
        vectors = vectors[some(len(vectors), MOST)]
        kept = {**self.vectors, name: vectors.round(DIGITS).tolist()}
        return replace(self, vectors=kept, usual={**self.usual, **own})

    def without(self, name: str) -> Reference:
        """The same without a domain."""
        vectors = {key: own for key, own in self.vectors.items() if key != name}
        usual = {key: own for key, own in self.usual.items() if key != name}
        return replace(self, vectors=vectors, usual=usual)


def _left_out(apart: Floats) -> Floats:
    """(N,), how far points lie from a mean and in a scale that were learned without them.

    Of far more channels than images, the images' own mean and scale suit them too well: new images
    of the same domain would all seem to lie farther away.

    Args:
        apart: (N, D), from the mean of all, each channel to its own scale, or 0.
    """
    images = len(apart)
    if images == 1:
        return np.zeros(1)
    share = images / (images - 1)
    found: Floats = np.empty(images)
    for number, row in enumerate(apart):  # all at once would take much memory
        squares = share * row**2
        rest = np.maximum((images - squares) / (images - 1), LEAST)
        found[number] = np.sqrt(share * (squares / rest).sum())
    return found


def _text(numbers: Floats) -> str:
    return base64.b64encode(numbers.tobytes()).decode()


def _rows(text: str, kind: str, count: int) -> Floats:
    return np.frombuffer(base64.b64decode(text), kind).reshape(count, -1).astype(np.float64)


def logarithms(distances: Floats) -> Floats:
    """Of distances, finite at 0 too."""
    smallest = np.finfo(np.float32).tiny
    found: Floats = np.log(np.maximum(distances.astype(np.float64), smallest))
    return found


def usual_distances(distances: Floats, names: Sequence[str]) -> dict[str, float]:
    """The mean logarithm of the distances, (N, K), of images that lie nearest to each domain."""
    nearest, values = distances.argmin(1), logarithms(distances)
    return {
        name: float(values[nearest == k, k].mean())
        for k, name in enumerate(names)
        if (nearest == k).any()
    }


def some(count: int, most: int) -> NDArray[np.int64]:
    """At most so many of the numbers below a count, evenly spread."""
    found: NDArray[np.int64] = np.linspace(0, count - 1, min(most, count)).round().astype(np.int64)
    return found
