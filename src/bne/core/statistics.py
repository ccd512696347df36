"""Running statistics of batch norm: measured on images, and kept from steps that are skipped.

What a layer is measured on depends on how the layers before it were normalized. So images run in
training mode, in batches like those of training.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bne.core.activations import image_moments
from bne.core.ensemble import DomainEnsemble
from bne.core.moments import Moments, combine, in_processes, leaned
from bne.core.norm import DomainBatchNorm
from bne.core.options import check_least

Layer = DomainBatchNorm | _BatchNorm

WAITING = 16
"""Batches that are summed up at once: for small sums, a GPU takes longer to start than to add."""


def recompute_statistics(
    net: DomainEnsemble, loader: Iterable[Sequence[Any]], *, shrinkage: float = 0.0
) -> None:
    """Sets each domain's running statistics to those of its images, measured exactly.

    Do it when training is over, or before you score averaged weights: running averages lag behind
    the weights. If several processes train, each may give images of its own; all of them count.

    Args:
        net: the network, left in the mode it was in.
        loader: batches of images, (N, ...), whatever else, and last the domains, (N,), as indices
            or names. They should be like those of training: shuffled, of its size, with several
            images of each domain.
        shrinkage: the number of images at which a domain's own statistics count half, and the other
            half is the average domain's; see `shrunk`. 0 takes each domain's own.

    Raises:
        ValueError: There are no images of a domain, or shrinkage is below 0.
    """
    if not isinstance(net, DomainEnsemble):
        raise TypeError(f"only what bne.convert made has domains, not a {type(net).__name__}")
    device = next(net.parameters()).device

    def batches() -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        for images, *_, domains in loader:
            ids = net.indices(domains, images := images.to(device))
            yield images, ids, torch.ones_like(ids, dtype=torch.bool)

    def observe(images: Tensor, ids: Tensor) -> None:
        net(images, ids, own_branch=True)

    several = in_processes()
    measure(net, batches(), observe, len(net.domains), shrinkage=shrinkage, pooled=several)


@contextmanager
def forget_skipped_step(net: nn.Module, scaler: torch.amp.GradScaler) -> Iterator[None]:
    """Puts running statistics back if the scaler skips the step in the block.

    A scaler skips the step of an optimizer if a gradient is infinite or NaN. The forward pass
    before it has updated the running statistics by then.

    The block holds one step: the forward and backward passes, several if gradients are accumulated,
    then `scaler.step` and `scaler.update`. A skipped step is one that makes the scaler lower its
    scale. All buffers of the network are put back, so batch norms of every kind are covered.

    Args:
        net: the network that is trained, converted or not.
        scaler: the scaler of its gradients; one that is disabled skips nothing.
    """
    scale = scaler.get_scale()
    before = [buffer.clone() for buffer in net.buffers()]
    yield
    if scaler.get_scale() < scale:
        with torch.no_grad():
            for buffer, old in zip(net.buffers(), before, strict=True):
                buffer.copy_(old)


@torch.no_grad()
def measure(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
    observe: Callable[[Tensor, Tensor], object],
    domains: int,
    *,
    shrinkage: float = 0.0,
    pooled: bool = False,
) -> None:
    """Sets the running statistics of every layer that is trained with batch statistics.

    Args:
        network: left in the mode it was in.
        batches: images, (N, ...), with their domains, (N,), and whether each counts, (N,).
        observe: runs images of some domains through the network.
        domains: the number of domains.
        shrinkage: as in `recompute_statistics`.
        pooled: whether the images of all processes count together.

    Raises:
        ValueError: There are no images of a domain, or shrinkage is below 0.
    """
    check_least(0, shrinkage=shrinkage)
    before = {name: value.clone() for name, value in network.named_buffers()}
    sums: dict[Layer, _Sums] = defaultdict(_Sums)
    modes = {module: module.training for module in network.modules()}
    current: list[Tensor] = []  # (K, N), which images of the present batch count for which domain

    def add(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if layer.training:
            sums[layer].add(inputs[0], *current)  # type: ignore[index]

    try:
        network.train()
        with ExitStack() as hooks:
            for layer in _layers(network):
                hooks.callback(layer.register_forward_pre_hook(add).remove)
            for images, ids, counts in batches:
                each = torch.arange(domains, device=ids.device).unsqueeze(1)
                current[:] = [((ids == each) & counts).double()]
                observe(images, ids)
    finally:
        network.train(modes[network])  # which methods do more in than set modes
        for module, training in modes.items():
            module.training = training
        for name, value in network.named_buffers():
            value.copy_(before[name])  # `observe` has moved the running ones
    if not current:
        raise ValueError("there are no images to measure statistics on")
    found = {layer: one.moments(pooled=pooled) for layer, one in sums.items()}
    for layer, (moments, images) in found.items():
        _set(layer, moments, images, sums[layer].values, shrinkage)


def shrunk(moments: Moments, images: Tensor, shrinkage: float, eps: float) -> Moments:
    """Statistics of domains that lean on those of the average domain, the less images they have.

    A domain of n images keeps n / (n + shrinkage) of its own statistics. Domains count by that
    share in the average, too. Both are made in mean and deviation, as images lean.

    Args:
        moments: (K, C).
        images: (K,), the domains' numbers of images.
        shrinkage: the number of images at which a domain leans half; above 0.
        eps: the layer's constant.
    """
    kept = images / (images + shrinkage)
    share = (kept / kept.sum()).unsqueeze(1)
    deviation = (share * (moments.var + eps).sqrt()).sum(0)
    average = Moments((share * moments.mean).sum(0), deviation.square() - eps)
    target = Moments(*(one.expand_as(moments.mean) for one in average))
    return leaned(moments, target, (1 - kept).unsqueeze(1), eps)


class _Sums:
    """Mean and second moment of one layer's input, domain by domain, as sums over images."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Moments]] = []
        self._images: Tensor | None = None
        self._sums: Tensor | None = None
        self.values = 0

    def add(self, x: Tensor, belongs: Tensor) -> None:
        """Adds images, (N * rows, C, *spatial), that belong to domains, (K, N), 1 or 0."""
        samples = x.unflatten(0, (belongs.shape[1], -1))
        self._waiting.append((belongs, image_moments(samples)))
        self.values = samples[0].numel() // samples.shape[2]
        if len(self._waiting) == WAITING:
            self._sum_up()

    def _sum_up(self) -> None:
        belongs = torch.cat([known for known, _ in self._waiting], 1)
        own = zip(*(moments for _, moments in self._waiting), strict=True)
        mean, var = (torch.cat(each).double() for each in own)
        self._waiting.clear()
        sums = torch.stack([belongs @ mean, belongs @ (var + mean.square())])
        images = belongs.sum(1)
        self._sums = sums if self._sums is None else self._sums + sums
        self._images = images if self._images is None else self._images + images

    def moments(self, *, pooled: bool) -> tuple[Moments, Tensor]:
        """The K domains' moments, (K, C), and numbers of images, (K,), of all processes or this."""
        if self._waiting:
            self._sum_up()
        assert self._sums is not None
        assert self._images is not None
        if pooled:
            distributed.all_reduce(self._sums)
            distributed.all_reduce(self._images)
        if empty := (self._images == 0).nonzero().flatten().tolist():
            raise ValueError(f"there are no images of domain {empty[0]} to measure statistics on")
        mean, second = self._sums / self._images.unsqueeze(1)
        return Moments(mean, second - mean.square()), self._images


def _layers(network: nn.Module) -> list[Layer]:
    return [
        module
        for module in network.modules()
        if isinstance(module, DomainBatchNorm | _BatchNorm) and module.running_mean is not None
    ]


def _set(layer: Layer, moments: Moments, images: Tensor, values: int, shrinkage: float) -> None:
    """Gives a layer each domain's statistics or, if it has one pair, those of all alike."""
    if isinstance(layer, DomainBatchNorm) and layer.num_domains == len(images):
        mean, var = shrunk(moments, images, shrinkage, layer.eps) if shrinkage else moments
    else:
        mean, var = combine(moments, torch.full_like(images, 1 / len(images)))
    if isinstance(layer, _BatchNorm):
        count = images.sum() * values
        var = var * count / (count - 1)  # torch's layers keep the unbiased variance
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.running_mean.copy_(mean)
    layer.running_var.copy_(var)
