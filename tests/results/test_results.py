"""docs/results.md and its figure follow from the records."""

import json
import re
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from statistics import fmean, stdev
from typing import Any

import pytest
from scipy.stats import ttest_1samp

from tests.docs.pages import ROOT

FOLDER = ROOT / "results" / "pacs-resnet18"
LINES = [json.loads(line) for f in sorted(FOLDER.glob("*.jsonl")) for line in f.open()]
TARGETS = ("art_painting", "cartoon", "photo", "sketch")
MAIN = {  # the method, and what the paper prints
    "DeepAll": ("deepall", "75.8 73.0 94.4 70.9 78.5"),
    "BNE (a)": ("bne-a", "74.7 71.7 93.0 74.8 78.6"),
    "BNE (b)": ("bne-b", "79.8 76.0 92.5 72.5 80.2"),
    "BNE (c)": ("bne", "78.8 78.9 94.8 79.7 83.1"),
    "DSON": ("dson", "84.7 77.6 95.9 82.2 85.1"),
}
Scores = dict[tuple[str, int], float]  # by target and seed


@pytest.fixture(scope="module")
def make() -> Any:
    spec = spec_from_file_location("make", ROOT / "results" / "make.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def records(make: Any) -> list[Any]:
    return make.all_records()


@pytest.fixture(scope="module")
def page(make: Any, records: list[Any]) -> str:
    return make.page(records)


def scores(method: str, augmentation: str = "paper", entry: int = -1) -> Scores:
    """On the target at an entry of the epochs, by the standard settings but the augmentation."""
    usual = {"epochs": 20, "warm_up": 6, "learning_rate": 3e-3, "per_domain": 16}
    usual |= {"mix": "logits", "branch_statistics": "batch", "statistics": 1}
    usual |= {"method": method, "distance": "uniform" if method == "dson" else "wasserstein"}
    usual |= {"augmentation": augmentation, "exact_statistics": augmentation == "strong"}
    found = {}
    for line in LINES:
        settings, train = line["settings"], line["settings"]["train"]
        own = usual | settings | settings["options"] | train | train["optimiser"]
        if all(own[key] == value for key, value in usual.items()):
            ((target, score),) = line["epochs"][entry]["target"].items()
            found[target, line["seed"]] = 100 * score["correct"] / score["images"]
    return found


def cells(found: Scores, sign: str = "") -> list[str]:
    """Mean and standard error on each target and on average."""
    seeds = sorted({seed for _, seed in found})
    columns = [[found[target, seed] for seed in seeds] for target in TARGETS]
    columns.append([fmean(values) for values in zip(*columns, strict=True)])
    return [f"{fmean(c):{sign}.1f} ± {stdev(c) / len(c) ** 0.5:.1f}" for c in columns]


def words(text: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in text.split())


def rows(page: str, heading: str) -> dict[str, list[str]]:
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    return {name: cells for name, *cells in found}


def test_the_committed_page_and_figure_are_those_of_the_records(
    make: Any, records: list[Any], page: str
) -> None:
    assert make.PAGE.read_text(encoding="utf-8") == page, "run python results/make.py"
    assert words(page) <= 900
    files = make.FIGURE.read_text(encoding="utf-8"), make.figure(records)
    drawn, again = (re.findall("<text.*?>(.*?)</text>", text, re.DOTALL) for text in files)
    assert drawn == again, "run python results/make.py"
    assert len(drawn) > 10


def test_every_line_is_read_as_the_run_that_it_was(records: list[Any]) -> None:
    assert len(records) >= 203
    assert [record.digest for record in records] == [line["digest"] for line in LINES]


def test_the_main_table(page: str) -> None:
    table = rows(page, "Accuracy on the target")
    for name, (method, paper) in MAIN.items():
        expected = zip(cells(scores(method)), paper.split(), strict=True)
        assert table[name][:5] == [f"{ours} ({printed})" for ours, printed in expected]
    deepall, bne = scores("deepall"), scores("bne")
    gain = cells({run: bne[run] - deepall[run] for run in bne}, "+")[-1]
    assert rows(page, "The paper's comparisons")["BNE (c) > DeepAll"][0] == gain


def test_a_comparison_is_decided_by_students_test_over_its_seeds(
    make: Any, records: list[Any]
) -> None:
    found = make.comparisons(records)
    assert {one["verdict"] for one in found} >= {"confirmed", "undecided"}
    for one in found:
        sure = ttest_1samp(list(one["ours"].values.values()), 0).pvalue < 0.05
        assert sure or one["verdict"] == "undecided", one["name"]


def test_strong_augmentation_has_the_newest_sound_statistics(make: Any, records: list[Any]) -> None:
    old = [record for record in records if "statistics" not in record.settings]
    repeated = [record for record in old if record.settings["augmentation"] == "strong"]
    new = [replace(record, settings={**record.settings, "statistics": 2}) for record in repeated]
    running, exact = -2, -1
    for own, entry in ((old, running), ([*old, *new], exact), ([*old, *new[1:4]], running)):
        text = make.page(own)
        assert words(text) <= 900
        table = rows(text, "Strong augmentation")
        for name, method in (("DeepAll", "deepall"), ("BNE (c)", "bne")):
            assert table[name][:5] == cells(scores(method, "strong", entry))


def test_figures_in_the_questions_are_those_of_the_results(page: str) -> None:
    figures = re.findall(r"[\d.]+ ± [\d.]+\d", (ROOT / "docs" / "questions.md").read_text())
    assert [figure for figure in figures if figure not in page] == []
