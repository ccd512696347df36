"""What a model says of images, as arrays; this file needs NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bne.deploy.manifest import Manifest

    Floats = NDArray[np.floating[Any]]


class Seen(NamedTuple):
    """What a network gives for N images.

    Attributes:
        logits: (N, classes).
        weights: (N, K), of the branches; None for methods that have none.
        distances: (N, K), from each image to each domain; None if they are not measured.
    """

    logits: Floats
    weights: Floats | None = None
    distances: Floats | None = None

    @classmethod
    def cat(cls, parts: Sequence[Seen]) -> Seen:
        """Several groups of images, joined."""
        columns = zip(*parts, strict=True)
        return cls(*(None if c[0] is None else np.concatenate(c) for c in columns))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Answers:
    """What a classifier says of N images.

    Attributes:
        model: what is known of the classifier.
        seen: what its network gave.
        abstain: probability below which an image is left open.
    """

    model: Manifest
    seen: Seen
    abstain: float = 0.0

    def __len__(self) -> int:
        return len(self.seen.logits)

    @cached_property
    def probabilities(self) -> Floats:
        """(N, classes), calibrated on held-out source images."""
        return self.model.calibration.probabilities(self.seen.logits)

    @cached_property
    def classes(self) -> tuple[str | None, ...]:
        """The name of each image's most probable class; None for images left open."""
        best = self.seen.logits.argmax(1)
        sure = self.probabilities.max(1) >= self.abstain
        names = self.model.classes
        return tuple(names[k] if own else None for k, own in zip(best, sure, strict=True))

    @property
    def weights(self) -> Floats | None:
        """(N, K), how much the branch of each domain counted; None for methods without branches."""
        return self.seen.weights

    @property
    def distances(self) -> Floats | None:
        """(N, K), from each image to each domain; None if they are not measured."""
        return self.seen.distances

    @cached_property
    def nearest_domains(self) -> tuple[str, ...] | None:
        """The name of each image's nearest domain, or of that with the largest weight."""
        _, weights, distances = self.seen
        if weights is None:
            return None
        order = weights if distances is None else -distances
        return tuple(self.model.branches[k] for k in order.argmax(1))

    @cached_property
    def unusual(self) -> Floats | None:
        """(N,), percentiles: how many of 100 held-out source images lie nearer to a domain."""
        distances = self.seen.distances
        return None if distances is None else self.model.calibration.unusual(distances)

    def top(self, count: int) -> list[list[tuple[str, float]]]:
        """The most probable classes of each image with their probabilities, the best first."""
        order = np.argsort(-self.seen.logits, axis=1, kind="stable")[:, :count]
        names, chances = self.model.classes, self.probabilities
        return [[(names[k], float(chances[row, k])) for k in own] for row, own in enumerate(order)]
