"""What tests of the results share."""

import importlib
import sys
from types import ModuleType

import pytest

from bne.engine.recipe_files import load
from bne.evaluation.identity import settings
from tests.docs.pages import ROOT
from tests.results.reading import FOLDER, Line, lines, text


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
    found = []
    for line in lines("tables.jsonl"):
        overrides = {"method": line["method"], "target": line["target"]}
        recipe = load("pacs-resnet18-standard", overrides)
        standard = {**settings(recipe), "weights": line["settings"]["weights"]}
        if line["method"] in ("deepall", "bne") and line["settings"] == standard:
            found.append(line)
    assert len(found) == 8
    return found


@pytest.fixture(scope="module")
def notes() -> str:
    """Prose does not follow from records by itself."""
    return (FOLDER.parent / "notes.md").read_text()
