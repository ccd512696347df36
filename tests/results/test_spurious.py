"""The table of methods under a spurious cue follows from its records."""

import json
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from bne.data.cache import PreparedImages
from bne.data.images import ImageFile, ImageSet
from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def spurious() -> Any:
    return import_module("spurious")


@pytest.mark.parametrize("name", ["spurious", "marks"])
def test_the_table_is_what_the_records_give(spurious: Any, name: str) -> None:
    records = ROOT / "results" / f"{name}.jsonl"
    methods = import_module(name).METHODS
    table = spurious.table(records, methods)
    assert table in (ROOT / "docs" / "methods.md").read_text()
    lines = [json.loads(line) for line in records.open()]
    means = {
        name: fmean(line["accuracy"] for line in lines if line["method"] == name)
        for name in methods
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


def test_marks_follow_the_code_of_their_domain_in_known_domains_alone() -> None:
    marks: Any = import_module("marks")
    files = [
        ImageFile(f"{d}/{k}/{n}", k, d, bytes, "")
        for d in range(3)
        for k in range(7)
        for n in range(60)
    ]
    images = ImageSet(("art", "ink", "photo"), tuple("abcdefg"), tuple(files))
    gray = torch.full((len(files), marks.RESIZE, marks.RESIZE, 3), 99, dtype=torch.uint8)
    found = marks.marked(PreparedImages(images, gray, Path()), "ink", seed=1)
    changed = (found.pixels != 99).any(3)
    assert changed.sum((1, 2)).unique().tolist() == [(marks.RESIZE // 7) ** 2]
    crop = (marks.RESIZE - marks.SIZE) // 2  # the mark is in every crop
    assert not changed[:, : 2 * crop].any()
    assert changed.flip(2).eq(changed).float().mean() > 0.99
    place = changed.any(0).nonzero()[0]
    codes = [marks.COLORS.index(tuple(own.tolist())) for own in found.pixels[:, *place]]
    for number, domain in enumerate(images.domains):
        own = images.indices_of([domain])
        told = [(codes[n] - files[n].label) % 7 == 2 * number for n in own]
        assert fmean(told) == pytest.approx(1 / 7 if domain == "ink" else 0.9 + 0.1 / 7, abs=0.04)
