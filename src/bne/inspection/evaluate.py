"""Accuracy of a trained model on any domains, seen or not, per domain and per class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bne.data.feed import Feed
from bne.errors import DataError
from bne.inspection.numbers import scores
from bne.inspection.observe import observe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from bne.data.cache import PreparedImages
    from bne.data.transform import EvalTransform
    from bne.inspection.observe import Observed
    from bne.methods import Method

DRAWS, COVERAGE = 10_000, 0.95
ALL = "all classes"


@dataclass(frozen=True)
class Accuracy:
    """Correct answers to some images, and how certain their proportion is.

    Attributes:
        correct: number of images classified correctly.
        images: number of images in all.
        low: lower end of the 95 % bootstrap interval of the accuracy, in percent.
        high: upper end of it.
    """

    correct: int
    images: int
    low: float
    high: float

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * self.correct / self.images

    @classmethod
    def of(cls, correct: int, images: int, seed: int = 0) -> Accuracy:
        """With a percentile bootstrap interval.

        Images drawn with replacement are right or wrong, so that how many of a draw are right is a
        binomial number: it is drawn as such.
        """
        draws = np.random.default_rng(seed).binomial(images, correct / images, DRAWS)
        tail = 50 * (1 - COVERAGE)
        low, high = 100 * np.percentile(draws, (tail, 100 - tail)) / images
        return cls(correct, images, float(low), float(high))


Accuracies = dict[str, dict[str, dict[str, Accuracy]]]
"""By domain, by whose answer it is, and by class, of which `ALL` is the first."""


def show(
    method: Method,
    transform: EvalTransform,
    classes: Sequence[str],
    prepared: PreparedImages,
    domains: Iterable[str],
    device: torch.device | str = "cpu",
) -> Observed:
    """Shows all images of some domains to a model, in float32.

    Args:
        method: the trained model, on the device, in evaluation mode.
        transform: the step from prepared images to its input.
        classes: names of the classes that it knows, in order.
        prepared: images labeled with those classes or some of them.
        domains: names of the domains to test on.
        device: device to compute on.

    Raises:
        DataError: A domain or class is unknown, or a domain has no images, or a class has the name
            of the total, or an answer is not finite.
    """
    if ALL in classes:
        raise DataError(f"A class is named {ALL!r}, as the total is; rename it and train anew.")
    members = {domain: prepared.images.indices_of([domain]) for domain in domains}
    feed = Feed(prepared, device)
    return observe(method, transform, classes, prepared, feed, members, weightings=["uniform"])


def accuracies(seen: Observed) -> Accuracies:
    """Accuracy of each answer to images, per domain and class.

    The answers are the method's `prediction` and, if it weighs branches, those of the `nearest`
    branch, of `uniform` weights and of each `branch NAME`.
    """
    answers = {"prediction": seen.answers}
    if seen.branches:
        answers["nearest"] = seen.by_rank[:, 0]
        answers["uniform"] = seen.by_weighting[:, 0]
        for place, name in enumerate(seen.branches):
            answers[f"branch {name}"] = seen.by_branch[:, place]
    found: Accuracies = {}
    for domain, rows in seen.rows().items():
        groups = {ALL: rows}
        groups |= {name: rows[seen.truth[rows] == k] for k, name in enumerate(seen.classes)}
        groups = {name: own for name, own in groups.items() if len(own)}
        found[domain] = {
            whose: {n: Accuracy.of(**s) for n, s in scores(own == seen.truth, groups).items()}
            for whose, own in answers.items()
        }
    return found
