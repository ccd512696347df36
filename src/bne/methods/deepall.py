"""DeepAll, the paper's baseline."""

import torch.nn.functional as F
from torch import Tensor, nn

from bne.methods.method import Method


class DeepAll(Method):
    """The baseline: "training directly on the merged set of source domains".

    Section 4.1 of the paper. The domain batches are one batch to every batch-norm layer.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy; the domains play no part."""
        return F.cross_entropy(self.model(images), labels)

    def predict(self, images: Tensor) -> Tensor:
        """The network's own logits."""
        logits: Tensor = self.model(images)
        return logits
