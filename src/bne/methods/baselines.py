"""One network for all domains: DeepAll, and two of the paper's other ways to normalize."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bne.core.activations import image_moments, mapped
from bne.core.convert import convert
from bne.core.ensemble import DomainEnsemble
from bne.core.moments import (
    Moments,
    at_least_float32,
    leaned,
    samples_of,
    values_per_channel,
)
from bne.core.norm import DomainBatchNorm
from bne.core.options import Lean, lean_shares
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
        self._lean: Lean = 0.0
        self._hooks: list[Any] = []
        self._batch = _Batch()

    @property
    def lean(self) -> Lean:
        """As `Method.lean`; the network stays the plain one, and its layers' inputs are moved.

        A network that was compiled at 0 does not lean: compile it again.
        """
        return self._lean

    @lean.setter
    def lean(self, lean: Lean) -> None:
        named = self.net.named_modules()
        layers = {name: layer for name, layer in named if isinstance(layer, _BatchNorm)}
        shares = lean_shares(lean, layers)
        for hook in self._hooks:
            hook.remove()
        self._hooks = [
            layers[name].register_forward_pre_hook(partial(self._leaning_input, share=share))
            for name, share in shares.items()
            if share
        ]
        if self._hooks:
            count = self.net.register_forward_pre_hook(self._batch.count, prepend=True)
            self._hooks.append(count)
        self._lean = lean

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

    def _leaning_input(
        self, layer: nn.Module, inputs: tuple[Tensor], share: float
    ) -> tuple[Tensor] | None:
        """The input that a plain layer normalizes as if it leaned on the given one."""
        assert isinstance(layer, _BatchNorm)
        (x,) = inputs
        mean, var = layer.running_mean, layer.running_var
        if self.training or mean is None or var is None:
            return None
        samples = samples_of(x, self._batch.images)
        if values_per_channel(samples) == 1:
            return None
        mean, var = at_least_float32(mean), at_least_float32(var)
        known, own = Moments(mean, var), image_moments(samples)
        point = leaned(known, own, torch.as_tensor(share, device=x.device), layer.eps)
        scale = ((var + layer.eps) / (point.var + layer.eps)).sqrt()
        return (mapped(samples, scale, mean - point.mean * scale),)


class _Batch(threading.local):
    """How many images the network is run on, in this thread; each may own several of its rows."""

    images: int

    def count(self, _: nn.Module, inputs: tuple[Tensor]) -> None:
        self.images = inputs[0].shape[0]

    def __reduce__(self) -> tuple[type["_Batch"], tuple[()]]:
        return _Batch, ()  # no two copies run at once


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
