"""The table of methods under a spurious cue follows from its records."""

import json
import sys
from importlib import import_module
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from tests.docs.pages import ROOT

RECORDS = ROOT / "results" / "spurious.jsonl"


@pytest.fixture(scope="module")
def spurious() -> Any:
    sys.path.insert(0, str(ROOT / "results"))
    try:
        return import_module("spurious")
    finally:
        sys.path.pop(0)


def test_the_table_is_what_the_records_give(spurious: Any) -> None:
    table = spurious.table(RECORDS)
    assert table in (ROOT / "docs" / "methods.md").read_text()
    lines = [json.loads(line) for line in RECORDS.open()]
    means = {
        name: fmean(line["accuracy"] for line in lines if line["method"] == name)
        for name in spurious.METHODS
    }
    for name, mean in means.items():
        (row,) = (line for line in table.splitlines() if line.startswith(f"| `{name}`"))
        told, gain = row.split(" | ")[1:3]
        assert told == f"{mean:.1f}"
        if name != "deepall":
            gain = gain.split(" ±")[0].replace("−", "-")
            assert float(gain) == pytest.approx(mean - means["deepall"], abs=0.0501)


def test_stripes_go_with_the_class_in_known_domains_alone(spurious: Any) -> None:
    prepared = spurious.images("marker", 0)
    y, x = np.mgrid[:32, :32]
    patterns = np.stack([x, y, x + y, x - y]) // 2 % 2 - 0.5
    edge = np.ones((32, 32), bool)
    edge[4:-4, 4:-4] = False  # mostly paper
    gray = prepared.pixels.double().mean(3).numpy()
    found = np.abs(
        np.einsum("nyx,pyx->np", (gray - gray.mean((1, 2), keepdims=True)) * edge, patterns)
    )
    for number, domain in enumerate(prepared.images.domains):
        own = prepared.images.indices_of([domain])
        told = found[own].argmax(1) == (prepared.labels[own].numpy() + number) % 4
        assert told.mean() == pytest.approx(0.25 if domain == "marker" else 0.925, abs=0.08)
