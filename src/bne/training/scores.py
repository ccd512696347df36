"""How many images a network classifies correctly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bne.training.events import Score

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from bne.methods import Method
    from bne.training.events import Epoch, Scores
    from bne.training.inputs import Setting


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


BATCH = 256


def scores(setting: Setting, method: Method) -> tuple[Scores, Scores]:
    """Of the held-out images of the sources, and of all images of the targets.

    One process finds them for all.

    Args:
        setting: of the run.
        method: is left in the mode it was in.
    """
    groups = setting.validation, setting.target
    total = sum(map(len, groups))
    correct = torch.zeros(total, dtype=torch.long, device=setting.processes.device)
    if setting.processes.first:
        members = [numbers for group in groups for numbers in group.values()]
        correct += _correct(setting, method, members)
    counts = iter(setting.processes.sum(correct).tolist())
    validation, target = (
        {domain: Score(next(counts), len(numbers)) for domain, numbers in group.items()}
        for group in groups
    )
    return validation, target


@torch.inference_mode()
def _correct(setting: Setting, method: Method, domains: Sequence[Sequence[int]]) -> Tensor:
    """(D,), how many images of each domain are classified correctly; no batch mixes domains."""
    training = method.training
    method.eval()
    correct = []
    for numbers in domains:
        hits = []
        for images, labels in setting.feed.gather(batches(torch.as_tensor(numbers))):
            with setting.autocast():
                logits = method.predict(setting.transform(images))
            hits.append((logits.argmax(1) == labels).sum())
        correct.append(torch.stack(hits).sum())
    method.train(training)
    return torch.stack(correct)


def batches(numbers: Tensor) -> list[Tensor]:
    """Cuts a domain's images into batches spread evenly over it, whatever they are sorted by."""
    count = -(-len(numbers) // BATCH)
    return [numbers[start::count] for start in range(count)]
