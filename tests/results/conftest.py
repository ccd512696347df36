"""The scripts of `results/`, which import each other by name, as when they are run."""

import sys

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="session", autouse=True)
def _scripts():
    place = str(ROOT / "results")
    sys.path.insert(0, place)
    yield
    sys.path.remove(place)
