"""Probabilities and distances of a model, read by what held-out source images gave.

This file needs NumPy alone: an exported model is used without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

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
    """

    images: int = 0
    temperature: float = 1.0
    loss: float | None = None
    calibrated_loss: float | None = None
    percentiles: tuple[float, ...] = ()

    @classmethod
    def of(cls, logits: Floats, labels: NDArray[np.int64], distances: Floats | None) -> Calibration:
        """Measures N held-out images.

        Args:
            logits: (N, classes).
            labels: (N,), the true classes.
            distances: (N, K), from each image to each domain, if the model measures any.
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
        return cls(len(labels), temperature, before, after, usual)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Calibration:
        """What `dataclasses.asdict` gave, also after JSON."""
        return cls(**{**fields, "percentiles": tuple(fields["percentiles"])})

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
