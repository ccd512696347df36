"""DeepAll, the paper's baseline."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from bne.methods.method import Method
from bne.methods.registry import register


@register(
    "deepall",
    "the natural deep-learning baseline to compare against consists in training directly on the "
    "merged set of source domains",
)
class DeepAll(Method):
    """One network for all domains; their batches are one batch to every batch-norm layer."""

    def __init__(self, model: nn.Module, domains: Sequence[str]) -> None:
        super().__init__()
        self.net = model

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy; the domains play no part."""
        return F.cross_entropy(self.net(images), labels)

    def predict(self, images: Tensor) -> Tensor:
        """The network's own logits."""
        logits: Tensor = self.net(images)
        return logits
