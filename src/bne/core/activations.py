"""What is done to whole activations: their moments are measured, and they are scaled and shifted.

Everything between the two has the statistics' size, so a layer's time is that of these. On a CPU
they have gradients of their own: autograd's would keep copies of the activations and write some in
another order of memory, which took longer than all convolutions of a ResNet. Where values are read
several times, it is a few images at a time, as many as fit into a core's cache.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bne.core.moments import Moments, at_least_float32, samples_of, values_per_channel

CACHED = 2**18
"""Values that are read several times at once."""


def image_moments(samples: Tensor) -> Moments:
    """Each image's own moments, in float32 at least.

    Args:
        samples: (N, rows, C, *spatial), the activations of N images.

    Returns:
        Moments of shape (N, C).
    """
    if not _own_gradients(samples):
        return _image_moments(samples)
    return Moments(*_ImageMoments.apply(samples))


def mapped(samples: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """(N, rows, C, *spatial) times scale plus shift, (N, C) each, as (N * rows, C, *spatial)."""
    if not _own_gradients(samples):
        return _mapped(samples, scale, shift)
    found: Tensor = _Mapped.apply(samples, scale, shift)
    return found


def fused_instance_norm(
    samples: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Moments] | None:
    """Images normalized by their own moments, and these, in one operation; None if torch has none.

    On a CPU, without gradients, that is several times as fast as the same step by step.

    Args:
        samples: (N, 1, C, *spatial), with more than one value per channel.
        weight: γ, (C,).
        bias: β, (C,).
        eps: the constant added to the variance.

    Returns:
        The normalized images, (N, C, *spatial), and moments of shape (N, C).
    """
    suits = (
        samples.is_cpu
        and samples.shape[1] == 1
        and samples.is_contiguous()
        and samples.dtype.itemsize >= 4
        and (weight is None or weight.dtype == samples.dtype)
        and not torch.is_grad_enabled()
        and not _traced()
    )
    if not suits:
        return None
    count, _, channels = samples.shape[:3]
    values = values_per_channel(samples)
    x = samples.squeeze(1)
    y, mean, root = torch.native_group_norm(x, weight, bias, count, channels, values, channels, eps)
    return y, Moments(mean, (root.square().reciprocal() - eps).clamp_min(0))


class _ImageMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, samples: Tensor) -> tuple[Tensor, Tensor]:
        mean, var = _image_moments(samples)
        ctx.save_for_backward(samples, mean)
        return mean, var

    @staticmethod
    def backward(ctx: Any, to_mean: Tensor, to_var: Tensor) -> Tensor:
        samples, mean = ctx.saved_tensors
        count = values_per_channel(samples)
        slope = 2 / count * to_var
        return mapped(samples, slope, to_mean / count - slope * mean).view_as(samples)


class _Mapped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, samples: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        ctx.save_for_backward(samples, scale)
        found = torch.empty_like(samples.flatten(0, 1))  # no view, so that ReLU may overwrite it
        by, offset = _spread(scale, samples), _spread(shift, samples)
        torch.addcmul(offset, samples, by, out=found.view_as(samples))
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        samples, scale = ctx.saved_tensors
        gradient = samples_of(gradient, len(scale))
        found: list[Tensor | None] = [None, None, None]
        if ctx.needs_input_grad[0]:
            found[0] = (gradient * _spread(scale, samples)).to(samples.dtype)
        if ctx.needs_input_grad[1]:
            parts = _parts(gradient, samples)
            products = (_sum(at_least_float32(own) * by) for own, by in parts)
            found[1] = torch.cat([*products]).to(scale.dtype)
        if ctx.needs_input_grad[2]:
            found[2] = _sum(gradient).to(scale.dtype)
        return tuple(found)


def _own_gradients(samples: Tensor) -> bool:
    """Whether autograd is told how; compilers and transforms of `torch.func` need no telling."""
    transformed = torch._C._are_functorch_transforms_active()
    return samples.is_cpu and torch.is_grad_enabled() and not transformed and not _traced()


def _traced() -> bool:
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]


def _image_moments(samples: Tensor) -> Moments:
    dims = _within_image(samples)
    if not samples.is_cpu:
        var, mean = torch.var_mean(at_least_float32(samples), dim=dims, correction=0)
        return Moments(mean, var)
    # On a CPU `var_mean` takes ten times as long.
    found = []
    for (part,) in [(samples,)] if _traced() else _parts(samples):
        own = at_least_float32(part)
        mean = own.mean(dims, keepdim=True)
        var = (own - mean).square().mean(dims)
        found.append((mean.view_as(var), var))
    return (
        Moments(*found[0])
        if len(found) == 1
        else Moments(*map(torch.cat, zip(*found, strict=True)))
    )


def _mapped(samples: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    found = torch.addcmul(_spread(shift, samples), samples, _spread(scale, samples))
    if found.dtype != samples.dtype:  # asked, since `torch.export` keeps a check of every `to`
        found = found.to(samples.dtype)
    return found.flatten(0, 1)


def _parts(*samples: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The activations of a few images after the other, of several tensors alike."""
    images = CACHED * samples[0].shape[0] // max(1, samples[0].numel())
    return zip(*(own.split(max(1, images)) for own in samples), strict=True)


def _within_image(samples: Tensor) -> tuple[int, ...]:
    return (1, *range(3, samples.ndim))


def _sum(samples: Tensor) -> Tensor:
    """(N, C), in float32 at least."""
    return at_least_float32(samples).sum(_within_image(samples))


def _spread(statistic: Tensor, samples: Tensor) -> Tensor:
    """Views (N, C) so that it broadcasts over (N, rows, C, *spatial)."""
    images, channels = statistic.shape
    return statistic.view(images, 1, channels, *(1,) * (samples.ndim - 3))
