"""DSON's layer as a few GPU kernels; `bne.methods.dson` says the same in plain PyTorch.

As in `bne.core.kernels.layers`, activations are read once for the statistics and once to normalise,
and in the backward pass twice for the gradient. Everything in between has the statistics' size.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch.autograd.function import once_differentiable

from bne.core.moments import Moments
from bne.methods import dson_programs

if TYPE_CHECKING:
    from torch import Tensor

ROWS, WIDTH = 64, 16  # images and channels whose statistics a program holds at once


def by_blend(
    kernels: Any,
    x: Tensor,
    mixture: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    domains: Tensor,
    members: Tensor | None,
    population: Moments,
    eps: float,
) -> tuple[Tensor, Moments, Tensor]:
    """Normalises every row by a mixture of its own and its domain's statistics.

    Args:
        kernels: `bne.core.kernels.layers`.
        x: (R, C, *spatial), with more than one value a row and channel.
        mixture: (K,), the domain's share before the sigmoid.
        affine: γ and β of the domains, (K, C) or (1, C) each.
        domains: (R,) int64.
        members: (R,) bool, the rows that define their domain's statistics; None takes those of the
            population.
        population: (K, C), which also stand in where a domain has no members.
        eps: added to the variance.

    Returns:
        The normalised rows, the domains' statistics, (K, C), and how many values made them, (K,).
    """
    members = None if members is None else members.contiguous()
    # Kernels are launched on the current device, wherever their tensors are.
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        y, mean, var, count = _Blend.apply(
            x, mixture, *affine, kernels, domains.contiguous(), members, population, eps
        )
    return y, Moments(mean, var), count


class _Blend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mixture: Tensor,
        gammas: Tensor | None,
        betas: Tensor | None,
        kernels: Any,
        domains: Tensor,
        members: Tensor | None,
        population: Moments,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = kernels._dense(x)
        view = kernels._View.of(x)
        rows, positions, channels = view.shape
        alone = kernels._Groups(rows, None, None)
        own_mean, own_var, _ = kernels._statistics(x, view, alone, (None, None), None)
        sets = len(mixture)
        known_mean, known_var = own_mean.new_empty((2, sets, channels))
        count = own_mean.new_empty(sets)
        mean, var, scale, shift = own_mean.new_empty((4, rows, channels))
        strides = (0 if v is None or len(v) == 1 else channels for v in (gammas, betas))
        dson_programs.blend[_grid(sets, channels)](
            own_mean, own_var, domains, members, *population, mixture, gammas, betas,
            known_mean, known_var, count, mean, var, scale, shift,
            eps, positions, rows, channels, *strides, ROWS, WIDTH, num_warps=4,
        )  # fmt: skip
        y = torch.empty_like(x)
        dson_programs.combine[view.elementwise()](
            x, scale, None, None, shift, y,
            *view.shape, *view.strides, *view.tile, num_warps=8,
        )  # fmt: skip
        statistics = own_mean, own_var, known_mean, known_var, count, mean, var, scale
        ctx.save_for_backward(x, mixture, gammas, betas, domains, members, *statistics)
        ctx.kernels, ctx.eps = kernels, eps
        ctx.mark_non_differentiable(known_mean, known_var, count)
        return y, known_mean, known_var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, mixture, gammas, betas, domains, members, *statistics = ctx.saved_tensors
        own_mean, own_var, known_mean, known_var, count, mean, var, scale = statistics
        kernels, eps = ctx.kernels, ctx.eps
        view = kernels._View.of(x)
        rows, positions, channels = view.shape
        dy = kernels._dense(dy, x)
        partial = view.partial(x)
        kernels.programs.gradient_sums[view.reducing()](
            x, dy, *partial, mean, var, None, eps,
            *view.shape, *view.strides, view.chunk, view.chunks, *view.tile, num_warps=8,
        )  # fmt: skip
        totals, products = partial.sum(2)
        sets = len(mixture)
        grid = _grid(sets, channels)
        dgammas, dbetas = mean.new_empty((2, sets, channels))
        dmixture = mean.new_empty(grid)
        slopes, offsets = mean.new_empty((2, rows, channels))
        dson_programs.blend_gradient[grid](
            totals, products, own_mean, own_var, domains, members, mixture, known_mean, known_var,
            count, mean, var, scale, dgammas, dbetas, dmixture, slopes, offsets,
            eps, positions, rows, channels, ROWS, WIDTH, num_warps=4,
        )  # fmt: skip
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.empty_like(x)
            dson_programs.combine[view.elementwise()](
                dy, scale, x, slopes, offsets, dx,
                *view.shape, *view.strides, *view.tile, num_warps=8,
            )  # fmt: skip
        to_affine = (_like(v, d) for v, d in ((gammas, dgammas), (betas, dbetas)))
        return dx, dmixture.sum(1).to(mixture.dtype), *to_affine, *(None,) * 5


def _grid(sets: int, channels: int) -> tuple[int, int]:
    return sets, triton.cdiv(channels, WIDTH)


def _like(values: Tensor | None, gradient: Tensor) -> Tensor | None:
    """The domains' gradients, (K, C), or, if they share their values, the sum of them."""
    if values is None:
        return None
    return (gradient.sum(0, keepdim=True) if len(values) == 1 else gradient).to(values.dtype)
