"""One network for all domains: DeepAll, and two of the paper's other ways to normalize."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bne.core.convert import convert
from bne.core.ensemble import DomainEnsemble
from bne.core.norm import DomainBatchNorm
from bne.core.surgery import Momentum, check_momentum
from bne.methods.method import Look, Method, register


@register(
    "deepall",
    "the natural deep-learning baseline to compare against consists in training directly on the "
    "merged set of source domains",
)
class DeepAll(Method):
    """One network for all domains; their batches are one batch to every batch-norm layer.

    Args:
        model: the plain network.
        domains: the source domains' names, which play no part.
        momentum: the share of a new batch in the running statistics; None averages all batches,
            "keep" uses each layer's own.
        balanced: whether a batch has as many images of each domain; otherwise all training images
            are one set, from which batches are drawn.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        momentum: Momentum = "keep",
        balanced: bool = True,
    ) -> None:
        super().__init__()
        self.net = model
        self.balanced = balanced
        check_momentum(momentum)
        if momentum != "keep":
            for layer in model.modules():
                if isinstance(layer, _BatchNorm):
                    layer.momentum = momentum

    def members(
        self, members: Mapping[str, Sequence[int]], epoch: int, look: Look
    ) -> Mapping[str, Sequence[int]]:
        """The source domains or, unless they are balanced, all images under each of their names."""
        if self.balanced:
            return members
        everyone = [number for numbers in members.values() for number in numbers]
        return dict.fromkeys(members, everyone)

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy; the domains play no part."""
        return self.cross_entropy(self.net(images), labels)

    def predict(self, images: Tensor) -> Tensor:
        """The network's own logits."""
        logits: Tensor = self.net(images)
        return logits


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
        for layer in self.modules():
            if isinstance(layer, _BatchNorm):
                layer.training = False  # a fused layer's own dropout still follows the mode
        return self

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Does nothing: the statistics stay as they are."""


@register(
    "instance-norm",
    "comparison of our method against other popular normalization strategies: (a) InstanceNorm",
)
class InstanceNorm(Method):
    """One network for all domains, every image normalized by its own statistics.

    γ and β stay those of batch norm. Layers that see one value per channel, where an image has no
    variance, stay batch norm, all domains being one.

    Args:
        model: the plain network.
        domains: the source domains' names, which play no part.
    """

    net: DomainEnsemble
    can_lean: ClassVar[bool] = False

    def __init__(self, model: nn.Module, domains: Sequence[str]) -> None:
        super().__init__()
        self.net = convert(model, ["all"], momentum="keep")

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy; the domains play no part."""
        return self.cross_entropy(self.predict(images), labels)

    def predict(self, images: Tensor) -> Tensor:
        """The logits of the network, normalizing as above."""
        count = images.shape[0]
        everyone = torch.zeros(count, dtype=torch.long, device=images.device)
        members = torch.ones_like(everyone, dtype=torch.bool)

        def rule(layer: DomainBatchNorm, x: Tensor) -> Tensor:
            if x.numel() > count * layer.num_features:
                return layer.by_instance(x, count)[0]
            return layer.by_domain(x, everyone, members)

        logits: Tensor = self.net.run(images, rule)
        return logits

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Runs the images; only the layers that stay batch norm keep their statistics."""
        self.predict(images)
