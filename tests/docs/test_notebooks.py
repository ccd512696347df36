"""The notebooks run, from the first cell to the last, and hold no outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "notebooks"


def cells(name: str) -> list[dict[str, Any]]:
    return [c for c in json.loads((FOLDER / name).read_text())["cells"] if c["cell_type"] == "code"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.name)
def test_no_outputs_are_stored(path: Path) -> None:
    assert cells(path.name)
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells(path.name))


@pytest.mark.slow
def test_the_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells("digits.ipynb")):
        exec(compile("".join(cell["source"]), f"digits.ipynb[{number}]", "exec"), names)
    accuracy, unseen = names["accuracy"], names["unseen"]
    assert accuracy["BNE"] > accuracy["DeepAll"] > 20  # where chance has 10
    assert unseen.domains == ("blueprint", "chalk", "ink")
    assert unseen.weights.shape == (int(names["target"].sum()), 3)
    bars = names["axes"]["weights"].patches
    assert sum(bar.get_height() for bar in bars) == pytest.approx(6, abs=1e-4)
    names["plt"].close(names["figure"])
