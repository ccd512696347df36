"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run slowly, on the CPU, instead of not at all


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of benchmark images and ImageNet weights that may lie beside the checkout."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the benchmark data and weights in ../shared, which is absent")
    return folder
