"""BNE, the paper's method."""

from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from bne.distances import Distance, nearness
from bne.ensemble import convert
from bne.methods.policy import BranchMethod, When
from bne.methods.registry import register
from bne.prediction import Prediction
from bne.surgery import Momentum


@register(
    "bne-ce",
    "applying a cross-entropy loss also on the domain membership assigned through our "
    "representation",
    domain_loss=1.0,
)
@register(
    "bne",
    "(c) includes a warm-up phase in the initial training phase to help population statistics to "
    "converge to stable values before starting distance training",
)
@register(
    "bne-b",
    "(b) leveraging distance weighting (DT) at training time",
    distance_training="always",
)
@register(
    "bne-a",
    "(a) the usage of separate batchnorm statistics for each training domain, while using at "
    "inference time the projection and weighting strategy",
    distance_training="never",
)
class BNE(BranchMethod):
    """One branch per source domain, mixed by the distances of an image from the domains.

    Args:
        model: the plain network.
        domains: the source domains' names.
        distance_training: when the loss is that of the mixture, Algorithm 1: "never", "always" or
            "after warm-up"; otherwise every image is run under its own domain.
        domain_loss: factor of the cross-entropy of the domain weights in distance training.

    All other arguments are those of `bne.DomainEnsemble`.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        distance_training: When = "after warm-up",
        domain_loss: float = 0.0,
        momentum: Momentum = 0.01,
        distance: str | Distance = "wasserstein",
        layers: Sequence[str] | None = None,
        mix: Literal["logits", "probabilities", "statistics"] = "logits",
        nearest: int | None = None,
        branch_statistics: Literal["batch", "population"] = "batch",
        weight_gradient: bool = True,
        max_branches: int | None = None,
    ) -> None:
        super().__init__(distance_training)
        if domain_loss < 0:
            raise ValueError(f"domain_loss must be at least 0, not {domain_loss}")
        if domain_loss and not weight_gradient:
            raise ValueError(
                f"domain_loss={domain_loss} trains through the weights: it needs weight_gradient"
            )
        self.net = convert(
            model,
            domains,
            momentum=momentum,
            distance=distance,
            layers=layers,
            mix=mix,
            nearest=nearest,
            branch_statistics=branch_statistics,
            weight_gradient=weight_gradient,
            max_branches=max_branches,
        )
        self.domain_loss = domain_loss

    def mixture_loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of the mixture and, if wanted, of the domain weights."""
        out = self.net.explain(images, domains)
        loss = F.cross_entropy(out.logits, labels)
        if self.domain_loss:
            # Not of the weights, whose own logarithm may be -inf.
            loss = loss + self.domain_loss * F.cross_entropy(nearness(out.distances), domains)
        return loss

    def explain(self, images: Tensor) -> Prediction:
        """What `predict` says of images of unknown domain, and why, in evaluation mode."""
        return self.net.explain(images)

    def predict(self, images: Tensor) -> Tensor:
        """The mixture, weighted by each image's distances from the source domains."""
        return self.explain(images).logits
