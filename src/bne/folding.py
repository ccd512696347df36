"""Normalisation by running statistics, prepared for all layers at once.

One image keeps a GPU busy for less time than it takes to launch the small operations that turn
statistics into scales and shifts, layer by layer. Here the layers share them.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from bne.norm import DomainBatchNorm
from bne.passes import Rule

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
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        and not torch.cuda.is_current_stream_capturing()  # a graph launches everything at once
    )


def fold(layers: Iterable[DomainBatchNorm], domains: Tensor) -> Rule:
    """The rule that normalises every image by the running statistics of its domain.

    Args:
        layers: of the network, in evaluation. Those that cannot be prepared normalise by
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
    """Whether a layer is of no other kind, and its parameters are at hand before its turn."""
    # Sharded or offloaded parameters are of other types, or elsewhere, until the layer runs.
    parameters = (layer.weight, layer.bias)
    here = all(type(p) is nn.Parameter and p.device == device for p in parameters)
    return type(layer) is DomainBatchNorm and here and layer.population is not None


def _maps(layers: Sequence[DomainBatchNorm], domains: Tensor) -> list[tuple[DomainBatchNorm, Map]]:
    """The maps of layers that have the same eps."""
    populations = [layer.population for layer in layers]
    mean = torch.cat([population.mean for population in populations if population], 1)
    var = torch.cat([population.var for population in populations if population], 1)
    weight = torch.cat([layer.weight for layer in layers if layer.weight is not None])
    bias = torch.cat([layer.bias for layer in layers if layer.bias is not None])
    scale = (var + layers[0].eps).rsqrt() * weight  # (K, channels of all layers)
    shift = torch.addcmul(bias, mean, scale, value=-1)
    widths = [layer.num_features for layer in layers]
    scales, shifts = (s.index_select(0, domains).split(widths, 1) for s in (scale, shift))
    return list(zip(layers, zip(scales, shifts, strict=True), strict=True))
