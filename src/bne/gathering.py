"""Statistics of all processes together."""

from typing import Any

import torch
from torch import Tensor, distributed

from bne.moments import Moments, pool


def pool_across_processes(local: Moments, count: Tensor) -> tuple[Moments, Tensor]:
    """Pools every process's domain statistics, (K, C), by its number of values, (K,)."""
    channels = local.mean.shape[1]
    packed = torch.cat([count.unsqueeze(1), *local], dim=1)
    everyone: Tensor = _Gather.apply(packed)  # (P, K, 1 + 2 C)
    counts, means, variances = everyone.transpose(0, 1).split([1, channels, channels], dim=2)
    total = counts.sum(1)
    share = counts / total.clamp_min(1).unsqueeze(1)
    return pool(Moments(means, variances), share.squeeze(2)), total.squeeze(1)


class _Gather(torch.autograd.Function):
    """Stacks every process's tensor; each gets back the sum of all gradients for its own."""

    @staticmethod
    def forward(_: Any, mine: Tensor) -> Tensor:
        everyone = mine.new_empty(distributed.get_world_size() * mine.shape[0], *mine.shape[1:])
        distributed.all_gather_into_tensor(everyone, mine.contiguous())
        return everyone.view(-1, *mine.shape)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(gradient)
        return gradient[distributed.get_rank()]
