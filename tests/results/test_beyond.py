"""docs/beyond.md, and tables of other pages, follow from the records."""

import json
import re
from fractions import Fraction
from importlib import import_module
from importlib.metadata import version
from itertools import permutations
from statistics import fmean
from typing import Any

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "results" / "beyond"
PAGE = (ROOT / "docs" / "beyond.md").read_text()


@pytest.fixture(scope="module")
def beyond() -> Any:
    return import_module("beyond")


def test_the_page_is_what_the_records_give(beyond: Any) -> None:
    assert beyond.page() == PAGE


def test_the_table_of_modes_is_what_the_records_give(beyond: Any) -> None:
    text = (ROOT / "docs" / "use.md").read_text()
    assert beyond.use_page(text) == text
    table = text.partition("<!-- modes -->")[2].partition("<!-- /modes -->")[0]
    (row,) = (line.split(" | ") for line in table.splitlines() if "`--mix centre`" in line)
    lines = [json.loads(line) for line in (FOLDER / "modes.jsonl").open()]
    by_seed: dict[int, dict[str, float]] = {}
    for line in lines:
        if (line["method"], line["mode"], line["images"]) == ("bne", "centre", "target"):
            right = 100 * line["correct"][line["shares"].index(0.0)] / line["count"]
            by_seed.setdefault(line["seed"], {})["+".join(line["target"])] = right
    whole = [fmean(found.values()) for found in by_seed.values() if len(found) == 4]
    assert row[3].split()[0] == f"{fmean(whole):.1f}"


def test_a_spurious_cue_is_told_of_every_target_and_seed(beyond: Any) -> None:
    lines = [json.loads(line) for line in (ROOT / "results" / "spurious.jsonl").open()]
    for method in ("deepall", "bne", "points", "deepall-points"):
        own = [line["accuracy"] for line in lines if line["method"] == method]
        assert len(own) == len(beyond.cue()) == 12
        assert fmean(run[method] for run in beyond.cue()) == pytest.approx(fmean(own))
        assert f"{fmean(own):.1f}" in PAGE


def _allowed(line: dict[str, Any], most: float) -> dict[str, Any]:
    """The largest share, once more: its cost is the mean of 1, 0 and -1 over held-out images."""
    best = line["leaning"][0]
    for one in line["leaning"]:
        count = sum(score["images"] for score in one["validation"].values())
        costs = [1] * one["lost"] + [-1] * one["gained"]
        costs += [0] * (count - len(costs))
        mean = fmean(costs)
        deviation = fmean((cost - mean) ** 2 for cost in costs) ** 0.5
        if one["share"] <= most and mean <= deviation / count**0.5:
            best = one
    return best


@pytest.mark.parametrize("name", ["pacs", "office_caltech"])
def test_averages_are_those_of_the_lines_themselves(name: str) -> None:
    lines = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").open()]
    lines = [line for line in lines if not line["settings"].get("options", {}).get("learn_lean")]
    rows = {"deepall": "DeepAll", "bne": "BNE", "points": "Points"}
    for method, row in rows.items():
        most = 0.2 if method == "points" else 0.1
        by_seed: dict[int, list[float]] = {}
        for line in (one for one in lines if one["method"] == method):
            scores = _allowed(line, most)["target"].values()
            right, images = (sum(s[key] for s in scores) for key in ("correct", "images"))
            by_seed.setdefault(line["seed"], []).append(100 * right / images)
        whole = [fmean(found) for found in by_seed.values() if len(found) == 4]
        cells = re.findall(rf"^\| {row}, leaning \|(.*)\|$", PAGE, re.MULTILINE)
        averages = [cell.split("|")[4].split()[0] for cell in cells]
        assert f"{fmean(whole):.1f}" in averages


