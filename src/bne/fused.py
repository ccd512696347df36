"""When layers use the fused kernels of `bne.kernels`."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from bne.moments import values_per_channel


def kernels_for(samples: Tensor) -> Any:
    """`bne.kernels` if they can treat (N, rows, C, *spatial) and pay, otherwise None."""
    suit = (
        samples.is_cuda
        and samples.dtype.itemsize <= 4
        and samples.ndim > 3
        and samples.shape[1] == 1
        and samples.numel() > 0
        and values_per_channel(samples) < 2**22
        # A compiler fuses the plain form by itself.
        and not (torch.compiler.is_compiling() or torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]
        and _are_worth_a_launch(samples)
    )
    return _import_kernels() if suit else None


def _are_worth_a_launch(samples: Tensor) -> bool:
    """Whether our kernels, whose launch costs the CPU more than torch's, save more than that."""
    recorded = torch.cuda.is_current_stream_capturing()  # launched once, for all replays
    return recorded or torch.is_grad_enabled() or samples.numel() >= 2**22


@cache
def _import_kernels() -> Any:
    try:
        from bne import kernels
    except ModuleNotFoundError as error:  # Triton comes with torch on some systems only
        if error.name != "triton":
            raise
        return None
    return kernels
