"""BNE, the paper's method."""

import torch.nn.functional as F
from torch import Tensor

from bne.ensemble import DomainEnsemble
from bne.methods.method import Method


class BNE(Method):
    """Distance training: "we replicate at training time the distance weighting procedure".

    Section 3.4 of the paper.

    Attributes:
        net: the ensemble of domain branches.
        distance_training: whether the loss is that of the mixture, Algorithm 1; before, in the
            warm-up, every image is run under its own domain.
    """

    def __init__(self, net: DomainEnsemble, distance_training: bool = False) -> None:
        super().__init__()
        self.net = net
        self.distance_training = distance_training

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of the mixture, or of each image's own branch in the warm-up."""
        if self.distance_training:
            return F.cross_entropy(self.net.explain(images, domains).logits, labels)
        return F.cross_entropy(self.net(images, domains), labels)

    def predict(self, images: Tensor) -> Tensor:
        """The mixture, weighted by each image's distances from the source domains."""
        logits: Tensor = self.net(images)
        return logits