@pytest.mark.parametrize(
    ("method", "mode"),
    [
        ("DeepAll", "plain"),
        ("BNE", "logits"),
        ("Points", "centre"),
        ("Points, learned", "centre"),
    ],
)
def test_a_share_chosen_by_leaving_sources_out_saw_nothing_of_the_target(
    method: str, mode: str
) -> None:
    def lines(name: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").open()]
        longest = [one for one in found if one.get("steps") == 1000]
        return [one for one in longest if (one["method"], one["mode"]) == (method, mode)]

    by_seed: dict[int, list[float]] = {}
    for run in lines("digits"):
        (target,) = run["target"]
        inner: dict[float, list[float]] = {}
        for pair in lines("digits-pairs"):
            if pair["seed"] == run["seed"] and target in pair["target"]:
                (other,) = {*pair["target"]} - {target}
                for one in (one for one in pair["leaning"] if one["share"] != "learned"):
                    score = one["target"][other]
                    share = Fraction(score["correct"], score["images"])
                    inner.setdefault(one["share"], []).append(share)
        assert {len(own) for own in inner.values()} == {3}
        best = max(inner, key=lambda share: sum(inner[share]))
        (chosen,) = (one for one in run["leaning"] if one["share"] == best)
        score = chosen["target"][target]
        right = 100 * score["correct"] / score["images"]
        by_seed.setdefault(run["seed"], []).append(right)
    (row,) = re.findall(rf"^\| digits \| {method} \|(.*)\|$", PAGE, re.MULTILINE)
    assert row.split("|")[3].split()[0] == f"{fmean(map(fmean, by_seed.values())):.1f}"


def test_the_tables_of_watching_are_what_the_records_give() -> None:
    watch = import_module("watch")
    text = (ROOT / "docs" / "watch.md").read_text()
    assert watch.page(text) == text
    lines = [json.loads(line) for line in (ROOT / "results" / "drift.jsonl").open()]
    table = text.partition("<!-- drift -->")[2].partition("<!-- /")[0]
    for test, size, kind in (
        ("bne monitor", 16, "detected"),
        ("bne monitor", 16, "detected_equal"),
        ("KS", 64, "detected"),
        ("MMD", 64, "detected_equal"),
    ):
        label = test if kind == "detected" else f"{test}, at 1 %"
        (row,) = re.findall(rf"^\| {label} \| {size} \|.*", table, re.MULTILINE)
        shares = [
            one[kind] / one["windows"]
            for one in lines
            if (one["test"], one["size"], one["target"]) == (test, size, "photo")
            and (one.get("version"), one.get("pixels")) == (4, 224)
        ]
        assert row.split(" | ")[6] == f"{100 * fmean(shares):.1f}"
    table = text.partition("<!-- mixtures -->")[2].partition("<!-- /")[0]
    for test in ("bne monitor", "bne monitor --mixed"):
        (row,) = re.findall(rf"^\| {test} \| 64 \|.*", table, re.MULTILINE)
        own = [one for one in lines if (one["test"], one["size"]) == (test, 64)
               and (one.get("version"), one.get("pixels")) == (4, 96)]  # fmt: skip
        mixed = fmean(one["mixed_alarms"] / one["mixed"] for one in own)
        art = fmean(
            one["detected"] / one["windows"] for one in own if one["target"] == "art_painting"
        )
        assert row.split(" | ")[4:6] == [f"{100 * mixed:.1f} %", f"{100 * art:.1f}"]


def test_what_one_gains_by_effort_is_what_the_records_give() -> None:
    effort = import_module("effort")
    text = (ROOT / "README.md").read_text()
    assert effort.readme(text) == text
    locked = (ROOT / "requirements.lock").read_text()
    if f"\nmatplotlib=={version('matplotlib')} " in locked:  # others draw a little otherwise
        assert effort.figure() == (ROOT / "docs" / "figures" / "effort.svg").read_text()
    table = text.partition("<!-- effort -->")[2].partition("<!-- /effort -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in table.splitlines()[3:]]
    pacs = PAGE.partition("PACS, the paper's augmentation")[2].partition("Office-Caltech")[0]
    cells = [line.split("|") for line in pacs.splitlines() if line.startswith("|")]
    averages = {own[1].strip(): own[6].strip() for own in cells}
    for place, row in ((1, "DeepAll"), (2, "BNE"), (4, "Points without domains")):
        assert rows[place] == [averages[row], averages[f"{row}, leaning"]]
    heads = [json.loads(line) for line in (FOLDER / "heads.jsonl").open()]
    fitted: dict[str, list[dict[str, Any]]] = {}
    for line in heads:
        if line["recipe"] == "beyond-pacs-resnet18" and line["fitted"] == line["share"]:
            fitted.setdefault(line["target"][0], []).append(line)
    plain = [100 * own[0]["correct"] / own[0]["count"] for own in fitted.values()]
    best = [max(own, key=lambda line: line["held-out"]) for own in fitted.values()]
    leaning = [100 * line["correct"] / line["count"] for line in best]
    assert rows[0] == [f"{fmean(plain):.1f}", f"{fmean(leaning):.1f}"]
    watched = (ROOT / "docs" / "watch.md").read_text()
    (own,) = (
        line.split("|") for line in watched.splitlines() if line.startswith("| enrolled | 64")
    )
    assert rows[3] == [own[7].strip(), own[8].strip()]
    results = (ROOT / "docs" / "results.md").read_text()
    strong = results.partition("## Strong augmentation")[2]
    lines = [line.split("|") for line in strong.splitlines() if line.startswith("|")]
    strongest = {own[1].strip(): own[6].strip() for own in lines[:4] if len(own) > 6}
    assert [own[0] for own in rows[5:]] == [strongest["DeepAll"], strongest["BNE (c)"]]


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("deepall", "DeepAll"),
        ("bne", "BNE"),
        ("points", "Points"),
        ("deepall-points", "Points without domains"),
    ],
)
def test_on_pacs_the_shares_of_one_seed_hold_for_all(method: str, name: str) -> None:
    def lines(file: str) -> list[dict[str, Any]]:
        return [
            one
            for one in map(json.loads, (FOLDER / f"{file}.jsonl").open())
            if one["method"] == method and not one["settings"]["options"].get("learn_lean")
        ]

    inner: dict[str, dict[float, list[float]]] = {}
    for pair in lines("pacs-pairs"):
        for target, other in permutations(pair["settings"]["target"]):
            for one in pair["leaning"]:
                score = one["target"][other]
                share = score["correct"] / score["images"]
                inner.setdefault(target, {}).setdefault(one["share"], []).append(share)
    by_seed: dict[int, list[float]] = {}
    for run in lines("pacs"):
        (target,) = run["settings"]["target"]
        found = inner[target]
        best = max(found, key=lambda share: sum(found[share]))
        (chosen,) = (one for one in run["leaning"] if one["share"] == best)
        score = chosen["target"][target]
        by_seed.setdefault(run["seed"], []).append(100 * score["correct"] / score["images"])
    assert all(len(own) == 3 for found in inner.values() for own in found.values())
    (row,) = re.findall(rf"^\| PACS \| {name} \|(.*)\|$", PAGE, re.MULTILINE)
    assert row.split("|")[3].split()[0] == f"{fmean(map(fmean, by_seed.values())):.1f}"


