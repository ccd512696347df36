"""What is done to whole activations: their moments are measured, and they are scaled and shifted.

Everything between the two has the statistics' size, so a layer's time is that of these. On a CPU
they have gradients of their own: autograd's would keep copies of the activations and write some in
another order of memory, which took longer than all convolutions of a ResNet. Where values are read
several times, it is a few images at a time, as many as fit into a core's cache.
"""

from typing import Any

import torch
from torch import Tensor

from bne.core.moments import Moments, at_least_float32, is_traced, values_per_channel

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
        and not is_traced()
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
        return _scaled(samples, slope, to_mean / count - slope * mean)


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
        gradient = gradient.view_as(samples)
        wanted = ctx.needs_input_grad
        parts = zip(*(each.split(_at_once(samples)) for each in (gradient, samples)), strict=True)
        return (
            gradient * _spread(scale, samples) if wanted[0] else None,
            torch.cat([_sum(at_least_float32(g) * x) for g, x in parts]) if wanted[1] else None,
            _sum(gradient) if wanted[2] else None,
        )


def _own_gradients(samples: Tensor) -> bool:
    """Whether autograd is told how; compilers, forward mode and `torch.func` need no telling."""
    forward = torch.autograd.forward_ad._current_level >= 0
    transformed = forward or torch._C._are_functorch_transforms_active()
    return samples.is_cpu and torch.is_grad_enabled() and not transformed and not is_traced()


def _image_moments(samples: Tensor) -> Moments:
    dims = _within_image(samples)
    if not samples.is_cpu:
        var, mean = torch.var_mean(at_least_float32(samples), dim=dims, correction=0)
        return Moments(mean, var)
    # On a CPU `var_mean` takes ten times as long.
    means, variances = [], []
    for part in [samples] if is_traced() else samples.split(_at_once(samples)):
        own = at_least_float32(part)
        mean = own.mean(dims, keepdim=True)
        variances.append((own - mean).square().mean(dims))
        means.append(mean.view_as(variances[-1]))
    return Moments(torch.cat(means), torch.cat(variances))


def _mapped(samples: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return _scaled(samples, scale, shift).flatten(0, 1)


def _scaled(samples: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """`mapped`, in the samples' shape."""
    found = torch.addcmul(_spread(shift, samples), samples, _spread(scale, samples))
    if found.dtype != samples.dtype:  # asked, since `torch.export` keeps a check of every `to`
        found = found.to(samples.dtype)
    return found


def _at_once(samples: Tensor) -> int:
    """The number of images whose activations fit into a core's cache, at least one."""
    return max(1, CACHED * samples.shape[0] // max(1, samples.numel()))


def _within_image(samples: Tensor) -> tuple[int, ...]:
    return (1, *range(3, samples.ndim))


def _sum(samples: Tensor) -> Tensor:
    """(N, C), in float32 at least."""
    return at_least_float32(samples).sum(_within_image(samples))


def _spread(statistic: Tensor, samples: Tensor) -> Tensor:
    """Views (N, C) so that it broadcasts over (N, rows, C, *spatial)."""
    images, channels = statistic.shape
    return statistic.view(images, 1, channels, *(1,) * (samples.ndim - 3))
