"""The comparison of rules, on records whose ranks are known."""

import sys
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from bne.benchmark.plan_file import read_plan, write_plan
from bne.benchmark.records import Record
from tests.benchmark.examples import item, record
from tests.docs.pages import ROOT

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
OUTER = (60, 64, 68, 72)  # accuracy on the target, by setting


def run(target: tuple[str, ...], number: int, accuracy: float, validation: float = 90) -> Record:
    """A run of the setting of a number; every held-out and every target domain has the same."""
    one = item("deepall", "+".join(target), per_domain=number + 1)
    held_out = [domain for domain in DOMAINS if domain not in target]
    scores = {domain: {"correct": round(10 * accuracy), "images": 1000} for domain in target}
    own = {domain: {"correct": round(10 * validation), "images": 1000} for domain in held_out}
    epoch = {"phase": "train", "epoch": 1, "stage": "train", "steps": 1, "loss": 1.0}
    epoch |= {"learning_rate": 0.1, "seconds": 1.0, "images_per_second": 1.0}
    epoch |= {"validation": own, "target": scores, "statistics": "running"}
    counts = {domain: score["correct"] for domain, score in scores.items()}
    return record(one, counts, epochs=(epoch,))


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "results"), *sys.path])
    return import_module("tune_proof")


def test_ranks_and_points_below_the_best_are_those_of_the_records(proof: Any) -> None:
    # Held-out images rank the settings the wrong way round, leaving sources out swaps the last two.
    inner = (50, 51, 53, 52)
    records = [
        run((domain,), number, outer, validation=98 - number)
        for number, outer in enumerate(OUTER)
        for domain in DOMAINS
    ]
    found = proof.settings(records)
    assert [len(one.wanted) for one in found] == [6] * 4
    records += [
        run(pair, number, inner[number])
        for number in range(len(OUTER))
        for pair in combinations(DOMAINS, 2)
    ]
    found = proof.settings(records)
    assert [one.wanted for one in found] == [[]] * 4
    result = proof.compare(found)
    assert result["settings"] == 4
    for own in (*result["targets"].values(), result["mean"]):
        assert own["correlation"] == pytest.approx({"validation": -1, "left_out": 0.8})
        assert own["regret"] == pytest.approx({"any": 6, "validation": 12, "left_out": 4})
    assert "better by both" in "\n".join(proof.shown("PACS", result))


def test_runs_that_are_missing_are_planned_cheaper_if_asked_for(proof: Any, tmp_path: Path) -> None:
    records = [run((domain,), 0, 60) for domain in DOMAINS]
    (one,) = proof.settings(records, cheaper=(8, 112))
    write_plan(tmp_path / "plan.json", one.wanted)
    planned, _ = read_plan(tmp_path / "plan.json")
    assert {item.recipe.target for item in planned} == set(combinations(DOMAINS, 2))
    assert {(i.recipe.train.epochs, i.recipe.train.warm_up) for i in planned} == {(8, 2)}
    assert {(i.recipe.size, i.recipe.resize) for i in planned} == {(112, 128)}


def test_the_committed_page_is_that_of_the_records(proof: Any) -> None:
    found = proof.results({data: proof.read_settings(data) for data in proof.DATA})
    text = proof.PAGE.read_text(encoding="utf-8")
    assert proof.page(text, found) == text, "run python results/tune_proof.py"
