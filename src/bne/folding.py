"""Normalisation by running statistics, prepared for all layers at once.

One image keeps a GPU busy for less time than it takes to launch the small operations that turn
statistics into scales and shifts, layer by layer. Here the layers share them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bne.norm import DomainBatchNorm, Rule

SMALL = 2**19
"""Values of input images up to which this pays; three images of 224² pixels have 450,000."""

Map = tuple[Tensor, Tensor]
"""Scale and shift of a layer's channels for every image, (N, C) each."""


def pays(images: Tensor) -> bool:
    """Whether a pass of (N, ...) images is faster so; it has no gradients."""
    if torch.is_grad_enabled() or images.numel() > SMALL:
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return False
    # A graph launches everything at once.
    return not (images.is_cuda and torch.cuda.is_current_stream_capturing())


def fold(layers: Sequence[DomainBatchNorm], domains: Tensor) -> Rule:
    """The rule that normalises every image by the running statistics of its domain.

    Args:
        layers: of the network, in evaluation.
        domains: (N,), the domain each image is run under.
    """
    alike: dict[float, list[DomainBatchNorm]] = {}
    for layer in layers:
        if layer.track_running_stats and layer.affine:
            alike.setdefault(layer.eps, []).append(layer)
    maps = {layer: found for own in alike.values() for layer, found in _maps(own, domains)}

    def rule(layer: DomainBatchNorm, x: Tensor) -> Tensor:
        return layer.by_map(x, *maps[layer]) if layer in maps else layer.by_domain(x, domains)

    return rule


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
