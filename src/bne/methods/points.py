"""Points: images trained under their own domain and, leaning on themselves, under another."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bne.core.convert import convert
from bne.core.distances import Distance
from bne.core.ensemble import DomainEnsemble
from bne.core.norm import domain_layers
from bne.core.options import Mix, check_share
from bne.core.points import another
from bne.core.surgery import Momentum
from bne.methods.bne import BNE, BranchMethod
from bne.methods.method import register
from bne.methods.mixstyle import Partners, StyleMixing

START = 0.2  # of shares that are learned


class LayerShares(nn.Module):
    """How far images lean at each layer that has running statistics: a share that is learned.

    Args:
        net: the network.

    Attributes:
        logits: (layers,), the shares before the sigmoid.
    """

    def __init__(self, net: DomainEnsemble) -> None:
        super().__init__()
        self.names = [layer.name for layer in domain_layers(net.model) if layer.population]
        start = math.log(START / (1 - START))
        self.logits = nn.Parameter(torch.full((len(self.names),), start))

    def forward(self) -> dict[str, Tensor]:
        """The shares, () each, by layer name."""
        return dict(zip(self.names, self.logits.sigmoid().unbind(), strict=True))


class PointsMethod(BranchMethod):
    """Every image twice in one pass, once under its domain and once leaning, after the warm-up.

    Attributes:
        max_lean: the largest share that images lean by in training.
        shares: the shares that are learned instead, if any.
    """

    mixing: ClassVar[str] = "points"
    most_lean: ClassVar[float] = 0.2
    max_lean: float
    shares: LayerShares | None

    def _set_shares(self, max_lean: float, *, learn_lean: bool) -> None:
        check_share("max_lean", max_lean)
        self.max_lean = max_lean
        self.shares = LayerShares(self.net) if learn_lean else None

    @property
    def learned_lean(self) -> dict[str, float] | None:
        """The shares learned by now, by layer name; None if none are."""
        if self.shares is None:
            return None
        return {name: share.item() for name, share in self.shares().items()}

    @classmethod
    def cost(
        cls, epoch: int, warm_up: int, domains: int, options: Mapping[str, Any]
    ) -> tuple[str, float, float]:
        """Every image is run twice after the warm-up, whatever the number of domains."""
        mix = options.get("mix", "centre")
        stage, passes, once = super().cost(epoch, warm_up, domains, {**options, "mix": mix})
        return stage, min(passes, 2), once

    def mixture_loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Mean cross-entropy at both points of every image."""
        max_lean = self.max_lean if self.shares is None else self.shares()
        where = {"elsewhere": self.elsewhere(domains), "beyond": self.how_far_beyond(domains)}
        logits = self.net(images, domains, max_lean=max_lean, **where)
        return self.cross_entropy(logits, labels.repeat(2))

    def elsewhere(self, domains: Tensor) -> Tensor | None:
        """The domains' weights at each image's second point, (N, K); None for one other domain."""
        return None

    def how_far_beyond(self, domains: Tensor) -> Tensor | None:
        """How far past its domain each image's second point lies, (N,); None for not at all."""
        return None


@register(
    "points",
    "past the paper: every image is trained at two points of the space of domains, under its own "
    "domain and, leaning on its own statistics, under another",
)
class Points(PointsMethod, BNE):
    """One branch per source domain, and every image in two of them, at the price of two passes.

    After the warm-up each image is run under its own domain and, in the same pass, under another
    one of the batch, where it leans by a random share. The loss is the mean of both. Images are
    predicted at the domains' centre, in one pass.

    Args:
        model: the plain network.
        domains: the source domains' names.
        max_lean: the largest share that images lean by in training.
        learn_lean: whether training learns the share instead, one for each layer.
        centre: the share of images whose second point is the centre of the domains in the batch.
        groups: whether the other second points are centres of random groups: of another domain
            and, each by an even chance, those that are left, the image's own among them.
        beyond: how far second points lie past their domains at most, on the line from the centre of
            the domains in the batch, as a share of the distance from there; drawn from 0 to this.
        mixstyle: the partners of images that mix their features' means and deviations, as in the
            method "mixstyle"; None mixes none. With "own domain" first points stay in their branch;
            a second one mixes with its partner's, which may lie under another domain.
        momentum: as in `bne.convert`, like all that follow.
        distance: how far images lie from the domains.
        layers: the layers whose statistics are compared, by name, or the number of first ones.
        mix: how images are predicted.
        nearest: the number of branches run for each image if branches are mixed.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        max_lean: float = 0.5,
        learn_lean: bool = False,
        centre: float = 0.0,
        groups: bool = False,
        beyond: float = 0.0,
        mixstyle: Partners | None = None,
        momentum: Momentum = 0.01,
        distance: str | Distance = "wasserstein",
        layers: Sequence[str] | int | None = None,
        mix: Mix = "centre",
        nearest: int | None = None,
    ) -> None:
        super().__init__(
            model,
            domains,
            mixstyle=mixstyle,
            momentum=momentum,
            distance=distance,
            layers=layers,
            mix=mix,
            nearest=nearest,
        )
        self._set_shares(max_lean, learn_lean=learn_lean)
        check_share("centre", centre)
        check_share("beyond", beyond)
        self.centre, self.groups, self.beyond = centre, groups, beyond

    def elsewhere(self, domains: Tensor) -> Tensor | None:
        """The domains' weights at each image's second point, (N, K); None for one other domain."""
        if not (self.centre or self.groups):
            return None
        device = domains.device
        each = torch.arange(len(self.net.domains), device=device)
        taken = another(domains, len(each)).unsqueeze(1) == each
        present = (domains.unsqueeze(1) == each).any(0)
        if self.groups:
            taken = taken | (present & (torch.rand(taken.shape, device=device) < 0.5))
        if self.centre:
            central = torch.rand((len(domains), 1), device=device) < self.centre
            taken = torch.where(central, present, taken)
        return taken / taken.sum(1, keepdim=True)

    def how_far_beyond(self, domains: Tensor) -> Tensor | None:
        """How far past its domain each image's second point lies, (N,); None for not at all."""
        if not self.beyond:
            return None
        return torch.rand(domains.shape, device=domains.device) * self.beyond


@register(
    "deepall-points",
    "past the paper: points without domains; every image is trained as in DeepAll and, leaning on "
    "its own statistics, once more",
)
class DeepAllPoints(PointsMethod):
    """`Points` with all domains as one: one network, and no need to know any domain.

    Args:
        model: the plain network.
        domains: the source domains' names, which play no part.
        max_lean: the largest share that images lean by in training.
        learn_lean: whether training learns the share instead, one for each layer.
        mixstyle: the partners of images that mix their features' means and deviations, as in the
            method "mixstyle"; None mixes none.
        momentum: the least share of a new batch in the running statistics, as in `bne.convert`.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        max_lean: float = 0.5,
        learn_lean: bool = False,
        mixstyle: Partners | None = None,
        momentum: Momentum = 0.01,
    ) -> None:
        super().__init__("after warm-up")
        self.styles = None if mixstyle is None else StyleMixing(model, partners=mixstyle)
        self.net = convert(model, momentum=momentum)
        self._set_shares(max_lean, learn_lean=learn_lean)

    def _branch_of(self, domains: Tensor) -> Tensor:
        """The one branch of all."""
        return torch.zeros_like(domains)

    def predict(self, images: Tensor) -> Tensor:
        """The network's logits."""
        logits: Tensor = self.net(images)
        return logits
