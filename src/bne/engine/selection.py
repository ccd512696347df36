"""Which epoch's network counts: rules over the records of a run, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.engine.events import Score

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bne.engine.events import Epoch, Scores


def last(epochs: Sequence[Epoch]) -> Epoch:
    """The last record of training."""
    return _training(epochs)[-1]


def best_on_validation(epochs: Sequence[Epoch]) -> Epoch | None:
    """The one of the highest mean accuracy on the source domains' held-out images.

    Ties go to the later. None if no images are held out.
    """
    rated = [epoch for epoch in _training(epochs) if epoch.validation]
    return max(reversed(rated), key=lambda epoch: mean_accuracy(epoch.validation), default=None)


def oracle(epochs: Sequence[Epoch]) -> Epoch:
    """The one of the highest accuracy on the target itself: no fair choice, an upper bound.

    All targets' images count alike; ties go to the later.
    """
    return max(
        reversed(_training(epochs)), key=lambda epoch: pooled(epoch.target.values()).accuracy
    )


def select(epochs: Sequence[Epoch]) -> dict[str, Scores]:
    """The target's scores under every rule: "last", "validation" (if any) and "oracle"."""
    chosen = {
        "last": last(epochs),
        "validation": best_on_validation(epochs),
        "oracle": oracle(epochs),
    }
    return {rule: epoch.target for rule, epoch in chosen.items() if epoch is not None}


def stale(epochs: Sequence[Epoch]) -> int:
    """How many epochs of training went by since source validation was last better than ever."""
    means = [mean_accuracy(epoch.validation) for epoch in _training(epochs)]
    return len(means) - 1 - means.index(max(means)) if means else 0


def mean_accuracy(scores: Scores) -> float:
    """In percent; every domain counts alike, however many images it has."""
    return sum(score.accuracy for score in scores.values()) / len(scores)


def pooled(scores: Iterable[Score]) -> Score:
    """The score of all images together."""
    scores = list(scores)
    return Score(sum(score.correct for score in scores), sum(score.images for score in scores))


def _training(epochs: Sequence[Epoch]) -> list[Epoch]:
    return [epoch for epoch in epochs if epoch.phase == "train"]
