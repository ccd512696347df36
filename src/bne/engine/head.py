"""The first phase, the same for every method: the last layer alone is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from bne.engine.optimisers import classifier_parameters
from bne.methods import DeepAll

if TYPE_CHECKING:
    from torch import nn


class Head(DeepAll):
    """The plain network, of which only the classifier learns.

    Everything else is frozen, in evaluation mode: pretrained statistics, no dropout.

    Args:
        model: a network from `bne.models.build`.
    """

    stage = "head"

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, ())
        classifier = classifier_parameters(model)
        self._frozen = [p for p in model.parameters() if p.requires_grad and p not in classifier]
        for parameter in self._frozen:
            parameter.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of this method; the network stays in evaluation mode."""
        super().train(mode)
        self.net.eval()
        return self

    def release(self) -> nn.Module:
        """The network, all of it trainable again and in training mode."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        return self.net.train()
