"""The comparison of rules, on records whose ranks are known."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from bne.benchmark.plan_file import read_plan, write_plan
from bne.benchmark.records import Record
from tests.benchmark.examples import item, record

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
OUTER = range(50, 62)  # accuracy on the target, by setting


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
def proof() -> Any:
    return import_module("tune_proof")


def test_ranks_and_points_below_the_best_are_those_of_the_records(proof: Any) -> None:
    # Held-out images rank the settings the wrong way round, leaving sources out swaps the last two.
    inner = (*range(40, 50), 51, 50)
    data = proof.Data(DOMAINS, ())
    records = [
        run((domain,), number, outer, validation=98 - number)
        for number, outer in enumerate(OUTER)
        for domain in DOMAINS
    ]
    found = proof.settings(records, data)
    assert [len(one.wanted) for one in found] == [6] * 12
    records += [
        run(pair, number, inner[number])
        for number in range(len(OUTER))
        for pair in combinations(DOMAINS, 2)
    ]
    found = proof.settings(records, data)
    assert [one.wanted for one in found] == [[]] * 12
    result = proof.compare(found)
    assert result["settings"] == 12
    for own in (*result["targets"].values(), result["mean"]):
        assert own["correlation"] == pytest.approx(
            {"validation": -1, "left_out": 1 - 6 * 2 / (12**3 - 12)}
        )
        assert own["regret"] == pytest.approx({"any": 5.5, "validation": 11, "left_out": 1})
    assert "better by both" in "\n".join(proof.shown("PACS", result))


def leaning(one: Record, share: float, more: int) -> dict[str, Any]:
    """The scores of a run at a share, in points more than without on targets, fewer elsewhere."""

    def told(scores: Mapping[str, Any], points: int) -> dict[str, Any]:
        return {d: {**own, "correct": own["correct"] + 10 * points} for d, own in scores.items()}

    target = told(one.accuracy["last"], more)
    held_out = told(one.epochs[-1]["validation"], -more)
    return {"share": share, "validation": held_out, "target": target, "gained": 0, "lost": 0}


def test_a_method_at_another_share_is_another_setting_of_the_same_runs(proof: Any) -> None:
    gains = {0.0: 0, 0.1: 3, 0.3: 2}
    records = []
    for target in [*((domain,) for domain in DOMAINS), *combinations(DOMAINS, 2)]:
        one = run(target, 0, 60)
        leanings = tuple(leaning(one, share, more) for share, more in gains.items())
        records.append(replace(one, leaning=leanings))
    found = proof.settings(records, proof.Data(DOMAINS, (), (*gains, "auto")))
    told = [one.figures("sketch") for one in found]
    assert [own["outer"] for own in told] == [60, 63, 62, 63]  # "auto" takes 0.1 at most
    assert [own["left_out"] for own in told] == [60, 63, 62, 63]
    assert [own["validation"] for own in told] == [90, 87, 88, 87]
    assert "rank correlation" not in "\n".join(proof.shown("PACS", proof.compare(found)))
    with pytest.raises(ValueError, match=r"without scores at share 0\.5"):
        replace(found[0], share=0.5).figures("sketch")


def test_runs_that_are_missing_are_planned_cheaper_if_asked_for(proof: Any, tmp_path: Path) -> None:
    records = [run((domain,), 0, 60) for domain in DOMAINS]
    (one,) = proof.settings(records, proof.Data(DOMAINS, (), cheaper=(8, 112)))
    write_plan(tmp_path / "plan.json", one.wanted)
    planned, _ = read_plan(tmp_path / "plan.json")
    assert {item.recipe.target for item in planned} == set(combinations(DOMAINS, 2))
    assert {(i.recipe.train.epochs, i.recipe.train.warm_up) for i in planned} == {(8, 2)}
    assert {(i.recipe.size, i.recipe.resize) for i in planned} == {(112, 128)}


def test_the_committed_page_is_that_of_the_records(proof: Any) -> None:
    found = proof.results({name: proof.read_settings(data) for name, data in proof.DATA.items()})
    text = proof.PAGE.read_text(encoding="utf-8")
    assert proof.page(text, found) == text, "run python results/tune_proof.py"
