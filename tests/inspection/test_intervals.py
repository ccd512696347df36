"""Intervals against scipy, against drawing groups one by one, and against what they promise."""

import math

import numpy as np
import pytest
from scipy.stats import bootstrap, t
from sklearn.metrics import balanced_accuracy_score

from bne.deploy.compare import Balanced, Difference
from bne.inspection.evaluate import Accuracy
from bne.inspection.intervals import (
    image_draws,
    margin,
    mean_wilson,
    numbered,
    ratio_interval,
    share_interval,
    wilson,
)
from bne.inspection.measures import measure

SIZES = np.random.default_rng(0).integers(1, 12, 40)
GROUPS = np.repeat(np.arange(40), SIZES)  # 40 patients with up to 11 images
DRAW = np.random.default_rng(1)


def test_the_interval_of_a_mean_over_seeds_is_scipys() -> None:
    values = [70.2, 73.9, 71.1]
    low, high = t.interval(0.95, 2, np.mean(values), np.std(values, ddof=1) / math.sqrt(3))
    assert margin(values) == pytest.approx((high - low) / 2)
    assert margin([70.0]) is None


def test_a_mean_of_one_share_has_its_interval_and_of_many_holds_the_truth() -> None:
    assert mean_wilson([0.3], [14]) == pytest.approx(wilson(0.3, 14))
    draw, chances, counts = np.random.default_rng(0), [0.95, 0.5, 0.8], [8, 20, 40]
    found = [
        mean_wilson([draw.binomial(n, p) / n for p, n in zip(chances, counts, strict=True)], counts)
        for _ in range(1000)
    ]
    inside = np.mean([low <= 100 * np.mean(chances) <= high for low, high in found])
    assert inside == pytest.approx(0.95, abs=0.03)


def test_no_interval_is_without_width() -> None:
    groups = np.repeat(np.arange(7), 2)
    for right in (np.zeros(14, bool), np.ones(14, bool), np.arange(14) % 2 == 0):
        for low, high in (share_interval(right), share_interval(right, groups)):
            assert low <= 100 * right.mean() <= high
            assert high - low > 10
    assert share_interval(np.ones(14, bool), groups) == wilson(1, 7)


def alike(chance: np.ndarray) -> np.ndarray:
    """Images of a patient are mostly right or wrong together."""
    own = DRAW.random(40) < chance
    return np.where(DRAW.random(len(GROUPS)) < 0.9, own[GROUPS], DRAW.random(len(GROUPS)) < chance)


OURS, THEIRS = alike(0.8), alike(0.65)


def by_scipy(values: np.ndarray) -> tuple[float, float]:
    """The interval of a mean over images of which whole patients are drawn."""
    sums = np.bincount(GROUPS, values)
    found = bootstrap(
        (sums, SIZES),
        lambda part, whole, axis: part.sum(axis) / whole.sum(axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=9999,
        rng=0,
    ).confidence_interval
    return 100 * found.low, 100 * found.high


def test_accuracies_and_differences_are_those_of_scipy() -> None:
    found = Accuracy.of(OURS, GROUPS)
    assert (found.low, found.high) == pytest.approx(by_scipy(OURS), abs=0.5)
    images = Accuracy.of(OURS)
    assert found.high - found.low > 1.5 * (images.high - images.low)
    gap = Difference.of(OURS, THEIRS, GROUPS)
    assert (gap.low, gap.high) == pytest.approx(by_scipy(OURS.astype(float) - THEIRS), abs=0.7)
    assert gap.low < gap.difference < gap.high
    measured = measure(np.ones(len(OURS), int), np.eye(2)[OURS.astype(int)], groups=GROUPS)
    own = measured["accuracy"]
    assert (own.low, own.high) == pytest.approx(by_scipy(OURS), abs=1.5)


def test_groups_of_one_image_are_images() -> None:
    alone = np.arange(len(OURS))
    for found, expected in (
        (Accuracy.of(OURS, alone), Accuracy.of(OURS)),
        (Difference.of(OURS, THEIRS, alone), Difference.of(OURS, THEIRS)),
    ):
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.7)


@pytest.mark.parametrize("one_class", [True, False])
def test_balanced_differences_are_those_of_a_loop_over_draws(one_class: bool) -> None:
    mixed = np.random.default_rng(3).random(len(GROUPS)) < 0.2
    truth = (GROUPS % 5 == 0) if one_class else mixed
    truth = truth.astype(np.int64)
    found = Balanced.of(OURS, THEIRS, truth, GROUPS)
    answers = [np.where(right, truth, 1 - truth) for right in (OURS, THEIRS)]
    for value, own in zip((found.model, found.against), answers, strict=True):
        assert value == pytest.approx(100 * balanced_accuracy_score(truth, own))
    draw, gaps = np.random.default_rng(2), []
    strata = [np.arange(0, 40, 5), np.setdiff1d(np.arange(40), np.arange(0, 40, 5))]
    for _ in range(600):
        parts = strata if one_class else [np.arange(40)]
        drawn = np.concatenate([draw.choice(own, len(own)) for own in parts])
        rows = np.concatenate([np.flatnonzero(group == GROUPS) for group in drawn])
        one, other = (balanced_accuracy_score(truth[rows], own[rows]) for own in answers)
        gaps.append(100 * (one - other))
    low, high = np.percentile(gaps, (2.5, 97.5))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.2 * (high - low))
    assert found.low < found.difference < found.high


def test_draws_take_whole_groups_within_their_class() -> None:
    truth = (GROUPS < 3).astype(np.int64)
    first, *others = image_draws(truth, GROUPS, 50, by_class=True)
    assert (first == 1).all()
    for weights in np.concatenate(others):
        for group in range(40):
            assert len(set(weights[group == GROUPS])) == 1
        each = weights[np.unique(GROUPS, return_index=True)[1]]
        assert (each[:3].sum(), each[3:].sum()) == (3, 37)


def test_groups_are_numbered_by_name() -> None:
    assert numbered(["b", "a", "b"]).tolist() == [1, 0, 1]
    low, high = ratio_interval(np.ones(3), np.ones(3), numbered(["b", "a", "b"]), 100)
    assert (low, high) == (100, 100)
