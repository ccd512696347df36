"""The training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from bne.data.feed import Batch
    from bne.methods import Method


def train(
    method: Method, batches: Iterable[Batch], optimiser: Optimizer, schedule: LRScheduler
) -> None:
    """Takes one optimiser step a batch.

    Args:
        method: what is trained.
        batches: of normalised images, in domain order.
        optimiser: over the method's parameters.
        schedule: of the learning rate, advanced every step.
    """
    method.train()
    for batch in batches:
        optimiser.zero_grad(set_to_none=True)
        method(batch.images, batch.labels, batch.domains).backward()
        optimiser.step()
        schedule.step()
