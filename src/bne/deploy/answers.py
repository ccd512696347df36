"""What a model says of images, and how held-out source images make it readable.

This file needs NumPy alone: an exported model is used without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bne.deploy.reference import Reference
from bne.errors import SettingsError
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bne.deploy.manifest import Manifest

    Floats = NDArray[np.floating[Any]]


COLDEST, HOTTEST = 0.1, 10.0  # held-out images that are all classified correctly set no limit
STEPS = 60
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Calibration:
    """Temperature and usual distances of a model; without held-out images, nothing is changed.

    Attributes:
        images: number of held-out source images that it was measured on.
        temperature: divisor of the logits, for which these images' classes are most probable.
        loss: mean negative log-likelihood of their classes, at temperature 1.
        calibrated_loss: the same at `temperature`.
        percentiles: the 0th to the 100th percentile of their distance to the nearest domain; empty
            if the model measures no distances.
        reference: where these images lie among the domains, for `bne.deploy.monitor`; None if the
            model measures no distances.
    """

    images: int = 0
    temperature: float = 1.0
    loss: float | None = None
    calibrated_loss: float | None = None
    percentiles: tuple[float, ...] = field(default=(), repr=False)
    reference: Reference | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        logits: Floats,
        labels: NDArray[np.int64],
        distances: Floats | None,
        reference: Reference | None = None,
    ) -> Calibration:
        """Measures N held-out images.

        Args:
            logits: (N, classes).
            labels: (N,), the true classes.
            distances: (N, K), from each image to each domain, if the model measures any.
            reference: made of the same images.
        """
        if not len(labels):
            return cls()
        logits = logits.astype(np.float64)
        temperature = fit_temperature(logits, labels)
        usual: tuple[float, ...] = ()
        if distances is not None:
            nearest = distances.min(1).astype(np.float64)
            usual = tuple(np.percentile(nearest, np.arange(101)).tolist())
        before, after = (mean_loss(logits / t, labels) for t in (1.0, temperature))
        return cls(len(labels), temperature, before, after, usual, reference)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Calibration:
        """What `dataclasses.asdict` gave, also after JSON."""
        own = {**fields, "percentiles": tuple(fields["percentiles"])}
        if own.get("reference"):
            own["reference"] = Reference(**own["reference"])
        return cls(**own)

    def probabilities(self, logits: Floats) -> Floats:
        """(N, classes), from logits of that shape."""
        return np.exp(log_softmax(logits.astype(np.float64) / self.temperature))

    def unusual(self, distances: Floats) -> Floats | None:
        """(N,), how many of 100 held-out source images lie nearer to a domain; None if unknown.

        Args:
            distances: (N, K), from each image to each domain.
        """
        if not self.percentiles:
            return None
        found: Floats = np.interp(distances.min(1), self.percentiles, np.arange(101.0))
        return found


def check_abstain(abstain: float) -> None:
    """Refuses what is no probability."""
    if not 0 <= abstain <= 1:
        raise SettingsError(f"abstain {abstain}: name a probability from 0 to 1.")


def fit_temperature(logits: Floats, labels: NDArray[np.int64]) -> float:
    """The temperature of the smallest loss, between `COLDEST` and `HOTTEST`.

    The loss is convex in 1 / temperature, so that a golden-section search finds its one minimum.
    """
    low, high = np.log((COLDEST, HOTTEST))
    for _ in range(STEPS):
        span = GOLDEN * (high - low)
        left, right = high - span, low + span
        if mean_loss(logits / np.exp(left), labels) <= mean_loss(logits / np.exp(right), labels):
            high = right
        else:
            low = left
    return float(np.exp((low + high) / 2))


def mean_loss(logits: Floats, labels: NDArray[np.int64]) -> float:
    """Mean negative log-likelihood of the true classes."""
    return -float(log_softmax(logits)[np.arange(len(labels)), labels].mean())


def log_softmax(logits: Floats) -> Floats:
    """(N, classes), the logarithms of probabilities."""
    shifted = logits - logits.max(1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found


class Seen(NamedTuple):
    """What a network gives for N images.

    Attributes:
        logits: (N, classes).
        weights: (N, K), of the branches; None for methods that have none.
        distances: (N, K), from each image to each domain; None if they are not measured.
        vectors: (N, P), where images lie by the model's `Reference`; None without.
    """

    logits: Floats
    weights: Floats | None = None
    distances: Floats | None = None
    vectors: Floats | None = None

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
        one_domain: whether pooled statistics took the place of each image's own.
        files: what each image is called, as in the column `file` of `bne predict`; None for images
            that were given themselves.
    """

    model: Manifest
    seen: Seen
    abstain: float = 0.0
    one_domain: bool = False
    files: tuple[str | None, ...] = ()

    def __len__(self) -> int:
        return len(self.seen.logits)

    def __repr__(self) -> str:
        """The first classes and their probabilities, for interactive use."""
        best = zip(self.classes, self.probabilities.max(1), strict=True)
        return f"{type(self).__name__}({listed(f'{name} {chance:.2f}' for name, chance in best)})"

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
        weights, distances = self.seen.weights, self.seen.distances
        if weights is None:
            return None
        order = weights if distances is None else -distances
        return tuple(self.model.branches[k] for k in order.argmax(1))

    @cached_property
    def unusual(self) -> Floats | None:
        """(N,), percentiles: how many of 100 held-out source images lie nearer to a domain.

        None if it is unknown, also of images taken as one domain: pooled statistics lie nearer to
        the domains than those of single images.
        """
        distances = self.seen.distances
        if distances is None or self.one_domain:
            return None
        return self.model.calibration.unusual(distances)

    def top(self, count: int) -> list[list[tuple[str, float]]]:
        """The most probable classes of each image with their probabilities, the best first."""
        order = np.argsort(-self.seen.logits, axis=1, kind="stable")[:, :count]
        names, chances = self.model.classes, self.probabilities
        return [[(names[k], float(chances[row, k])) for k in own] for row, own in enumerate(order)]
