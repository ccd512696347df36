"""What tests of the results share."""

import importlib
import sys
from types import ModuleType

import pytest

from bne.engine.recipe_files import load
from bne.evaluation.identity import settings
from tests.docs.pages import ROOT
from tests.results.reading import (
    Line,
    lines,
)


@pytest.fixture(scope="module")
def make() -> ModuleType:
    sys.path.insert(0, str(ROOT / "results"))
    try:
        return importlib.import_module("make")
    finally:
        sys.path.pop(0)


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
