"""The layer's arithmetic as a few GPU kernels; `bne.core.norm` has it in plain PyTorch.

Plain PyTorch reads and writes the activations many times over. Here a training step reads them
once for the statistics and once to normalize, and in the backward pass twice for the gradient, as
cuDNN's batch norm does, with all sums in float32.

Every kernel sees the activations as (rows, positions, channels), whatever their order in memory. A
row is normalized by the statistics of its group: its domain, or, in the instance pass, itself.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from torch.autograd.function import once_differentiable

from bne.core.kernels import programs

if TYPE_CHECKING:
    from torch import Tensor

TILE = 4096  # values that a program holds at once
PROGRAMS = 1024  # enough to fill a large GPU several times
TRACKED = 1024  # channels whose running statistics a program updates at once


def by_batch(
    x: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    domains: Tensor,
    members: Tensor,
    population: tuple[Tensor, Tensor] | None,
    num_domains: int,
    tracked: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """Normalizes every row by the batch statistics of its domain's members.

    Args:
        x: (R, C, *spatial).
        affine: γ and β, (C,) each.
        domains: (R,) int64.
        members: (R,) bool.
        population: running means and variances, (K, C); used if a domain has fewer than two
            values.
        num_domains: K.
        tracked: (K,) int64, how many batches the running statistics have seen. These and it are
            updated here; None leaves them as they are.
        momentum: the least share of a new batch in the running statistics.
        eps: the constant added to the variance.
    """
    groups = _Groups(num_domains, domains.contiguous(), members.contiguous())
    track = None if tracked is None or population is None else (tracked, momentum)
    return _normalise(x, affine, groups, population or (None, None), track, eps)[0]


def by_population(
    x: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    domains: Tensor,
    population: tuple[Tensor, Tensor],
    eps: float,
) -> Tensor:
    """Normalizes every row by given statistics of its domain, (K, C) each; see `by_batch`."""
    groups = _Groups(len(population[0]), domains.contiguous(), None)
    return _normalise(x, affine, groups, population, None, eps)[0]


def by_instance(
    x: Tensor, affine: tuple[Tensor | None, Tensor | None], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalizes every row by its own statistics, and gives them too, (R, C) each."""
    return _normalise(x, affine, _Groups(x.shape[0], None, None), (None, None), None, eps)


def by_lean(
    x: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    domains: Tensor | None,
    population: tuple[Tensor, Tensor],
    share: Tensor,
    eps: float,
) -> Tensor:
    """Normalizes every row at a point between given statistics and its own, without gradient.

    Args:
        x: (R, C, *spatial).
        affine: γ and β, (C,) each.
        domains: (R,) int64; None if the statistics are the rows', not the domains'.
        population: means and variances, (K, C) or (R, C).
        share: (), how far the point lies on the way to the row's own.
        eps: the constant added to the variance.
    """
    x = _dense(x)
    view = _View.of(x)
    rows, positions, channels = view.shape
    height, width = view.tile
    while width > 16 and rows * triton.cdiv(channels, width) < PROGRAMS:
        height, width = 2 * height, width // 2
    height = min(height, max(16, triton.next_power_of_2(positions)))
    y = torch.empty_like(x)
    of_row = None if domains is None else domains.contiguous()
    mean, var = (statistic.contiguous() for statistic in population)
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        programs.lean[(rows, triton.cdiv(channels, width))](
            x, y, mean, var, *affine, of_row, share, eps,
            *view.shape, *view.strides, height, width, num_warps=8,
        )  # fmt: skip
    return y


class _Groups(NamedTuple):
    """Which statistics each row is normalized by.

    Attributes:
        number: the number of groups.
        of_row: (R,), the group of each row; None if every row is its own.
        members: (R,), whether the row defines its group's statistics; None if all or none do.
    """

    number: int
    of_row: Tensor | None
    members: Tensor | None

    @property
    def constant(self) -> bool:
        """Whether the statistics are given, not made from the rows."""
        return self.of_row is not None and self.members is None


