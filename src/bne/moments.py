"""Means and variances of activations: of single images, and pooled over several.

Everything that normalises is built from the moments of single images: a domain batch's are those
of its images, pooled.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Mean and biased variance of every channel.

    Attributes:
        mean: (..., C).
        var: (..., C).
    """

    mean: Tensor
    var: Tensor


def image_moments(samples: Tensor) -> Moments:
    """Each image's own moments, in float32 at least.

    Args:
        samples: (N, rows, C, *spatial), the activations of N images.

    Returns:
        Moments of shape (N, C).
    """
    dims = (1, *range(3, samples.ndim))
    samples = at_least_float32(samples)
    if not samples.is_cpu:
        var, mean = torch.var_mean(samples, dim=dims, correction=0)
        return Moments(mean, var)
    # On a CPU `var_mean` takes several times as long.
    mean = samples.mean(dims, keepdim=True)
    var = (samples - mean).square().mean(dims)
    return Moments(mean.view_as(var), var)


def pool(members: Moments, share: Tensor, group: Tensor | None = None) -> Moments:
    """Moments of groups, from those of their members, by the law of total variance.

    Args:
        members: moments of shape (..., M, C) that broadcast over the groups.
        share: (..., M), the part of each member in a group; a group's parts add up to 1.
        group: (M,), the only one of the groups, (K, M) in `share`, that each member has a part in,
            if that is so: it saves memory.

    Returns:
        Moments of shape (..., C).
    """
    mean = _total(share, members.mean)
    centre = mean.unsqueeze(-2) if group is None else mean[group]
    spread = members.var + (members.mean - centre).square()
    return Moments(mean, _total(share, spread))


def _total(share: Tensor, values: Tensor) -> Tensor:
    """Of the parts that there are: no part of a value, were it infinite, is nothing of it."""
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
    """How many values a channel has in one image of (N, rows, C, *spatial)."""
    return math.prod((samples.shape[1], *samples.shape[3:]))


def at_least_float32(x: Tensor) -> Tensor:
    """The same values; half precision is too coarse for statistics."""
    return x if x.dtype.itemsize >= 4 else x.float()
