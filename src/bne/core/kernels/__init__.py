"""When layers use kernels of ours: those of `layers`, and of `pooling`."""

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from bne.core.moments import is_traced, values_per_channel


def kernels_for(samples: Tensor) -> Any:
    """The kernels if they take (N, rows, C, *spatial) and are faster, otherwise None."""
    suit = (
        samples.ndim > 3
        and samples.shape[1] == 1
        and _pay(samples)
        and values_per_channel(samples) <= 65_535 * 64  # a grid's third side
        and samples.numel() // len(samples) < 2**31  # offsets in an image
    )
    return _imported("layers") if suit else None


def pooling_for(images: Tensor) -> Any:
    """`bne.core.kernels.pooling` if it takes (N, C, H, W) and is faster, otherwise None."""
    suit = (
        images.ndim == 4
        and images.is_floating_point()
        and _pay(images)  # before the order of memory, which vmap does not tell
        and images.is_contiguous(memory_format=torch.channels_last)
        and not images.is_contiguous()
        and images.numel() // len(images) < 2**29  # offsets in an image, and in a larger output
        and images.shape[1] * images.shape[3] < 2**25  # a grid's second side
    )
    return _imported("pooling") if suit else None


def _pay(x: Tensor) -> bool:
    """Whether our kernels take these activations and save more than they cost."""
    return (
        x.is_cuda
        and x.dtype.itemsize <= 4
        and x.numel() > 0
        and not is_traced()
        and _are_worth_a_launch(x)
    )


def _are_worth_a_launch(x: Tensor) -> bool:
    """Whether our kernels, whose launch costs the CPU more than torch's, save more than that."""
    recorded = torch.cuda.is_current_stream_capturing()  # launched once, for all replays
    return recorded or torch.is_grad_enabled() or x.numel() >= 2**22


@cache
def _imported(module: str) -> Any:
    try:
        return import_module(f"bne.core.kernels.{module}")
    except ModuleNotFoundError as error:  # Triton comes with torch on some systems only
        if error.name != "triton":
            raise
        return None
