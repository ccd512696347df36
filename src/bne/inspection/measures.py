"""Measures of probabilities beside accuracy, per domain, with bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bne.errors import SettingsError
from bne.inspection.evaluate import COVERAGE
from bne.inspection.numbers import BINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DRAWS = 1000
AT_ONCE = 100_000  # numbers in a table of draws and images, so that they stay in the cache
UNBALANCED = 3  # times as many images in the largest class as in the smallest

ACCURACY, BALANCED, ERROR = "accuracy", "balanced_accuracy", "calibration_error"
NAMES = (ACCURACY, BALANCED, "macro_f1", "auroc", "average_precision", "sensitivity", ERROR)


@dataclass(frozen=True)
class Measure:
    """One measure of some images, in percent.

    Attributes:
        value: of the images as they are.
        low: lower end of the 95 % bootstrap interval, of images drawn with replacement.
        high: upper end of it.
    """

    value: float
    low: float
    high: float


Measured = dict[str, Measure | None]
"""By name, see `NAMES`; None where a measure is not defined, as AUROC with one class only."""


@dataclass(frozen=True)
class Measures:
    """What `measure_domains` gives.

    Attributes:
        domains: measures per domain.
        unbalanced: domains whose largest class has more than three times as many images as the
            smallest one that it has.
    """

    domains: Mapping[str, Measured]
    unbalanced: tuple[str, ...]

    @property
    def leading(self) -> str:
        """The measure to go by: balanced accuracy if a domain is unbalanced, else accuracy."""
        return BALANCED if self.unbalanced else ACCURACY

    @property
    def worst(self) -> dict[str, str]:
        """The name of the domain that is worst by each measure, of those where it is defined."""
        found = {}
        for name in NAMES:
            values = {d: own[name] for d, own in self.domains.items()}
            known = {d: measure.value for d, measure in values.items() if measure is not None}
            if known:
                found[name] = (max if name == ERROR else min)(known, key=known.__getitem__)
        return found


def measure_domains(
    truth: Mapping[str, NDArray[np.int64]],
    probabilities: Mapping[str, Floats],
    *,
    specificity: float = 0.9,
    positive: int | None = None,
) -> Measures:
    """Measures several domains; the arguments are those of `measure`, by domain."""
    if truth.keys() != probabilities.keys():
        raise SettingsError("truth and probabilities must be of the same domains.")
    how: dict[str, Any] = {"specificity": specificity, "positive": positive}
    measured = {name: measure(truth[name], probabilities[name], **how) for name in truth}
    return Measures(measured, tuple(name for name in truth if unbalanced(truth[name])))


def unbalanced(truth: NDArray[np.int64]) -> bool:
    """Whether the largest class has more than three times as many images as the smallest."""
    counts = np.unique(truth, return_counts=True)[1]
    return bool(counts.max() > UNBALANCED * counts.min())


def measure(
    truth: NDArray[np.int64],
    probabilities: Floats,
    *,
    specificity: float = 0.9,
    positive: int | None = None,
    seed: int = 0,
) -> Measured:
    """Measures what a model says of N images; as scikit-learn does, but for all draws at once.

    `accuracy`; `balanced_accuracy`, the mean recall of the classes that the images have;
    `macro_f1`; `auroc`, `average_precision` and `sensitivity` at a specificity, which are means
    over the classes, each against the rest, or of one class; `calibration_error`, the expected one
    of 15 bins of confidence.

    Args:
        truth: (N,), true classes.
        probabilities: (N, classes).
        specificity: share of the negative images that may not be called positive, 0 to 1.
        positive: the one class that ranking measures are of; None takes the mean over all.
        seed: of the draws.

    Raises:
        SettingsError: There are no images, shapes differ, a class or the specificity is none, or a
            probability is not finite.
    """
    truth, probabilities = np.asarray(truth), np.asarray(probabilities, np.float64)
    _check(truth, probabilities, specificity, positive)
    chosen = range(probabilities.shape[1]) if positive is None else [positive]
    parts = [
        _measured(weights, truth, probabilities, chosen, specificity)
        for weights in _draws(len(truth), seed)
    ]
    found: Measured = {}
    for name, values in zip(NAMES, 100 * np.concatenate(parts, 1), strict=True):
        first, draws = values[0], values[1:]
        found[name] = None
        if not np.isnan(first):
            tail = 50 * (1 - COVERAGE)
            known = draws[~np.isnan(draws)]
            low, high = np.percentile(known if len(known) else first, (tail, 100 - tail))
            found[name] = Measure(float(first), float(low), float(high))
    return found


def _check(
    truth: NDArray[np.int64], probabilities: Floats, specificity: float, positive: int | None
) -> None:
    if truth.ndim != 1 or probabilities.ndim != 2 or len(truth) != len(probabilities):
        raise SettingsError(
            f"truth of shape {truth.shape} and probabilities of shape {probabilities.shape} were "
            "given; they must be (N,) and (N, classes)."
        )
    if not len(truth):
        raise SettingsError("There are no images to measure; give at least one.")
    if not np.isfinite(probabilities).all():
        raise SettingsError("A probability is not finite; look for what made it so.")
    classes = probabilities.shape[1]
    for label in (int(truth.min()), int(truth.max()), 0 if positive is None else positive):
        if not 0 <= label < classes:
            raise SettingsError(f"Class {label} is none of the {classes}, which count from 0.")
    if not 0 <= specificity <= 1:
        raise SettingsError(f"specificity is {specificity}; it must be 0 to 1.")


def _draws(count: int, seed: int) -> Iterator[Floats]:
    """(D, N) at a time, how often each image is in each draw; the first has each once."""
    generator = np.random.default_rng(seed)
    yield np.ones((1, count))
    at_once = max(1, AT_ONCE // count)
    for start in range(0, DRAWS, at_once):
        draws = min(at_once, DRAWS - start)
        places = generator.integers(0, count, (draws, count))
        places += count * np.arange(draws)[:, None]
        drawn = np.bincount(places.ravel(), minlength=draws * count)
        yield drawn.reshape(draws, count).astype(np.float64)


def _measured(
    weights: Floats,
    truth: NDArray[np.int64],
    probabilities: Floats,
    chosen: Sequence[int],
    specificity: float,
) -> Floats:
    """(measures, D), in the order of `NAMES`, of D draws; NaN where one is not defined."""
    count, classes = probabilities.shape
    answers, confidence = probabilities.argmax(1), probabilities.max(1)
    right = answers == truth
    labels = np.eye(classes)
    of_truth, of_answers = weights @ labels[truth], weights @ labels[answers]
    hits = weights @ (labels[truth] * right[:, None])
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = weights @ (np.eye(BINS)[bins] * (confidence - right)[:, None])
    ranked = [_ranked(weights, truth == k, probabilities[:, k], specificity) for k in chosen]
    return np.stack(
        [
            weights @ right / count,
            _mean(_ratio(hits, of_truth), 1),
            _mean(_ratio(2 * hits, of_truth + of_answers), 1),
            *_mean(np.stack(ranked), 0),
            np.abs(gaps).sum(1) / count,
        ]
    )


def _ranked(
    weights: Floats, positive: NDArray[np.bool_], scores: Floats, specificity: float
) -> Floats:
    """(3, D): area under the ROC curve, average precision, sensitivity at a specificity."""
    order = np.argsort(-scores, kind="stable")
    # A threshold lies after the last of equal scores.
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    drawn, positive = weights[:, order], positive[order]
    hits, false = (np.cumsum(drawn * own, 1)[:, ends] for own in (positive, ~positive))
    recall, fallout = _ratio(hits, hits[:, -1:]), _ratio(false, false[:, -1:])
    steps = np.diff(recall, axis=1, prepend=0)
    area = (np.diff(fallout, axis=1, prepend=0) * (recall - steps / 2)).sum(1)
    precision = (steps * np.nan_to_num(_ratio(hits, hits + false))).sum(1)
    allowed = fallout <= 1 - specificity + 1e-9
    sensitivity = np.where(allowed, recall, 0).max(1)
    found: Floats = np.stack([area, precision, sensitivity])
    found[:, np.isnan(area)] = np.nan  # no positive image, or no negative one
    return found


def _ratio(part: Floats, whole: Floats) -> Floats:
    """NaN where the whole is 0."""
    part, whole = np.broadcast_arrays(part, whole)
    found: Floats = np.full(part.shape, np.nan)
    np.divide(part, whole, out=found, where=whole > 0)
    return found


def _mean(values: Floats, axis: int) -> Floats:
    """Of those that are not NaN; NaN if all are."""
    known = ~np.isnan(values)
    return _ratio(np.nansum(values, axis), known.sum(axis).astype(np.float64))
