"""Intervals of shares and of means, against scipy and against what they promise."""

import math

import numpy as np
import pytest
from scipy.stats import t

from bne.inspection.intervals import margin, mean_wilson, share_interval, wilson


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
