"""How many images a network classifies correctly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bne.engine.events import Score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from bne.engine.events import Scores
    from bne.engine.setting import Setting
    from bne.methods import Method

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
