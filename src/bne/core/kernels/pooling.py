"""Max-pooling of channels-last images as two GPU kernels.

PyTorch's own keeps 64 bits to say where in the image a maximum was, four times what the maximum
itself takes in half precision. Here that is its place in the window, one byte.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch.autograd.function import once_differentiable

from bne.core.kernels import programs

if TYPE_CHECKING:
    from torch import Tensor

    Pair = tuple[int, int]

BLOCK = 1024  # values that a program makes


def max_pool(images: Tensor, size: Pair, stride: Pair, padding: Pair) -> Tensor:
    """The maxima of windows, as `F.max_pool2d` gives them.

    Args:
        images: (N, C, H, W), channels last.
        size: height and width of a window, at most 127 values.
        stride: the step from window to window, down and across.
        padding: the padding above and below, left and right; at most half a window.
    """
    lengths = zip(images.shape[2:], size, stride, padding, strict=True)
    outputs = [(length + 2 * pad - window) // step + 1 for length, window, step, pad in lengths]
    if min(outputs) < 1 or any(2 * pad > window for window, pad in zip(size, padding, strict=True)):
        return torch.nn.functional.max_pool2d(images, size, stride, padding)  # says what is wrong
    # Kernels are launched on the current device, wherever their tensors are.
    with torch.cuda.device(images.device) if images.is_cuda else nullcontext():
        pooled: Tensor = _MaxPool.apply(images, outputs, (*size, *stride, *padding))
    return pooled


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, outputs: list[int], window: tuple[int, ...]) -> Tensor:
        number, channels, *inputs = images.shape
        pooled = torch.empty(
            (number, channels, *outputs),
            dtype=images.dtype,
            device=images.device,
            memory_format=torch.channels_last,
        )
        places = torch.empty_like(pooled, dtype=torch.int8) if ctx.needs_input_grad[0] else None
        programs.max_pool[_grid(pooled)](
            images, pooled, places, *inputs, *outputs, channels, *window, BLOCK, num_warps=4
        )
        ctx.save_for_backward(places)
        ctx.inputs, ctx.window = inputs, window
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        # Hooks that keep tensors elsewhere may bring them back in another order of memory.
        places = ctx.saved_tensors[0].contiguous(memory_format=torch.channels_last)
        number, channels, *outputs = places.shape
        dx = torch.empty(
            (number, channels, *ctx.inputs),
            dtype=dy.dtype,
            device=dy.device,
            memory_format=torch.channels_last,
        )
        programs.max_pool_gradient[_grid(dx)](
            dy.contiguous(memory_format=torch.channels_last), dx, places, *ctx.inputs, *outputs,
            channels, *ctx.window, BLOCK, num_warps=4,
        )  # fmt: skip
        return dx, None, None


def _grid(made: Tensor) -> tuple[int, int]:
    """Programs for every line of every image that is made, (N, C, H, W)."""
    number, channels, height, width = made.shape
    return number * height, triton.cdiv(width * channels, BLOCK)
