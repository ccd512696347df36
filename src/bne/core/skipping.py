"""Steps that a gradient scaler skips leave no statistics.

A scaler skips the step of an optimizer if a gradient is infinite or NaN. The forward pass before it
has updated the running statistics by then.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def forget_skipped_step(net: nn.Module, scaler: torch.amp.GradScaler) -> Iterator[None]:
    """Puts running statistics back if the scaler skips the step in the block.

    The block holds one step: the forward and backward passes, several if gradients are accumulated,
    then `scaler.step` and `scaler.update`. A skipped step is one that makes the scaler lower its
    scale. All buffers of the network are put back, so batch norms of every kind are covered.

    Args:
        net: the network that is trained, converted or not.
        scaler: the scaler of its gradients; one that is disabled skips nothing.
    """
    scale = scaler.get_scale()
    before = [buffer.clone() for buffer in net.buffers()]
    yield
    if scaler.get_scale() < scale:
        with torch.no_grad():
            for buffer, old in zip(net.buffers(), before, strict=True):
                buffer.copy_(old)
