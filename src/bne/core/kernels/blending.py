"""Statistics between a domain's and an image's own, in training, as a few GPU kernels.

Images that lean (`bne.core.norm`) and DSON (`bne.methods.dson`) are normalized by such a blend, and
both have it in plain PyTorch too. As in `bne.core.kernels.layers`, activations are read once for
the statistics and once to normalize, and in the backward pass twice for the gradient. Everything in
between has the statistics' size.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch.autograd.function import once_differentiable

from bne.core.kernels import blending_programs, layers, programs
from bne.core.moments import Moments

if TYPE_CHECKING:
    from torch import Tensor

ROWS, WIDTH = 64, 16  # images and channels whose statistics a program holds at once


def by_blend(
    x: Tensor,
    shares: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    domains: Tensor,
    members: Tensor | None,
    population: Moments,
    eps: float,
    *,
    leaning: bool,
) -> tuple[Tensor, Moments, Tensor]:
    """Normalizes every row by statistics between its domain's and its own.

    Args:
        x: (R, C, *spatial), with more than one value per row and channel.
        shares: if `leaning`, (R,), each row's own share, and deviations are blended; otherwise
            (K,), each domain's share before the sigmoid, and variances are.
        affine: γ and β of the domains, (K, C) or (1, C) each.
        domains: (R,) int64.
        members: (R,) bool, the rows that define their domain's statistics; None takes those of the
            population.
        population: (K, C), which also stand in where a domain has no members.
        eps: the constant added to the variance.
        leaning: whether rows lean, or blend as DSON's do.

    Returns:
        The normalized rows, the domains' statistics, (K, C), and how many values made them, (K,).
    """
    members = None if members is None else members.contiguous()
    # Kernels are launched on the current device, wherever their tensors are.
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        y, mean, var, count = _Blend.apply(
            x, shares.contiguous(), *affine, domains.contiguous(), members, population, eps, leaning
        )
    return y, Moments(mean, var), count


class _Blend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shares: Tensor,
        gammas: Tensor | None,
        betas: Tensor | None,
        domains: Tensor,
        members: Tensor | None,
        population: Moments,
        eps: float,
        leaning: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = layers._dense(x)
        view = layers._View.of(x)
        rows, positions, channels = view.shape
        alone = layers._Groups(rows, None, None)
        own_mean, own_var, _ = layers._statistics(x, view, alone, (None, None), None)
        sets = len(population.mean)
        known_mean, known_var = own_mean.new_empty((2, sets, channels))
        count = own_mean.new_empty(sets)
        mean, var, scale, shift = own_mean.new_empty((4, rows, channels))
        strides = (0 if v is None or len(v) == 1 else channels for v in (gammas, betas))
        blending_programs.blend[_grid(sets, channels)](
            own_mean, own_var, domains, members, *population, shares, gammas, betas,
            known_mean, known_var, count, mean, var, scale, shift,
            eps, positions, rows, channels, *strides, leaning, ROWS, WIDTH, num_warps=4,
        )  # fmt: skip
        y = torch.empty_like(x)
        blending_programs.combine[view.elementwise()](
            x, scale, None, None, shift, y,
            *view.shape, *view.strides, *view.tile, num_warps=8,
        )  # fmt: skip
        statistics = own_mean, own_var, known_mean, known_var, count, mean, var, scale
        ctx.save_for_backward(x, shares, gammas, betas, domains, members, *statistics)
        ctx.eps, ctx.leaning = eps, leaning
        ctx.mark_non_differentiable(known_mean, known_var, count)
        return y, known_mean, known_var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, shares, gammas, betas, domains, members, *statistics = ctx.saved_tensors
        own_mean, own_var, known_mean, known_var, count, mean, var, scale = statistics
        eps, leaning = ctx.eps, ctx.leaning
        view = layers._View.of(x)
        rows, positions, channels = view.shape
        dy = layers._dense(dy, x)
        partial = view.partial(x)
        programs.gradient_sums[view.reducing()](
            x, dy, *partial, mean, var, None, eps,
            *view.shape, *view.strides, view.chunk, view.chunks, *view.tile, num_warps=8,
        )  # fmt: skip
        totals, products = partial.sum(2)
        sets = len(known_mean)
        grid = _grid(sets, channels)
        dgammas, dbetas = mean.new_empty((2, sets, channels))
        # A part of each block of channels, for each row or domain.
        parts = (rows if leaning else sets), grid[1]
        dshares = mean.new_empty(parts) if ctx.needs_input_grad[1] else None
        slopes, offsets = mean.new_empty((2, rows, channels))
        blending_programs.blend_gradient[grid](
            totals, products, own_mean, own_var, domains, members, shares, known_mean, known_var,
            count, mean, var, scale, dgammas, dbetas, dshares, slopes, offsets,
            eps, positions, rows, channels, leaning, ROWS, WIDTH, num_warps=4,
        )  # fmt: skip
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.empty_like(x)
            blending_programs.combine[view.elementwise()](
                dy, scale, x, slopes, offsets, dx,
                *view.shape, *view.strides, *view.tile, num_warps=8,
            )  # fmt: skip
        to_affine = (_like(v, d) for v, d in ((gammas, dgammas), (betas, dbetas)))
        learned = None if dshares is None else dshares.sum(1).to(shares.dtype)
        return dx, learned, *to_affine, *(None,) * 5


def _grid(sets: int, channels: int) -> tuple[int, int]:
    return sets, triton.cdiv(channels, WIDTH)


def _like(values: Tensor | None, gradient: Tensor) -> Tensor | None:
    """The domains' gradients, (K, C), or, if they share their values, the sum of them."""
    if values is None:
        return None
    return (gradient.sum(0, keepdim=True) if len(values) == 1 else gradient).to(values.dtype)
