"""The tests that `bne monitor` is compared with, against the libraries that have them."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel


@pytest.fixture(scope="module")
def drift() -> Any:
    return import_module("drift")


@pytest.fixture(scope="module")
def looks() -> Any:
    """Features of two domains, 60 and 45 images of each, and of 32 others."""
    features = np.random.default_rng(0).normal(size=(137, 12))
    features[60:105] -= 0.4
    features[105:] -= 1
    return SimpleNamespace(features=features.round())  # many are equal


HALVES = {"art": np.arange(60), "photo": np.arange(60, 105)}
WINDOW = np.arange(105, 137)


def test_ks_is_that_of_scipy(drift: Any, looks: Any) -> None:
    window = looks.features[WINDOW]
    expected = max(
        stats.ks_2samp(looks.features[own], window, axis=0, method="asymp").pvalue.min()
        for own in HALVES.values()
    )
    assert drift.ks(looks, HALVES)(WINDOW) == pytest.approx(12 * expected)


def test_mmd_is_that_of_a_gaussian_kernel_of_the_median_width(drift: Any, looks: Any) -> None:
    """No permutation is as far away, so it gives the statistic, of the domain that lies nearer."""
    found = []
    for own in HALVES.values():
        both = looks.features[[*own, *WINDOW]]
        far = euclidean_distances(both, squared=True)
        kernel = rbf_kernel(both, gamma=1 / np.median(far[np.triu_indices(len(both), 1)]))
        inside, outside = kernel[: len(own), : len(own)], kernel[len(own) :, len(own) :]
        means = (part[~np.eye(len(part), dtype=bool)].mean() for part in (inside, outside))
        found.append(sum(means) - 2 * kernel[: len(own), len(own) :].mean())
    assert drift.mmd(looks, HALVES)(WINDOW) == pytest.approx(-min(found))


def test_mmd_of_a_known_domain_is_the_share_of_permutations_as_far_away(drift: Any) -> None:
    looks = SimpleNamespace(features=np.random.default_rng(1).normal(size=(4000, 5)))
    found = []
    for rows in np.split(np.arange(4000), 80):
        test = drift.mmd(looks, {"art": rows[:30]})
        found.append(abs(test(rows[30:])))
    assert stats.kstest(found, "uniform").pvalue > 0.01
