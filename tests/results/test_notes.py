"""The prose beside the figures, and the table that it leans on most."""

import re
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest

from tests.results.reading import (
    FOLDER,
    TARGETS,
    Line,
    accuracy,
    lines,
    row,
    text,
)

NOT_SQUARED = re.compile("root-wasserstein|bhattacharyya")


def last(runs: list[Line], weighting: str) -> dict[tuple[str, int], float]:
    """Accuracy after the last epoch by target and seed: of a distance in training, or of DNet."""
    found = {}
    for line in runs:
        settings = line["settings"]
        tuned = settings["train"]["optimiser"]["name"], settings["train"]["epochs"]
        name = settings["options"].get("distance", "wasserstein")
        name = {"bne": name, "dnet": "dnet"}.get(settings["method"])
        if name == weighting and tuned == ("sgd", 20):
            found[settings["target"][0], settings["seed"]] = accuracy(line, "last")
    return found


@pytest.fixture(scope="module")
def notes() -> str:
    """Prose does not follow from records by itself."""
    return (FOLDER.parent / "notes.md").read_text()


def test_what_is_said_not_to_be_tried(notes: str, search: list[Line]) -> None:
    runs = lines("tables.jsonl")

    def tried(part: str, key: str, usual: Any, among: list[Line]) -> bool:
        found = [line["settings"][part] if part else line["settings"] for line in among]
        return any(own.get(key, usual) != usual for own in found)

    everything = runs + search
    assert "The batch size: not tried." in notes
    assert not tried("", "per_domain", 16, everything)
    assert "Not tried: distances over other layers (`options.layers`)." in notes
    assert not tried("options", "layers", None, everything)
    assert "At the standard length, and by the paper's own settings, it is not tried." in notes
    assert not tried("options", "branch_statistics", "batch", runs)
    assert "(`options.mix`): not tried." in notes
    assert not tried("options", "mix", "logits", everything)


def test_what_is_said_of_the_weighting(notes: str) -> None:
    runs = lines("tables.jsonl")
    squared = last(runs, "wasserstein")
    assert "BNE (c) has fewer seeds than DeepAll" in notes
    assert {seed for _, seed in squared} == {0, 1}
    assert "no lower on average than with Wasserstein's, one seed each" in notes
    assert "all flatter weights than those of the squared distance are better" in notes
    for weighting in ("uniform", "bhattacharyya", "dnet"):
        other = last(runs, weighting)
        assert set(other) == {(target, 0) for target in TARGETS}
        assert fmean(other.values()) >= fmean(squared[key] for key in other)
        assert other["cartoon", 0] > squared["cartoon", 0]
    assert "(`options.distance=root-wasserstein`, cartoon and sketch, one seed)" in notes
    root = last(runs, "root-wasserstein")
    assert set(root) == {("cartoon", 0), ("sketch", 0)}
    assert 0.5 < root["cartoon", 0] - squared["cartoon", 0] < 2 * 1.3
    assert abs(root["sketch", 0] - squared["sketch", 0]) < 0.5
    assert root["cartoon", 0] < 78.9 - 2
    assert root["sketch", 0] < 79.7 - 2


def test_what_is_said_of_the_layers(notes: str, make: ModuleType) -> None:
    assert "Of the squared distance the first layer alone makes up two thirds or more" in notes
    assert "single layers further on tell the domains apart better than all together" in notes
    page = text(make, FOLDER)
    page = page[page.index("Share of each block of layers") :]
    shares = re.findall(r"^\| (bne.*?) \| average \| ([\d.]+)", page, flags=re.MULTILINE)
    squared = {name: float(share) for name, share in shares if not NOT_SQUARED.search(name)}
    assert len(squared) >= 6
    assert min(squared.values()) > 66
    sentence = r"^(bne.*?): of 20 .* together of ([\d.]+).* ([\d.]+) %\.$"
    found = re.findall(sentence, page, flags=re.MULTILINE)
    every = {name: (float(all_), float(one)) for name, all_, one in found}
    assert squared.keys() <= every.keys()
    assert all(one > all_ for all_, one in every.values())


def test_one_thing_changed(make: ModuleType) -> None:
    runs = lines("tables.jsonl")
    page = text(make, FOLDER)
    page = page[page.index("### One thing changed") : page.index("### Length of training")]
    whole = last(runs, "wasserstein")
    for name in ("root-wasserstein", "uniform"):
        own = last(runs, name)
        cells = row(page, f"bne, `options.distance={name}`")
        for column, target in enumerate(TARGETS):
            if (target, 0) in own:
                gap = own[target, 0] - whole[target, 0]
                assert float(cells[column].replace("−", "-")) == pytest.approx(gap, abs=0.051)
            else:
                assert cells[column] == "…"
        assert cells[-1] == "1"
    assert row(page, "dnet")[-2] != "…"
    assert row(page, "freeze-bn")[-2] == "…"
    assert "clip" not in page
