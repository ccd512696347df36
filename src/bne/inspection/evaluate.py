"""A trained model on images of any domains, seen or not: accuracy per domain and class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from bne.data.feed import Feed
from bne.errors import DataError
from bne.inspection.numbers import Sums
from bne.inspection.observe import branches, check_finite, some_of, translated, view
from bne.training.scores import batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from bne.data.cache import PreparedImages
    from bne.data.transform import EvalTransform
    from bne.methods import Method

DRAWS, COVERAGE = 10_000, 0.95
ALL = "all classes"


@dataclass(frozen=True)
class Share:
    """How many of some images were classified correctly, and how sure that is.

    Attributes:
        correct: of the images.
        images: in all.
        low: lower end of the 95 % bootstrap interval of the accuracy, in percent.
        high: its upper end.
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
    def of(cls, correct: int, images: int, seed: int = 0) -> Share:
        """With a percentile bootstrap interval.

        Images drawn with replacement are right or wrong, so that how many of a draw are right is a
        binomial number: it is drawn as such.
        """
        draws = np.random.default_rng(seed).binomial(images, correct / images, DRAWS)
        tail = 50 * (1 - COVERAGE)
        low, high = 100 * np.percentile(draws, (tail, 100 - tail)) / images
        return cls(correct, images, float(low), float(high))


Shares = dict[str, dict[str, dict[str, Share]]]
"""By domain, by whose answer it is, and by class, of which `ALL` is the first."""


@torch.inference_mode()
def evaluate_model(
    method: Method,
    transform: EvalTransform,
    classes: Sequence[str],
    prepared: PreparedImages,
    domains: Iterable[str],
    device: torch.device | str = "cpu",
) -> Shares:
    """Classifies all images of some domains, in float32.

    The answers are the method's `prediction` and, if it weighs branches, those of the `nearest`
    branch, of `uniform` weights and of each `branch NAME`.

    Args:
        method: the trained model, on the device, in evaluation mode.
        transform: from prepared images to its input.
        classes: that it knows, in order.
        prepared: images, those of the domains labelled with these classes or some of them.
        domains: to test on.
        device: to compute on.

    Raises:
        DataError: A domain or class is unknown, or a domain has no images, or a class has the name
            of the total, or an answer is no number.
    """
    if ALL in classes:
        raise DataError(f"A class is named {ALL!r}, as the total is; rename it and train anew.")
    wanted = tuple(dict.fromkeys(domains))
    labels = translated(prepared.images, wanted, classes).to(device)
    feed = Feed(prepared, device)
    sums, finite = Sums(), torch.tensor(True, device=device)
    for domain in wanted:
        numbers = torch.tensor(some_of(prepared.images, domain))
        for images, given in feed.gather(batches(numbers)):
            truth = labels[given]
            everyone, sound = _answers(method, transform(images))
            finite = finite & sound
            for whose, answers in everyone.items():
                right = torch.zeros(2, len(classes), dtype=torch.long, device=truth.device)
                right[0].index_add_(0, truth, (answers == truth).long())
                right[1].index_add_(0, truth, torch.ones_like(truth))
                sums.add(domain, whose, value=right)
    check_finite(finite)
    return {
        domain: {whose: _shares(classes, *sums.get(domain, whose)) for whose in sums.names(domain)}
        for domain in sums.names()
    }


def _answers(method: Method, images: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """(N,) each, and whether all logits are finite, ()."""
    names = branches(method)
    if not names:
        logits = method.predict(images)
        return {"prediction": logits.argmax(1)}, logits.isfinite().all()
    seen = view(method, images)
    uniform = torch.full_like(seen.weights, 1 / len(names))
    answers = {
        "prediction": seen.logits.argmax(1),
        "nearest": seen.ranked_answers()[:, 0],
        "uniform": seen.answers_under(uniform),
        **{
            f"branch {name}": own
            for name, own in zip(names, seen.branch_answers().unbind(1), strict=True)
        },
    }
    return answers, seen.is_finite()


def _shares(classes: Sequence[str], correct: list[int], images: list[int]) -> dict[str, Share]:
    counts = {ALL: (sum(correct), sum(images))}
    counts |= dict(zip(classes, zip(correct, images, strict=True), strict=True))
    return {name: Share.of(*count) for name, count in counts.items() if count[1]}
