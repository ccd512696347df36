"""Where tests compute: whether there is a GPU, and whether kernels can be run, there or not."""

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")


def _run() -> bool:
    try:
        import triton
        import triton.language as tl
    except ModuleNotFoundError:
        return False
    if DEVICE == "cuda":
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
