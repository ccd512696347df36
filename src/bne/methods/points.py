"""Points: images trained under their own domain and, leaning on themselves, under another."""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.core.convert import convert
from bne.core.distances import Distance
from bne.core.ensemble import DomainEnsemble, Mix, check_share
from bne.core.surgery import Momentum
from bne.methods.bne import BNE, BranchMethod
from bne.methods.registry import register


@register(
    "points",
    "past the paper: every image is trained at two points of the space of domains, under its own "
    "domain and, leaning on its own statistics, under another",
)
class Points(BNE):
    """One branch per source domain, and every image in two of them, at the price of two passes.

    After the warm-up each image is run under its own domain and, in the same pass, under another
    one of the batch, where it leans by a random share. The loss is the mean of both. Images are
    predicted at the domains' centre, in one pass.

    Args:
        model: the plain network.
        domains: the source domains' names.
        max_lean: the largest share that images lean by in training.
        momentum: as in `bne.convert`, like all that follow.
        distance: how far images lie from the domains.
        layers: the layers whose statistics are compared.
        mix: how images are predicted.
        nearest: the number of branches run for each image if branches are mixed.
    """

    mixing: ClassVar[str] = "points"
    most_lean: ClassVar[float] = 0.2

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        max_lean: float = 0.5,
        momentum: Momentum = 0.01,
        distance: str | Distance = "wasserstein",
        layers: Sequence[str] | None = None,
        mix: Mix = "centre",
        nearest: int | None = None,
    ) -> None:
        super().__init__(
            model,
            domains,
            momentum=momentum,
            distance=distance,
            layers=layers,
            mix=mix,
            nearest=nearest,
        )
        check_share("max_lean", max_lean)
        self.max_lean = max_lean

    def mixture_loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Mean cross-entropy at both points of every image."""
        return _loss(self.net, images, labels, domains, self.max_lean)


@register(
    "deepall-points",
    "past the paper: points without domains; every image is trained as in DeepAll and, leaning on "
    "its own statistics, once more",
)
class DeepAllPoints(BranchMethod):
    """`Points` with all domains as one: one network, and no need to know any domain.

    Args:
        model: the plain network.
        domains: the source domains' names, which play no part.
        max_lean: the largest share that images lean by in training.
        momentum: the least share of a new batch in the running statistics, as in `bne.convert`.
    """

    mixing: ClassVar[str] = "points"
    most_lean: ClassVar[float] = 0.2

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        max_lean: float = 0.5,
        momentum: Momentum = 0.01,
    ) -> None:
        super().__init__("after warm-up")
        self.net = convert(model, momentum=momentum)
        check_share("max_lean", max_lean)
        self.max_lean = max_lean

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """As that of `Points`, with every image in the one domain."""
        return super().loss(images, labels, torch.zeros_like(domains))

    def mixture_loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Mean cross-entropy of every image as it is and leaning."""
        return _loss(self.net, images, labels, domains, self.max_lean)

    def predict(self, images: Tensor) -> Tensor:
        """The network's logits."""
        logits: Tensor = self.net(images)
        return logits

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Runs every image in the one domain."""
        super().observe(images, torch.zeros_like(domains))


def _loss(
    net: DomainEnsemble, images: Tensor, labels: Tensor, domains: Tensor, max_lean: float
) -> Tensor:
    return F.cross_entropy(net(images, domains, max_lean=max_lean), labels.repeat(2))
