"""Accuracy of a trained model on any domains, seen or not, per domain and per class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bne.data.feed import Feed
from bne.errors import DataError
from bne.inspection.intervals import share_interval
from bne.inspection.observe import observe, silent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from bne.data.cache import PreparedImages
    from bne.data.transform import EvalTransform
    from bne.inspection.observe import Observed, Tell
    from bne.methods import Method

ALL = "all classes"


@dataclass(frozen=True)
class Accuracy:
    """Correct answers to some images, and how certain their proportion is.

    Attributes:
        correct: number of images classified correctly.
        images: number of images in all.
        low: lower end of the 95 % interval of the accuracy, in percent, see `share_interval`.
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

    def __str__(self) -> str:
        return f"{self.accuracy:.1f} ({self.low:.1f}–{self.high:.1f})"

    @classmethod
    def of(
        cls, right: NDArray[np.bool_], groups: NDArray[np.int64] | None = None, seed: int = 0
    ) -> Accuracy:
        """With its interval.

        Args:
            right: (N,), whether each image is classified correctly.
            groups: (N,), numbers of the images' groups, which then are drawn.
            seed: of the draws.
        """
        return cls(int(right.sum()), len(right), *share_interval(right, groups, seed))


Accuracies = dict[str, dict[str, dict[str, Accuracy]]]
"""By domain, by whose answer it is, and by class, of which `ALL` is the first."""


def show(
    method: Method,
    transform: EvalTransform,
    classes: Sequence[str],
    prepared: PreparedImages,
    domains: Iterable[str],
    device: torch.device | str = "cpu",
    tell: Tell = silent,
) -> Observed:
    """Shows all images of some domains to a model, in float32.

    Args:
        method: the trained model, on the device, in evaluation mode.
        transform: the step from prepared images to its input.
        classes: names of the classes that it knows, in order.
        prepared: images labeled with those classes or some of them.
        domains: names of the domains to test on.
        device: device to compute on.
        tell: is called with how many more images were shown.

    Raises:
        DataError: A domain or class is unknown, or a domain has no images, or a class has the name
            of the total, or an answer is not finite.
    """
    if ALL in classes:
        raise DataError(f"A class is named {ALL!r}, as the total is; rename it and train anew.")
    members = {domain: prepared.images.indices_of([domain]) for domain in domains}
    feed = Feed(prepared, device)
    how: Any = {"weightings": ["uniform"], "tell": tell}
    return observe(method, transform, classes, prepared, feed, members, **how)


def accuracies(seen: Observed, groups: NDArray[np.int64] | None = None) -> Accuracies:
    """Accuracy of each answer to images, per domain and class.

    The answers are the method's `prediction` and, if it weighs branches, those of the `nearest`
    branch, of `uniform` weights and of each `branch NAME`.

    Args:
        seen: what the model says of N images.
        groups: (N,), numbers of their groups, which intervals draw as a whole.
    """
    answers = {"prediction": seen.answers}
    if seen.branches:
        answers["nearest"] = seen.by_rank[:, 0]
        answers["uniform"] = seen.by_weighting[:, 0]
        for place, name in enumerate(seen.branches):
            answers[f"branch {name}"] = seen.by_branch[:, place]
    found: Accuracies = {}
    for domain, rows in seen.rows().items():
        parts = {ALL: rows}
        parts |= {name: rows[seen.truth[rows] == k] for k, name in enumerate(seen.classes)}
        places = {name: own.numpy() for name, own in parts.items() if len(own)}
        found[domain] = {
            whose: {
                name: Accuracy.of(right[own], None if groups is None else groups[own])
                for name, own in places.items()
            }
            for whose, answer in answers.items()
            for right in [(answer == seen.truth).numpy()]
        }
    return found
