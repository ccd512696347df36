"""95 % intervals: of shares of images, and of means over a few seeds or domains."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist, stdev
from typing import TYPE_CHECKING

import numpy as np

from bne.inspection.resampling import COVERAGE, ratio_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DRAWS = 10_000


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
    right: NDArray[np.bool_], groups: NDArray[np.int64] | None = None, seed: int = 0
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
