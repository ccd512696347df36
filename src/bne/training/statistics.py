"""Population statistics of batch norm, measured on training images instead of averaged on the way.

Batches are drawn as in training: shuffled, of its size, with as many images of every domain. What
a layer is measured on depends on how the layers before it were normalized, so batches of another
make, of one class for instance, would give statistics that training has never seen.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bne.core.moments import Moments, combine, image_moments
from bne.core.norm import DomainBatchNorm
from bne.data.batches import DomainBatches, seed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bne.methods import Method

SCORING_STEPS = 64
"""Batches that statistics for scoring are measured on."""

SHORT = 1000
"""Steps of training below which tracked statistics, which remember about 100, lag too far behind.

None of the runs behind docs/results.md is as short."""

Layer = DomainBatchNorm | _BatchNorm


class Batch(NamedTuple):
    """Images to run together: (N,) numbers, domains, and whether each is seen the first time."""

    numbers: Tensor
    domains: Tensor
    counts: Tensor


def draw(
    members: Mapping[str, Sequence[int]], per_domain: int, seed: int, steps: int | None = None
) -> Iterator[Batch]:
    """At most `steps` batches as training draws them, until every image has been in one.

    A small domain starts again when it is used up, but each of its images counts once.
    """
    batches = DomainBatches(members, per_domain, seed=seed_of(seed, "statistics"))
    sizes = torch.tensor([len(numbers) for numbers in members.values()])
    needed = -(-int(sizes.max()) // per_domain)
    for step in range(needed if steps is None else min(steps, needed)):
        places = torch.arange(step * per_domain, (step + 1) * per_domain)
        yield Batch(batches.batch(step), batches.domains, (places < sizes.unsqueeze(1)).flatten())


class _Sums:
    """Mean and second moment of one layer's input, domain by domain, as sums over images."""

    def __init__(self, domains: int) -> None:
        self._domains = domains
        self._images: Tensor | None = None
        self._sums: Tensor | None = None
        self.values = 0

    def add(self, x: Tensor, domains: Tensor, counts: Tensor) -> None:
        """Adds images, (N * rows, C, *spatial), that belong to domains, (N,), and count, (N,)."""
        samples = x.unflatten(0, (len(domains), -1))
        mean, var = image_moments(samples)
        mean, var = mean.double(), var.double()
        each = torch.arange(self._domains, device=x.device).unsqueeze(1)
        belongs = ((domains == each) & counts).double()  # (K, N)
        sums = torch.stack([belongs @ mean, belongs @ (var + mean.square())])
        images = belongs.sum(1)
        self._sums = sums if self._sums is None else self._sums + sums
        self._images = images if self._images is None else self._images + images
        self.values = samples[0].numel() // samples.shape[2]

    def moments(self) -> tuple[Moments, Tensor]:
        """The K domains' moments, (K, C), and numbers of images, (K,)."""
        assert self._sums is not None
        assert self._images is not None
        mean, second = self._sums / self._images.unsqueeze(1)
        return Moments(mean, second - mean.square()), self._images


@torch.no_grad()
def recompute(
    method: Method,
    batches: Sequence[Batch],
    images_of: Callable[[Iterable[Tensor]], Iterator[Tensor]],
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
) -> None:
    """Sets the running statistics of every layer that is trained with batch statistics.

    Args:
        method: its `observe` runs the images; it is left in the mode it was in.
        batches: what to measure on, see `draw`.
        images_of: gives the network's input, (N, 3, H, W), for each list of numbers.
        device: where they are.
        autocast: makes the context in which the network runs.
    """
    before = {name: value.clone() for name, value in method.named_buffers()}
    domains = int(batches[0].domains.max()) + 1
    sums: dict[Layer, _Sums] = defaultdict(lambda: _Sums(domains))
    training = method.training
    method.train()
    current: list[Tensor] = []

    def measure(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if layer.training:
            sums[layer].add(inputs[0], *current)  # type: ignore[index]

    with ExitStack() as hooks:
        for layer in _layers(method):
            hooks.callback(layer.register_forward_pre_hook(measure).remove)
        for batch, images in zip(batches, images_of(b.numbers for b in batches), strict=True):
            current[:] = batch.domains.to(device), batch.counts.to(device)
            with autocast():
                method.observe(images, current[0])
    method.train(training)
    for name, value in method.named_buffers():
        value.copy_(before[name])  # `observe` has moved the running ones
    for layer, found in sums.items():
        _set(layer, found)


def _layers(method: nn.Module) -> list[Layer]:
    return [
        module
        for module in method.modules()
        if isinstance(module, DomainBatchNorm | _BatchNorm) and module.running_mean is not None
    ]


def _set(layer: Layer, sums: _Sums) -> None:
    """Gives a layer each domain's statistics or, if it has one pair, those of all alike.

    A domain without images keeps those it has.
    """
    moments, images = sums.moments()
    if isinstance(layer, DomainBatchNorm) and layer.num_domains == len(images):
        assert layer.population is not None
        measured = (images > 0).unsqueeze(1)
        mean = torch.where(measured, moments.mean, layer.population.mean)
        var = torch.where(measured, moments.var, layer.population.var)
    else:
        mean, var = combine(moments, torch.full_like(images, 1 / len(images)))
    if isinstance(layer, _BatchNorm):
        count = images.sum() * sums.values
        var = var * count / (count - 1)  # torch's layers keep the unbiased variance
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.running_mean.copy_(mean)
    layer.running_var.copy_(var)
