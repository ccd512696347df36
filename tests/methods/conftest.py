"""Fixtures shared by the tests of the methods."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def batch():
    """Nine images of three domains, their labels and domains."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(9, 3, 16, 16, generator=generator)
    labels = torch.randint(4, (9,), generator=generator)
    return images, labels, torch.arange(3).repeat_interleave(3)
