"""Means and variances of images, of groups of images and of all processes."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed


class Moments(NamedTuple):
    """Mean and biased variance of every channel.

    Attributes:
        mean: (..., C).
        var: (..., C).
    """

    mean: Tensor
    var: Tensor


def combine(members: Moments, share: Tensor, group: Tensor | None = None) -> Moments:
    """Moments of groups, from those of their members, by the law of total variance.

    Args:
        members: moments of shape (..., M, C) that broadcast over the groups.
        share: (..., M), each member's share in a group; a group's shares add up to 1.
        group: (M,), the only group of each member, if it has a share in one alone; saves memory.

    Returns:
        Moments of shape (..., C).
    """
    mean = _total(share, members.mean)
    centre = mean.unsqueeze(-2) if group is None else mean[group]
    spread = members.var + (members.mean - centre).square()
    return Moments(mean, _total(share, spread))


def leaned(known: Moments, own: Moments, share: Tensor, eps: float) -> Moments:
    """The point so far on the way from a domain's statistics to an image's own.

    The way is the Wasserstein geodesic, a straight line in mean and deviation, where a deviation is
    √(variance + eps), what a layer divides by.

    Args:
        known: moments of shape (..., C).
        own: moments of the same shape.
        share: how far to go, 0 for the domain and 1 for the image; broadcasts over both.
        eps: the layer's constant.
    """
    share = share.to(known.mean.dtype)
    mean = torch.lerp(known.mean, own.mean, share)
    start, end = ((moments.var + eps).sqrt() for moments in (known, own))
    return Moments(mean, torch.lerp(start, end, share).square() - eps)


def extrapolated(centre: Moments, known: Moments, beyond: Tensor, eps: float) -> Moments:
    """The point past known statistics, on the line from a centre through them.

    The line is that of `leaned`, in mean and deviation. The deviation stays above half the known
    one: activations that are divided by it at most double.

    Args:
        centre: moments that broadcast over (..., C).
        known: moments of shape (..., C).
        beyond: how far past them, in their distance from the centre, at least 0; broadcasts over
            both.
        eps: the layer's constant.
    """
    beyond = beyond.to(known.mean.dtype)
    mean = known.mean + beyond * (known.mean - centre.mean)
    start, through = ((moments.var + eps).sqrt() for moments in (centre, known))
    deviation = torch.maximum(through + beyond * (through - start), through / 2)
    return Moments(mean, deviation.square() - eps)


def _total(share: Tensor, values: Tensor) -> Tensor:
    """The weighted sum, in which a share of 0 gives 0 even of an infinite value."""
    share = share.unsqueeze(-1)
    return torch.where(share > 0, share * values, 0).sum(-2)


def samples_of(x: Tensor, images: int) -> Tensor:
    """Views (N * rows, C, *spatial) as (N, rows, C, *spatial)."""
    rows = x.shape[0] // images if images else 1
    if x.shape[0] != images * rows:
        raise ValueError(
            f"a batch-norm layer got {x.shape[0]} rows for {images} images: "
            "every image must own the same number of consecutive rows"
        )
    return x.view(images, rows, *x.shape[1:])


def values_per_channel(samples: Tensor) -> int:
    """The number of values that a channel has in one image of (N, rows, C, *spatial)."""
    return math.prod((samples.shape[1], *samples.shape[3:]))


def linear_map(
    moments: Moments, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Scale and shift to which normalizing by moments, (..., C), reduces, γ and β included."""
    scale = (moments.var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    if bias is None:
        return scale, -moments.mean * scale
    return scale, torch.addcmul(bias, moments.mean, scale, value=-1)


def is_traced() -> bool:
    """Whether a compiler or tracer follows, which fuses the plain form by itself."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]


def at_least_float32(x: Tensor) -> Tensor:
    """The same values; half precision is too coarse for statistics."""
    return x if x.dtype.itemsize >= 4 else x.float()


def combine_processes(local: Moments, count: Tensor) -> tuple[Moments, Tensor]:
    """Pools every process's domain statistics, (K, C), by its number of values, (K,)."""
    channels = local.mean.shape[1]
    packed = torch.cat([count.unsqueeze(1), *local], dim=1)
    everyone = gather_processes(packed)  # (P, K, 1 + 2 C)
    counts, means, variances = everyone.transpose(0, 1).split([1, channels, channels], dim=2)
    total = counts.sum(1)
    share = counts / total.clamp_min(1).unsqueeze(1)
    return combine(Moments(means, variances), share.squeeze(2)), total.squeeze(1)


def in_processes() -> bool:
    """Whether this process is one of several that train together, or could be."""
    return distributed.is_available() and distributed.is_initialized()


def gather_processes(mine: Tensor) -> Tensor:
    """Stacks every process's tensor, (P, *shape); it can be differentiated any number of times."""
    everyone: Tensor = _Gather.apply(mine)
    return everyone


class _Gather(torch.autograd.Function):
    """Stacks every process's tensor; each gets back the sum of all gradients for its own."""

    @staticmethod
    def forward(_: Any, mine: Tensor) -> Tensor:
        everyone = mine.new_empty(distributed.get_world_size() * mine.shape[0], *mine.shape[1:])
        distributed.all_gather_into_tensor(everyone, mine.contiguous())
        return everyone.view(-1, *mine.shape)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        own: Tensor = _SumOwn.apply(gradient)
        return own


class _SumOwn(torch.autograd.Function):
    """Adds up what all processes have for each, (P, *shape), and keeps this one's part."""

    @staticmethod
    def forward(_: Any, parts: Tensor) -> Tensor:
        parts = parts.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(parts)
        return parts[distributed.get_rank()]

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gather_processes(gradient)
