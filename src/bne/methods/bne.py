"""BNE, the paper's method."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.distances import Distance
from bne.ensemble import DomainEnsemble, convert
from bne.methods.method import Method
from bne.methods.registry import register
from bne.surgery import Momentum

WARM_UP, DISTANCE_TRAINING = "warm-up", "distance training"


@register(
    "bne",
    "(c) includes a warm-up phase in the initial training phase to help population statistics to "
    "converge to stable values before starting distance training",
)
@register(
    "bne-b",
    "(b) extends this approach by leveraging distance weighting at training time",
    distance_training="always",
)
@register(
    "bne-a",
    "(a) the usage of separate batchnorm statistics for each training domain, while using at "
    "inference time the projection and weighting strategy",
    distance_training="never",
)
class BNE(Method):
    """One branch per source domain, mixed by the distances of an image from the domains.

    Args:
        model: the plain network.
        domains: the source domains' names.
        distance_training: when the loss is that of the mixture, Algorithm 1: "never", "always" or
            "after warm-up"; otherwise every image is run under its own domain.
        domain_loss: factor of the cross-entropy of the domain weights in distance training.

    All other arguments are those of `bne.DomainEnsemble`.
    """

    net: DomainEnsemble

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        distance_training: Literal["never", "always", "after warm-up"] = "after warm-up",
        domain_loss: float = 0.0,
        momentum: Momentum = 0.01,
        distance: str | Distance = "wasserstein",
        layers: Sequence[str] | None = None,
        mix: Literal["logits", "probabilities"] = "logits",
        branch_statistics: Literal["batch", "population"] = "batch",
        weight_gradient: bool = True,
        max_branches: int | None = None,
    ) -> None:
        super().__init__()
        self.net = convert(
            model,
            domains,
            momentum=momentum,
            distance=distance,
            layers=layers,
            mix=mix,
            branch_statistics=branch_statistics,
            weight_gradient=weight_gradient,
            max_branches=max_branches,
        )
        self.distance_training = distance_training
        self.domain_loss = domain_loss
        self.begin_epoch(0, 0)

    def begin_epoch(self, epoch: int, warm_up: int) -> None:
        """Leaves the warm-up when its epochs are over."""
        when = self.distance_training
        mixes = when == "always" or (when == "after warm-up" and epoch >= warm_up)
        self.stage = DISTANCE_TRAINING if mixes else WARM_UP

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of the mixture, or of each image's own branch in the warm-up."""
        if self.stage == WARM_UP:
            return F.cross_entropy(self.net(images, domains), labels)
        out = self.net.explain(images, domains)
        loss = F.cross_entropy(out.logits, labels)
        if self.domain_loss:
            loss = loss + self.domain_loss * F.nll_loss(out.weights.log(), domains)
        return loss

    def predict(self, images: Tensor) -> Tensor:
        """The mixture, weighted by each image's distances from the source domains."""
        logits: Tensor = self.net(images)
        return logits

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Runs every image under its own domain."""
        self.net(images, domains)
