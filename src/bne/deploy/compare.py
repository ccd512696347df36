"""Two models on the same images, image by image: may one replace the other?"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bne.data.feed import Feed
from bne.errors import DataError
from bne.inspection.evaluate import COVERAGE, DRAWS
from bne.inspection.observe import observe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from bne.data.cache import PreparedImages
    from bne.data.transform import EvalTransform
    from bne.methods import Method

ALL = "all images"


@dataclass(frozen=True)
class Difference:
    """Correct answers of two models to the same images.

    Attributes:
        images: number of images.
        correct: number that the model classifies correctly.
        against: number that the other one classifies correctly.
        gained: images that only the model classifies correctly.
        lost: images that only the other one classifies correctly.
        low: lower end of the 95 % bootstrap interval of `difference`.
        high: upper end of it.
        p: two-sided p-value of McNemar's exact test that both are equally often right.
    """

    images: int
    correct: int
    against: int
    gained: int
    lost: int
    low: float
    high: float
    p: float

    @property
    def difference(self) -> float:
        """Of the accuracies, in points; above 0 the model is better than the other."""
        return 100 * (self.gained - self.lost) / self.images

    @classmethod
    def of(cls, ours: NDArray[np.bool_], theirs: NDArray[np.bool_], seed: int = 0) -> Difference:
        """From which of N images each model classifies correctly, (N,) each.

        Images are drawn with replacement, with both models' answers to them. How many of a draw
        are gained and lost is a multinomial number, and is drawn as such.
        """
        count = len(ours)
        gained, lost = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
        shares = np.array([gained, lost, count - gained - lost]) / count
        draws = np.random.default_rng(seed).multinomial(count, shares, DRAWS)
        tail = 50 * (1 - COVERAGE)
        low, high = np.percentile(100 * (draws[:, 0] - draws[:, 1]) / count, (tail, 100 - tail))
        return cls(
            images=count,
            correct=int(ours.sum()),
            against=int(theirs.sum()),
            gained=gained,
            lost=lost,
            low=float(low),
            high=float(high),
            p=mcnemar(gained, lost),
        )


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided p-value of McNemar's exact test: among images on which two models differ."""
    count = gained + lost
    tail = sum(comb(count, k) for k in range(min(gained, lost) + 1))
    return min(1.0, tail / 2 ** (count - 1)) if count else 1.0


class Candidate(NamedTuple):
    """A model to compare, and the images as it takes them.

    Attributes:
        method: the trained model, on the device, in evaluation mode.
        transform: from prepared images to its input.
        classes: names that it knows, in order.
        prepared: the images, resized to what the transform expects.
    """

    method: Method
    transform: EvalTransform
    classes: Sequence[str]
    prepared: PreparedImages


@dataclass(frozen=True)
class Comparison:
    """One model against another.

    Attributes:
        total: on all images.
        domains: on those of each domain.
        classes: on those of each class.
    """

    total: Difference
    domains: Mapping[str, Difference]
    classes: Mapping[str, Difference]


def compare(
    ours: Candidate, theirs: Candidate, domains: Iterable[str], device: torch.device | str = "cpu"
) -> Comparison:
    """Shows all images of some domains to two models, in float32.

    Args:
        ours: the model that may replace the other.
        theirs: the other, on the same images.
        domains: names of the domains to test on.
        device: device to compute on.

    Raises:
        DataError: A class or domain is unknown to one of them, or a domain has no images.
    """
    names = list(domains)
    files, right, truth, domain = _right(ours, names, device)
    files_there, right_there, _, _ = _right(theirs, names, device)
    if files != files_there:
        raise DataError("The two models were shown different images; prepare the data again.")
    return Comparison(
        total=Difference.of(right, right_there),
        domains={n: Difference.of(right[domain == n], right_there[domain == n]) for n in names},
        classes={
            str(n): Difference.of(right[truth == n], right_there[truth == n])
            for n in dict.fromkeys(truth.tolist())
        },
    )


def _right(
    model: Candidate, domains: Sequence[str], device: torch.device | str
) -> tuple[list[str], NDArray[np.bool_], NDArray[np.str_], NDArray[np.str_]]:
    """The names of all images; whether each is classified correctly; its class; its domain."""
    members = {name: model.prepared.images.indices_of([name]) for name in domains}
    seen = observe(
        model.method,
        model.transform,
        model.classes,
        model.prepared,
        Feed(model.prepared, device),
        members,
        weightings=["uniform"],
    )
    files = [model.prepared.images.files[number].name for number in seen.numbers.tolist()]
    right = (seen.answers == seen.truth).numpy()
    return files, right, np.array(model.classes)[seen.truth], np.array(domains)[seen.domain]
