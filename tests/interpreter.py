"""Whether kernels can be run here, on a GPU or in Triton's interpreter."""

import pytest
import torch


def _run() -> bool:
    try:
        import triton
        import triton.language as tl
    except ModuleNotFoundError:
        return False
    if torch.cuda.is_available():
        return True

    @triton.jit
    def count(x, number):
        total = 0
        for _ in range(number):
            total += 1
        tl.store(x, total)

    counted = torch.zeros(1, dtype=torch.int32)
    try:
        count[(1,)](counted, 3)
    except triton.runtime.errors.InterpreterError:
        return False
    return counted.item() == 3


needs_kernels = pytest.mark.skipif(
    not _run(), reason="Triton is not installed, or its interpreter does not run with this NumPy"
)