def test_what_domains_add_on_random_styles() -> None:
    lines = [json.loads(line) for line in (ROOT / "results" / "many-domains.jsonl").open()]
    (row,) = re.findall(r"^\| 1,000 \| 8 \| 1 \|(.*)\|$", PAGE, re.MULTILINE)
    for case, cell in zip(("Points", "Points without domains"), row.split("|"), strict=False):
        own = [line["accuracy"] for line in lines if line["case"] == f"{case}, leaning"
               and (line["domains"], line.get("apart", 1)) == (1000, 1)]  # fmt: skip
        assert cell.strip() == f"{fmean(own):.1f}"


@pytest.mark.parametrize(
    ("file", "method", "place"),
    [("office_caltech", "deepall", (1, 1)), ("digits", "DeepAll", (2, 0))],
)
def test_images_in_another_light(file: str, method: str, place: tuple[int, int]) -> None:
    plain = {  # of a run that was repeated, longer, the last line counts
        (*line["target"], line["seed"]): 100 * line["correct"][0] / line["count"]
        for line in map(json.loads, (FOLDER / f"modes-{file}.jsonl").open())
        if (line["method"], line["change"]) == (method, "noise of 25")
    }
    rows = re.findall(r"^\| noise of 25 \|(.*)\|$", PAGE, re.MULTILINE)
    table, column = place
    assert rows[table].split("|")[column].split()[0] == f"{fmean(plain.values()):.1f}"


@pytest.mark.parametrize("method", ["points", "deepall-points"])
@pytest.mark.parametrize(("amplitudes", "told"), [(None, "as they are"), ("random", "mixed")])
def test_mixed_amplitudes_are_those_of_the_lines_themselves(
    amplitudes: str | None, told: str, method: str
) -> None:
    by_seed: dict[int, list[float]] = {}
    for line in map(json.loads, (ROOT / "results/trials/digits-unseen.jsonl").open()):
        own = line["settings"]
        if (own["amplitudes"]["name"], own["method"]) == (amplitudes, method):
            (score,) = _allowed(line, 0.2)["target"].values()
            by_seed.setdefault(own["seed"], []).append(100 * score["correct"] / score["images"])
    assert [len(found) for found in by_seed.values()] == [4, 4, 4]
    table = PAGE.partition("| amplitudes |")[2].partition("\n\n")[0].splitlines()
    (row,) = (text.split(" | ") for text in table if text.startswith(f"| {told} | "))
    cell = row[1 if method == "points" else 2]
    assert cell.split()[0] == f"{fmean(fmean(found) for found in by_seed.values()):.1f}"