class _View(NamedTuple):
    """Activations as (rows, positions, channels), and how programs share them.

    Attributes:
        shape: rows, positions, channels.
        strides: the strides of the three, in values.
        tile: positions and channels that a program holds at once, powers of two.
        chunk: positions that one program sums up.
        chunks: the number of chunks that cover all positions.
    """

    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    tile: tuple[int, int]
    chunk: int
    chunks: int

    @classmethod
    def of(cls, x: Tensor) -> _View:
        rows, channels = x.shape[:2]
        positions = x[0, 0].numel()
        if _is_channels_last(x):
            strides = (positions * channels, channels, 1)
            width = min(64, triton.next_power_of_2(channels))
            height = TILE // width
        else:
            strides = (positions * channels, 1, positions)
            height = min(TILE // 4, max(16, triton.next_power_of_2(positions)))
            width = min(TILE // height, triton.next_power_of_2(channels))
        tall = triton.cdiv(positions, height)
        busy = rows * triton.cdiv(channels, width)
        chunk = height * triton.cdiv(tall, max(1, min(tall, triton.cdiv(PROGRAMS, busy))))
        shape = (rows, positions, channels)
        return cls(shape, strides, (height, width), chunk, triton.cdiv(positions, chunk))

    def reducing(self) -> tuple[int, int, int]:
        """The grid of kernels that sum over chunks."""
        return self.shape[0], triton.cdiv(self.shape[2], self.tile[1]), self.chunks

    def elementwise(self) -> tuple[int, int, int]:
        """The grid of kernels that treat every value once."""
        height, width = self.tile
        return self.shape[0], triton.cdiv(self.shape[2], width), triton.cdiv(self.shape[1], height)

    def partial(self, like: Tensor) -> Tensor:
        """Room for two sums per row, chunk and channel."""
        rows, _, channels = self.shape
        return like.new_empty((2, rows, self.chunks, channels), dtype=torch.float32)


def _is_channels_last(x: Tensor) -> bool:
    # One position, or one channel, has the same place in both orders.
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)


def _dense(x: Tensor, alike: Tensor | None = None) -> Tensor:
    """`x` without gaps: in the order of `alike`, or in its own if that has none."""
    alike = x if alike is None else alike
    if _is_channels_last(alike):
        return x.contiguous(memory_format=torch.channels_last)
    return x.contiguous()


def _normalise(
    x: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    groups: _Groups,
    population: tuple[Tensor | None, Tensor | None],
    track: tuple[Tensor, float] | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized activations, and the groups' means and variances, (G, C) each."""
    # Kernels are launched on the current device, wherever their tensors are.
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        result: tuple[Tensor, Tensor, Tensor] = _Normalise.apply(
            x, *affine, groups, population, track, eps
        )
    return result


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        groups: _Groups,
        population: tuple[Tensor | None, Tensor | None],
        track: tuple[Tensor, float] | None,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = _dense(x)
        view = _View.of(x)
        if groups.constant:
            mean, var = population
            assert mean is not None
            assert var is not None
            if any(ctx.needs_input_grad):  # the running ones may be updated before the backward
                mean, var = mean.clone(), var.clone()
            count = mean
        else:
            mean, var, count = _statistics(x, view, groups, population, track)
        y = torch.empty_like(x)
        programs.apply[view.elementwise()](
            x, y, mean, var, weight, bias, groups.of_row, eps,
            *view.shape, *view.strides, *view.tile, num_warps=8,
        )  # fmt: skip
        ctx.save_for_backward(x, weight, bias, mean, var, count, groups.of_row, groups.members)
        ctx.constant = groups.constant
        ctx.eps = eps
        ctx.set_materialize_grads(False)
        if groups.of_row is not None:
            ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dy: Tensor | None, dmean: Tensor | None, dvar: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, var, count, of_row, members = ctx.saved_tensors
        view = _View.of(x)
        dy = torch.zeros_like(x) if dy is None else _dense(dy, x)
        partial = view.partial(x)
        programs.gradient_sums[view.reducing()](
            x, dy, *partial, mean, var, of_row, ctx.eps,
            *view.shape, *view.strides, view.chunk, view.chunks, *view.tile, num_warps=8,
        )  # fmt: skip
        groups, channels = mean.shape
        sums = mean.new_empty((2, groups, channels))  # of dy and dy * x̂, the gradients of β and γ
        slopes = mean.new_empty((2, groups, channels))  # dx = γ / σ * dy + slope * x + offset
        width = min(32, triton.next_power_of_2(channels))
        programs.gradient[(groups, triton.cdiv(channels, width))](
            *partial, *sums, *slopes, mean, var, count, weight, of_row,
            None if dmean is None else dmean.contiguous(),
            None if dvar is None else dvar.contiguous(),
            ctx.eps, ctx.constant, view.shape[0], channels, view.chunks, 64, width, num_warps=4,
        )  # fmt: skip
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.empty_like(x)
            programs.gradient_apply[view.elementwise()](
                x, dy, dx, *slopes, var, weight, of_row, members, ctx.eps, ctx.constant,
                *view.shape, *view.strides, *view.tile, num_warps=8,
            )  # fmt: skip
        to_bias, to_weight = sums.sum(1)
        dweight = None if weight is None else to_weight.to(weight.dtype)
        dbias = None if bias is None else to_bias.to(bias.dtype)
        return dx, dweight, dbias, None, None, None, None


def _statistics(
    x: Tensor,
    view: _View,
    groups: _Groups,
    population: tuple[Tensor | None, Tensor | None],
    track: tuple[Tensor, float] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Means and variances of the groups, (G, C), and how many values each has, (G,)."""
    partial = view.partial(x)
    programs.moments[view.reducing()](
        x, *partial, groups.members,
        *view.shape, *view.strides, view.chunk, view.chunks, *view.tile, num_warps=8,
    )  # fmt: skip
    rows, positions, channels = view.shape
    mean, var = x.new_empty((2, groups.number, channels), dtype=torch.float32)
    count = x.new_empty(groups.number, dtype=torch.float32)
    width = min(32, triton.next_power_of_2(channels))
    programs.statistics[(groups.number, triton.cdiv(channels, width))](
        *partial, mean, var, count, *population, groups.of_row, groups.members,
        rows, positions, channels, view.chunk, view.chunks, 64, width, num_warps=4,
    )  # fmt: skip
    if track is not None:
        follow(population, (mean, var), count, *track)
    return mean, var, count


def follow(
    population: tuple[Tensor | None, Tensor | None],
    batch: tuple[Tensor, Tensor],
    count: Tensor,
    tracked: Tensor,
    momentum: float,
) -> None:
    """Lets running statistics follow a batch's, (K, C) each, where it has finite ones.

    Args:
        population: running means and variances.
        batch: means and variances.
        count: (K,), how many values made them.
        tracked: (K,) int64, how many batches the running statistics have seen.
        momentum: least share of a new batch.
    """
    domains, channels = batch[0].shape
    width = min(TRACKED, triton.next_power_of_2(channels))
    programs.track[(domains,)](
        *batch, count, *population, tracked, momentum, channels, width, num_warps=4
    )
