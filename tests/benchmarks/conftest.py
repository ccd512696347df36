"""The scripts of `benchmarks/`, which import each other by name, as when they are run."""

import importlib
import sys
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _scripts():
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
    before = torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = before
    sys.path.pop(0)


@pytest.fixture(scope="session")
def speed(_scripts):
    return importlib.import_module("speed")


@pytest.fixture(scope="session")
def timing(_scripts):
    return importlib.import_module("timing")


@pytest.fixture(scope="session")
def peers(_scripts):
    return importlib.import_module("speed_peers")


@pytest.fixture
def small(timing):
    """Settings of a small comparison."""
    return timing.Settings("small_cnn", torch.device("cpu"), "float32", 3, 2, 4, 32, 2)
