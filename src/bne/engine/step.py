"""One step of training: forward, backward, clip, update."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn


class TrainingStep:
    """Takes one optimiser step a call, and never waits for the device.

    Args:
        model: gives the loss; a method, or one shared by several processes.
        optimiser: of its parameters, with its learning rate set.
        losses: (), to which the loss of every step is added.
        clip: the largest norm of the gradient; None leaves it as it is.
        accumulate: into how many parts each domain batch is cut.
        autocast: makes the context in which the loss is computed.
    """

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        losses: Tensor,
        *,
        clip: float | None = None,
        accumulate: int = 1,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._model = model
        self._optimiser = optimiser
        self._losses = losses
        self._clip = clip
        self._accumulate = accumulate
        self._autocast = autocast
        self._parameters = [p for p in model.parameters() if p.requires_grad]

    def __call__(self, images: Tensor, labels: Tensor, domains: Tensor) -> None:
        """Trains on one batch.

        Args:
            images: (N, 3, H, W), normalised, as many of each domain, in domain order.
            labels: (N,).
            domains: (N,).
        """
        self._optimiser.zero_grad(set_to_none=True)
        for number in range(self._accumulate):
            # Every n-th image, which is an equal share of every domain.
            part = slice(number, None, self._accumulate)
            with self._autocast():
                loss = self._model(_rows(images, part), labels[part], domains[part])
            loss = loss / self._accumulate
            loss.backward()
            self._losses += loss.detach()
        if self._clip is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self._optimiser.step()


def _rows(images: Tensor, part: slice) -> Tensor:
    """Part of a batch, in the memory layout of the whole."""
    layout = torch.channels_last if images.ndim == 4 else torch.contiguous_format
    return images if part.step == 1 else images[part].contiguous(memory_format=layout)
