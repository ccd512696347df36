"""Measures of probabilities beside accuracy, per domain, with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bne.errors import SettingsError
from bne.inspection.intervals import image_draws, interval, mean_wilson, share_interval
from bne.inspection.numbers import BINS
from bne.inspection.observe import silent
from bne.training.events import ACCURACY, BALANCED, unbalanced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bne.inspection.observe import Tell

    Floats = NDArray[np.float64]

DRAWS = 1000
ERROR = "calibration_error"
NAMES = (ACCURACY, BALANCED, "macro_f1", "auroc", "average_precision", "sensitivity", ERROR)


@dataclass(frozen=True)
class Measure:
    """One measure of some images, in percent.

    Attributes:
        value: of the images as they are.
        low: lower end of the 95 % interval. Without groups, accuracy has Wilson's, and balanced
            accuracy the one that Wilson's of its classes give. All others are the bootstrap's, of
            images drawn with replacement or, where they are known, of groups. For means over
            classes images, and groups of one class each, are drawn within each class, so that no
            draw lacks a rare one. None where all draws give the same: it would have no width.
        high: upper end of it.
    """

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        ends = "" if self.low is None else f" ({self.low:.1f}–{self.high:.1f})"
        return f"{self.value:.1f}{ends}"


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
    groups: Mapping[str, NDArray[np.int64]] | None = None,
    tell: Tell = silent,
) -> Measures:
    """Measures several domains; the arguments are those of `measure`, by domain.

    `tell` is called with how many more images were measured.
    """
    if truth.keys() != probabilities.keys():
        raise SettingsError("truth and probabilities must be of the same domains.")
    how: dict[str, Any] = {"specificity": specificity, "positive": positive}
    measured = {}
    for name, own in truth.items():
        measured[name] = measure(own, probabilities[name], groups=(groups or {}).get(name), **how)
        tell(len(own))
    return Measures(measured, tuple(n for n in truth if unbalanced(np.bincount(truth[n]).tolist())))


def measure(
    truth: NDArray[np.int64],
    probabilities: Floats,
    *,
    specificity: float = 0.9,
    positive: int | None = None,
    groups: NDArray[np.int64] | None = None,
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
        groups: (N,), numbers of the groups of images, of patients for instance, that intervals draw
            as a whole; by default they draw images.
        seed: of the draws.

    Raises:
        SettingsError: There are no images, shapes differ, a class or the specificity is none, or a
            probability is not finite.
    """
    truth, probabilities = np.asarray(truth), np.asarray(probabilities, np.float64)
    _check(truth, probabilities, specificity, positive)
    classes, answers = probabilities.shape[1], probabilities.argmax(1)
    of_truth, of_answers = np.eye(classes)[truth], np.eye(classes)[answers]
    one_hot = of_truth, of_answers, of_truth * of_answers
    chosen = range(classes) if positive is None else [positive]
    rankings = [_Ranking.of(truth == k, probabilities[:, k]) for k in chosen]
    how = truth, groups, DRAWS, seed
    errors = [_error(own, truth, probabilities) for own in image_draws(*how, by_class=False)]
    of_classes = [
        _of_classes(own, one_hot, rankings, specificity) for own in image_draws(*how, by_class=True)
    ]
    values = (*np.concatenate(of_classes, 1), np.concatenate(errors))
    right = answers == truth
    accuracy = Measure(100 * float(right.mean()), *share_interval(right, groups, seed))
    found: Measured = {ACCURACY: accuracy}
    found |= {name: _interval(100 * own) for name, own in zip(NAMES[1:], values, strict=True)}
    if groups is None:
        labels, counts = np.unique(truth, return_counts=True)
        recalls = [float(right[truth == label].mean()) for label in labels]
        ends = mean_wilson(recalls, counts.tolist())
        found[BALANCED] = Measure(100 * float(np.mean(recalls)), *ends)
    return found


def _interval(values: Floats) -> Measure | None:
    """From (1 + D,), of the images as they are and of the draws."""
    if np.isnan(values[0]):
        return None
    low, high = interval(values[1:])
    return Measure(float(values[0]), *((low, high) if low < high else (None, None)))


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


def _error(weights: Floats, truth: NDArray[np.int64], probabilities: Floats) -> Floats:
    """(D,), the calibration error of D draws."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == truth
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = weights @ (np.eye(BINS)[bins] * (confidence - right)[:, None])
    found: Floats = np.abs(gaps).sum(1) / weights.sum(1)
    return found


class _Ranking(NamedTuple):
    """N images in the order of their scores for a class, the highest first.

    Attributes:
        order: (N,), their numbers.
        positive: (N,), whether each, in that order, is of the class.
        ends: places of the last of equal scores, after which a threshold lies.
    """

    order: NDArray[np.int64]
    positive: NDArray[np.bool_]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, positive: NDArray[np.bool_], scores: Floats) -> _Ranking:
        order = np.argsort(-scores, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
        return cls(order, positive[order], ends)


def _of_classes(
    weights: Floats, one_hot: Sequence[Floats], rankings: Sequence[_Ranking], specificity: float
) -> Floats:
    """(5, D): balanced accuracy, macro F1 and what `_ranked` gives; NaN where not defined.

    Args:
        weights: (D, N), how often each image is drawn.
        one_hot: (N, classes) each, 1 for the true class, for the answer, and where they agree.
        rankings: of the classes that ranking measures are of.
        specificity: as in `measure`.
    """
    of_truth, of_answers, hits = (weights @ own for own in one_hot)
    recall, f1 = _ratio(hits, of_truth), _ratio(2 * hits, of_truth + of_answers)
    ranked = [_ranked(weights, one, specificity) for one in rankings]
    return np.stack([_mean(recall, 1), _mean(f1, 1), *_mean(np.stack(ranked), 0)])


def _ranked(weights: Floats, ranking: _Ranking, specificity: float) -> Floats:
    """(3, D): area under the ROC curve, average precision, sensitivity at a specificity."""
    order, positive, ends = ranking
    drawn = weights[:, order]
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
