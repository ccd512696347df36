"""What tests of the results share."""

import importlib
import sys
from types import ModuleType

import pytest

from tests.docs.pages import ROOT
from tests.results.reading import FOLDER, Line, lines, standard_runs, text


@pytest.fixture(scope="module")
def make() -> ModuleType:
    sys.path.insert(0, str(ROOT / "results"))
    try:
        return importlib.import_module("make")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def pages(make: ModuleType) -> str:
    """Both pages of the records, one after the other."""
    return text(make, FOLDER)


@pytest.fixture(scope="module")
def search() -> list[Line]:
    return lines("search.jsonl")


@pytest.fixture(scope="module")
def tables() -> list[Line]:
    """The runs of the standard setting, seed 0."""
    names = ("deepall", "wasserstein")
    found = [line for n in names for (_, seed), line in standard_runs(n).items() if seed == 0]
    assert len(found) == 8
    return found


@pytest.fixture(scope="module")
def notes() -> str:
    """Prose does not follow from records by itself."""
    return (FOLDER.parent / "notes.md").read_text()
