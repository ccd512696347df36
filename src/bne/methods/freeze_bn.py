"""FreezeBatchNorm, one of the paper's other ways to normalise."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bne.methods.deepall import DeepAll
from bne.methods.registry import register


@register(
    "freeze-bn",
    "(c) Freeze BatchNorm (i.e., keeping the population statistics as the one computed after the "
    "imagenet pre-training)",
)
class FreezeBatchNorm(DeepAll):
    """One network for all domains, under its pretrained statistics; γ and β are trained.

    Args:
        model: the plain network.
        domains: the source domains' names, which play no part.
    """

    def __init__(self, model: nn.Module, domains: Sequence[str]) -> None:
        super().__init__(model, domains)
        self.train(model.training)

    def train(self, mode: bool = True) -> Self:
        """Sets training or evaluation mode, in which batch norm always stays."""
        super().train(mode)
        for layer in self.net.modules():
            if isinstance(layer, _BatchNorm):
                layer.training = False  # a fused layer's own dropout still follows the mode
        return self

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Does nothing: the statistics stay as they are."""
