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


def last(runs: list[Line], name: str, augmentation: str = "paper") -> dict[tuple[str, int], float]:
    """Accuracy after the last epoch by target and seed: of a distance in training, or a method."""
    found = {}
    for line in runs:
        settings = line["settings"]
        train = settings["train"]
        standard = train["optimiser"]["name"] == "sgd" and train["epochs"] == 20
        unclipped = train["optimiser"]["clip"] is None
        own = settings["method"]
        if own == "bne":
            own = settings["options"].get("distance", "wasserstein")
        if own == name and standard and unclipped and settings["augmentation"] == augmentation:
            found[settings["target"][0], settings["seed"]] = accuracy(line, "last")
    return found


def gap(ours: dict[tuple[str, int], float], theirs: dict[tuple[str, int], float]) -> float:
    """By how many points the former lie above the latter, on the runs that both have."""
    common = ours.keys() & theirs.keys()
    assert common
    return fmean(ours[key] - theirs[key] for key in common)


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
    seeds = {"uniform": 1, "bhattacharyya": 1, "dnet": 2}
    assert "no lower on average than with Wasserstein's, one seed each, two of DNet" in notes
    assert "in the one or two seeds that they have, all flatter weights" in notes
    for weighting, number in seeds.items():
        other = last(runs, weighting)
        assert set(other) == {(target, seed) for target in TARGETS for seed in range(number)}
        assert gap(other, squared) >= 0
        for seed in range(number):
            assert other["cartoon", seed] > squared["cartoon", seed]
    assert "(`options.distance=root-wasserstein`, cartoon and sketch, one seed)" in notes
    root = last(runs, "root-wasserstein")
    assert set(root) == {("cartoon", 0), ("sketch", 0)}
    assert 0.5 < root["cartoon", 0] - squared["cartoon", 0] < 2 * 1.3
    assert abs(root["sketch", 0] - squared["sketch", 0]) < 0.5
    assert root["cartoon", 0] < 78.9 - 2
    assert root["sketch", 0] < 79.7 - 2


def test_what_is_said_of_other_methods(notes: str) -> None:
    runs = lines("tables.jsonl")
    found = {n: last(runs, n) for n in ("wasserstein", "deepall", "dnet", "bne-ce", "dnet-ce")}
    assert "a loss on the domains lets BNE and DNet tell them apart better without" in notes
    for name, plain in (("bne-ce", "wasserstein"), ("dnet-ce", "dnet")):
        assert gap(found[name], found[plain]) < 0
    assert "With strong augmentation, in one seed, DeepAll gains more than BNE" in notes
    strong = {name: last(runs, name, "strong") for name in ("wasserstein", "deepall")}
    assert {seed for own in strong.values() for _, seed in own} == {0}
    assert 0 < gap(strong["wasserstein"], strong["deepall"]) < 1
    gains = {name: gap(own, found[name]) for name, own in strong.items()}
    assert gains["deepall"] > gains["wasserstein"] > 0
    assert "DSON, in one seed too, is above all other rows that are complete" in notes
    dson = last(runs, "dson")
    assert set(dson) == {(target, 0) for target in TARGETS}
    others = [strong["wasserstein"], *found.values(), last(runs, "uniform")]
    assert all(gap(dson, other) > 0 for other in others)


def test_what_is_said_of_other_weights_at_test_time(notes: str, make: ModuleType) -> None:
    assert "in those of the whole method less than a point on average." in notes
    assert "loses by uniform weights more than twice as much." in notes
    page = text(make, FOLDER)

    def changes(kind: str) -> dict[str, float]:
        sentence = re.search(rf"^{kind}: nearest.*$", page, flags=re.MULTILINE)
        assert sentence is not None
        found = re.findall(r"Tested with (\S+): (\S+) points", sentence[0])
        return {name: float(change.replace("−", "-")) for name, change in found}

    whole, parts = changes("bne"), changes("bne-a")
    assert all(abs(change) < 1 for change in whole.values())
    assert parts["uniform"] < 2 * whole["uniform"] < 0


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
    for name in ("root-wasserstein", "uniform", "dnet"):
        own = last(runs, name)
        cells = row(page, name if name == "dnet" else f"bne, `options.distance={name}`")
        for column, target in enumerate(TARGETS):
            on_target = {key: value for key, value in own.items() if key[0] == target}
            if on_target:
                shown = float(cells[column].split(" ")[0].replace("−", "-"))
                assert shown == pytest.approx(gap(on_target, whole), abs=0.051)
            else:
                assert cells[column] == "…"
        assert int(cells[-1]) == len({seed for _, seed in own})
    assert row(page, "freeze-bn")[-2] == "…"
    assert row(page, "bne, `augmentation=strong`, `exact_statistics=true`")[-2] != "…"
    assert "clip" not in page
