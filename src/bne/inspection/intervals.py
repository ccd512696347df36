"""95 % intervals: of shares of images, of means over a few seeds or domains, and by the bootstrap.

The bootstrap draws with replacement: images or, where they are known, groups of them.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist, stdev
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

COVERAGE = 0.95
DRAWS = 10_000
AT_ONCE = 100_000  # numbers in a table of draws and images, so that they stay in the cache
FEW = 10
"""Groups below which intervals are too narrow, since so few say little of others."""


def wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's score interval of a share, in percent; it has a width even at 0 and 100 %.

    Args:
        share: share of the things that count, 0 to 1.
        count: number of things in all.
    """
    squared = NormalDist().inv_cdf((1 + COVERAGE) / 2) ** 2
    center = (share + squared / (2 * count)) / (1 + squared / count)
    spread = share * (1 - share) / count + squared / (4 * count**2)
    half = sqrt(squared * spread) / (1 + squared / count)
    # What rounding leaves beyond the share itself, at 0 and 1, is cut off.
    return 100 * max(0.0, min(center - half, share)), 100 * min(1.0, max(center + half, share))


def mean_wilson(shares: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """The interval of a mean of shares, in percent, from Wilson's of each (Zou and Donner, 2008).

    The distances of each share from its own ends add up as those of independent figures do.

    Args:
        shares: shares, 0 to 1, recalls of classes for instance.
        counts: number of things that each is a share of.
    """
    mean = 100 * float(np.mean(shares))
    ends = np.array([wilson(*pair) for pair in zip(shares, counts, strict=True)])
    below, above = (np.linalg.norm(ends - 100 * np.array(shares)[:, None], axis=0)) / len(shares)
    return max(0.0, mean - float(below)), min(100.0, mean + float(above))


def share_interval(
    right: NDArray[np.bool_], groups: Labels | None = None, seed: int = 0
) -> tuple[float, float]:
    """Of the share of images that are right, in percent.

    It is Wilson's or, where images have groups, the bootstrap's of groups drawn with replacement.
    If no draw differs from another, as when all images are right, it is Wilson's of as many things
    as there are groups.

    Args:
        right: (N,), whether each image is classified correctly.
        groups: (N,), numbers of the images' groups.
        seed: of the draws.
    """
    share, count = float(right.mean()), len(right)
    if groups is None:
        return wilson(share, count)
    low, high = ratio_interval(right.astype(float), np.ones(count), groups, DRAWS, seed)
    return (low, high) if low < high else wilson(share, len(np.unique(groups)))


def margin(values: Sequence[float]) -> float | None:
    """Half the width of Student's t interval of a mean; None of one value, which tells nothing."""
    if len(values) < 2:
        return None
    return quantile(len(values)) * stdev(values) / sqrt(len(values))


def quantile(count: int) -> float:
    """What the standard error of a mean of so many values is multiplied by, by Student's t."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(count - 1, (1 + COVERAGE) / 2))


def interval(values: Floats) -> tuple[float, float]:
    """The 95 % percentile interval of the figures of all draws, of those that are not NaN."""
    tail = 50 * (1 - COVERAGE)
    low, high = np.nanpercentile(values, (tail, 100 - tail))
    return float(low), float(high)


def numbered(groups: Sequence[str] | NDArray[np.str_]) -> Labels:
    """(N,), the number of every image's group, from 0."""
    return np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64)


def ratio_interval(
    part: Floats, whole: Floats, groups: Labels, draws: int, seed: int = 0
) -> tuple[float, float]:
    """The interval of sum(part) / sum(whole) in percent, of groups drawn with replacement.

    Args:
        part: (N,), of each image.
        whole: (N,), of each image; no group's sum is 0.
        groups: (N,), numbers of the images' groups.
        draws: number of draws.
        seed: of the draws.
    """
    groups = np.unique(groups, return_inverse=True)[1]
    sums = np.stack([np.bincount(groups, own) for own in (part, whole)], 1)  # (G, 2)
    found = np.concatenate([times @ sums for times in _times([len(sums)], draws, seed)])
    return interval(100 * found[:, 0] / found[:, 1])


def image_draws(
    truth: Labels, groups: Labels | None, draws: int, seed: int = 0, *, by_class: bool
) -> Iterator[Floats]:
    """(D, N) at a time, how often each image is in each draw; the first has each once.

    Args:
        truth: (N,), classes of the images.
        groups: (N,), numbers of their groups, which are drawn as a whole; by default images are.
        draws: number of draws.
        seed: of the draws.
        by_class: whether to draw within each class, so that no draw lacks a rare one. Groups that
            have images of several classes are drawn from all groups instead.
    """
    count = len(truth)
    yield np.ones((1, count))
    own = np.arange(count) if groups is None else np.unique(groups, return_inverse=True)[1]
    label = np.zeros(own.max() + 1, np.int64)
    label[own] = truth  # of each group, if it has one class only
    if not by_class or (label[own] != truth).any():
        label[:] = 0
    order = np.argsort(label, kind="stable")  # strata one after another
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    strata = np.unique(label, return_counts=True)[1].tolist()
    for times in _times(strata, draws, seed, max(1, AT_ONCE // count)):
        yield times[:, place[own]]


def _times(
    strata: Sequence[int], draws: int, seed: int, at_once: int | None = None
) -> Iterator[Floats]:
    """(D, G) at a time, how often each of G things is drawn, as many of a stratum as it has."""
    generator, total = np.random.default_rng(seed), sum(strata)
    at_once = at_once or max(1, AT_ONCE // total)
    starts = np.cumsum([0, *strata[:-1]])
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        places = np.concatenate(
            [
                first + generator.integers(0, size, (count, size))
                for first, size in zip(starts, strata, strict=True)
            ],
            axis=1,
        )
        places += total * np.arange(count)[:, None]
        drawn = np.bincount(places.ravel(), minlength=count * total)
        yield drawn.reshape(count, total).astype(np.float64)
