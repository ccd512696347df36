"""Whether kernels can be run here, on a GPU or in Triton's interpreter."""

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")
tl = triton.language


@triton.jit
def _count(x, number):
    total = 0
    for _ in range(number):
        total += 1
    tl.store(x, total)


def _runs() -> bool:
    if torch.cuda.is_available():
        return True
    count = torch.zeros(1, dtype=torch.int32)
    try:
        _count[(1,)](count, 3)
    except triton.runtime.errors.InterpreterError:
        return False
    return count.item() == 3


needs_kernels = pytest.mark.skipif(
    not _runs(), reason="this Triton's interpreter does not run with this NumPy"
)
