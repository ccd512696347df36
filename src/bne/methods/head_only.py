"""The classifier alone, on a pretrained network whose images lean on themselves."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from bne.core.convert import convert
from bne.core.ensemble import DomainEnsemble
from bne.core.head import head_of
from bne.core.options import Lean, kept_lean
from bne.methods.method import Method, register
from bne.models import classifier_parameters


@register(
    "head-only",
    "past the paper: the pretrained network as it is, of which the classifier alone is trained, "
    "leaning on each image's own statistics",
)
class HeadOnly(Method):
    """A frozen network whose classifier learns from features that lean.

    Args:
        model: the plain network; if it is not from `bne.models.build`, its classifier is the last
            linear layer.
        domains: the source domains' names, which play no part.
        fit_lean: how far images lean on their own statistics while the classifier is trained.
    """

    net: DomainEnsemble

    def __init__(self, model: nn.Module, domains: Sequence[str], *, fit_lean: float = 0.1) -> None:
        super().__init__()
        self.net = convert(model, lean=fit_lean)
        self.fit_lean = self.scored_lean = fit_lean
        self._lean: Lean = fit_lean
        classifier = classifier_parameters(self.net) or set(head_of(self.net).parameters())
        for parameter in self.net.parameters():
            parameter.requires_grad_(parameter in classifier)
        self.train(model.training)

    @property
    def lean(self) -> Lean:
        """As `Method.lean`; in training it is `fit_lean` instead."""
        return kept_lean(self._lean)

    @lean.setter
    def lean(self, lean: Lean) -> None:
        self.net.lean = lean
        self._lean = kept_lean(lean)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Sets how far images lean; the network itself always stays in evaluation mode."""
        super().train(mode)
        self.net.eval()
        self.net.lean = self.fit_lean if mode else self._lean
        return self

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy; the domains play no part."""
        return self.cross_entropy(self.predict(images), labels)

    def predict(self, images: Tensor) -> Tensor:
        """The network's logits."""
        logits: Tensor = self.net(images)
        return logits

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Does nothing: the statistics stay as they are."""
