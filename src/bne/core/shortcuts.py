"""Faster ways to the same results, used if they save time or memory.

- Folding: on a GPU the launches of many small operations limit a few images. So the scales and
  shifts of all layers are made at once, and every layer applies its own.
- Running again: branches that run again in the backward pass need not keep their activations.
- Pooling: a network's first max-pooling sees its largest activations, in every branch. PyTorch's
  own took a seventh of a step of distance training with ResNet-18 on a GPU.
"""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bne.core.kernels import pooling_for
from bne.core.moments import Moments, is_traced, linear_map
from bne.core.norm import DomainBatchNorm
from bne.core.passes import Pass, Passes, Rule, copied

SMALL = 2**19
"""Values of input images up to which this pays; three images of 224² pixels have 450,000."""

FEW = 64
"""Images up to which the scales and shifts of all layers take little memory."""

Map = tuple[Tensor, Tensor]
"""Scale and shift of a layer's channels for every image, (N, C) each."""


def pays(images: Tensor, copies: int = 1) -> bool:
    """Whether a pass of (N, ...) images, each so many times, without gradients, is faster so."""
    return (
        images.is_cuda
        and not torch.is_grad_enabled()
        and copies * images.numel() <= SMALL
        and copies * len(images) <= FEW
        and not is_traced()
        and not torch.cuda.is_current_stream_capturing()  # a graph launches everything at once
    )


def fold(layers: Iterable[DomainBatchNorm], domains: Tensor) -> Rule:
    """The rule that normalizes every image by the running statistics of its domain.

    Args:
        layers: the network's layers, in evaluation. Those that cannot be prepared normalize by
            themselves.
        domains: (N,), the domain each image is run under.
    """
    alike: dict[float, list[DomainBatchNorm]] = {}
    for layer in layers:
        if _can_be_prepared(layer, domains.device):
            alike.setdefault(layer.eps, []).append(layer)
    maps = {layer: found for own in alike.values() for layer, found in _maps(own, domains)}

    def rule(layer: DomainBatchNorm, x: Tensor) -> Tensor:
        return layer.by_map(x, *maps[layer]) if layer in maps else layer.by_domain(x, domains)

    return rule


def _can_be_prepared(layer: DomainBatchNorm, device: torch.device) -> bool:
    """Whether a layer needs nothing but its parameters, and these are at hand before its turn."""
    # Sharded or offloaded parameters are of other types, or elsewhere, until the layer runs.
    parameters = (layer.weight, layer.bias)
    here = all(type(p) is nn.Parameter and p.device == device for p in parameters)
    plain = type(layer) is DomainBatchNorm and not layer.leans
    return plain and here and layer.population is not None


def _maps(layers: Sequence[DomainBatchNorm], domains: Tensor) -> list[tuple[DomainBatchNorm, Map]]:
    """The maps of layers that have the same eps."""
    populations = [layer.population for layer in layers]
    means = [population.mean for population in populations if population]
    variances = [population.var for population in populations if population]
    moments = Moments(torch.cat(means, 1), torch.cat(variances, 1))  # (K, channels of all layers)
    weight = torch.cat([layer.weight for layer in layers if layer.weight is not None])
    bias = torch.cat([layer.bias for layer in layers if layer.bias is not None])
    widths = [layer.num_features for layer in layers]
    scales, shifts = (
        each.index_select(0, domains).split(widths, 1)
        for each in linear_map(moments, weight, bias, layers[0].eps)
    )
    return list(zip(layers, zip(scales, shifts, strict=True), strict=True))


def run_recomputed(
    model: nn.Module, images: Tensor, copies: int, passes: Passes, rule: Rule, again: Rule
) -> Any:
    """The network's output; only the images are kept for the backward pass.

    Args:
        model: the network, whose layers follow the rule of `passes`.
        images: (N, ...).
        copies: the number of times each image runs.
        passes: the layers' common state.
        rule: the pass's rule.
        again: the same rule without tracking statistics a second time.

    Raises:
        RuntimeError: A CUDA graph is recorded, and a layer draws random numbers.
    """
    compiling = torch.compiler.is_compiling()
    capturing = images.is_cuda and not compiling and torch.cuda.is_current_stream_capturing()
    if capturing and (random := _random_layers(model)):
        raise RuntimeError(
            f"layer {random[0]!r} draws random numbers, which a CUDA graph cannot draw again when "
            "it repeats a branch: leave max_branches at None, or train without a graph"
        )

    def contexts() -> tuple[Any, Any]:
        return nullcontext(), Pass(passes, again)

    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": not capturing}
    if not compiling:  # a compiler repeats in its own way, which leaves tracking out
        options["context_fn"] = contexts
    with Pass(passes, rule):
        # Not `passes.copies`: a compiler lets what is run again set nothing outside.
        return checkpoint(lambda images: model(copied(images, copies)), images, **options)


def _random_layers(model: nn.Module) -> list[str]:
    """The names of layers that draw random numbers in training: dropout under all its names."""
    return [
        name
        for name, module in model.named_modules()
        if module.training
        and any(word in type(module).__name__.lower() for word in ("drop", "stochastic"))
        and any(getattr(module, share, 0) for share in ("p", "drop_prob", "drop_p"))
    ]


class FusedMaxPool2d(nn.MaxPool2d):
    """A `MaxPool2d` with the same results; see `fuse`."""

    def forward(self, input: Tensor) -> Any:  # noqa: A002 - by that name in torch
        """The maxima, and their indices if `return_indices` is set."""
        given = self.kernel_size, self.stride, self.padding, self.dilation
        size, stride, padding, dilation = map(_pair, given)
        suits = (
            dilation == (1, 1)
            and min(size) > 0
            and size[0] * size[1] <= 25  # compiling takes much longer for larger windows
            and min(stride) > 0
            and min(padding) >= 0
            and not (self.ceil_mode or self.return_indices)
        )
        pooling = pooling_for(input) if suits else None
        if pooling is None:
            return super().forward(input)
        return pooling.max_pool(input, size, stride, padding)


def fuse(module: nn.Module) -> None:
    """Lets a plain `MaxPool2d` use our kernels if they are faster."""
    if type(module) is nn.MaxPool2d:
        module.__class__ = FusedMaxPool2d


def unfuse(module: nn.Module) -> None:
    """Undoes `fuse`."""
    if type(module) is FusedMaxPool2d:
        module.__class__ = nn.MaxPool2d  # type: ignore[assignment]


def _pair(size: object) -> tuple[int, int]:
    """Height and width; negative if only torch understands them."""
    match size:
        case int():
            return size, size
        case [int(height), int(width)]:
            return height, width
    return -1, -1
