"""docs/results.md and its figure follow from the records."""

import json
import re
from dataclasses import replace
from importlib import import_module
from statistics import fmean, stdev
from typing import Any

import pytest
from scipy.stats import ttest_1samp

from bne.benchmark.records import Record, read
from bne.benchmark.reference import tables
from bne.methods import find
from bne.training.events import read_epochs
from bne.training.scores import mean_accuracy, undone
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
    return import_module("make")


@pytest.fixture(scope="module")
def records(make: Any) -> list[Any]:
    return make.all_records()


@pytest.fixture(scope="module")
def page(make: Any, records: list[Any]) -> str:
    return make.page(records, make.other_records())


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
        default = find(method).options
        changed = [k for k, v in settings["options"].items() if k in default and v != default[k]]
        if not changed and all(own[key] == value for key, value in usual.items()):
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
    assert words(page) <= 1500
    files = make.FIGURE.read_text(encoding="utf-8"), make.figure(records)
    drawn, again = (re.findall("<text.*?>(.*?)</text>", text, re.DOTALL) for text in files)
    assert drawn == again, "run python results/make.py"
    assert len(drawn) > 10


def test_every_table_of_the_paper_stands_with_ours_on_a_page(make: Any, records: list[Any]) -> None:
    text = make.tables_page([*records, *make.other_records()])
    assert make.TABLES_PAGE.read_text(encoding="utf-8") == text, "run python results/make.py"
    assert {name for name in tables() if name not in text} == set()
    (part,) = [p for p in text.split("## ") if p.startswith(f"{make.ABLATION}, `{make.STANDARD}`")]
    (row,) = [line for line in part.splitlines() if line.startswith("| DeepAll |")]
    found, (_, paper) = scores("deepall"), MAIN["DeepAll"]
    for target, printed, cell in zip(TARGETS, paper.split(), row.split(" | ")[1:], strict=False):
        mean = fmean(value for (domain, _), value in found.items() if domain == target)
        assert cell.startswith(f"{mean:.1f} ± ")
        assert cell.endswith(f" ({printed})")


def test_methods_that_a_table_of_the_paper_lacks_are_rows_of_ours(
    make: Any, records: list[Any]
) -> None:
    asked = {"recipe": "default", "benchmark": "office31", "methods": ["freeze-bn"]}
    chosen = make.choose(**asked, targets=["dslr"])
    (item,) = make.plan(chosen, 1, {}, weights=make.WEIGHTS["resnet18"])
    known = {"last": {"dslr": {"correct": 249, "images": 498}}}
    one = replace(records[0], row="freeze-bn", settings=item.settings, accuracy=known)
    part = make.table_part("sota-office31-resnet18", "default", [one])
    assert "| FreezeBatchNorm | – | 50.0 | – | – | 1 |" in part
    assert "Not run yet: DeepAll, BNE, BNE (a), DSON." in part


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


def test_the_best_of_runs_and_epochs(page: str) -> None:
    found = []
    for method in ("deepall", "bne"):
        every: dict[str, list[float]] = {target: [] for target in TARGETS}
        for entry in range(20):  # the head's two come before
            for (target, _), score in scores(method, entry=-1 - entry).items():
                every[target].append(score)
        assert {len(values) for values in every.values()} == {3 * 20}
        found.append(fmean(max(values) for values in every.values()))
    deepall, bne = found
    assert f"{deepall:.1f} for DeepAll and {bne:.1f} for BNE (c): {bne - deepall:+.1f}" in page


def made_up(items: list[Any], correct: int, leaning: int) -> list[Any]:
    """Records of runs in which so many of 1000 images were right, and so many leaning."""
    score = {"correct": correct, "images": 1000, "balanced": None, "unbalanced": None}
    found = []
    for item in items:
        targets = dict.fromkeys(item.recipe.target, score)
        own = {domain: {**score, "correct": leaning} for domain in item.recipe.target}
        at = {"share": 0.0, "validation": {}, "target": own, "gained": 0, "lost": 0}
        accuracy = dict.fromkeys(("last", "validation", "oracle"), targets)
        about = item.experiment, item.row, item.settings, accuracy
        found.append(Record(*about, 1.0, leaning=(at,)))
    return found


def test_every_table_of_the_paper_has_a_verdict_which_follows_the_records(
    make: Any, records: list[Any], page: str
) -> None:
    heading = "Every table of the paper"
    assert {name.strip("`") for name in rows(page, heading)} - {"table", "---"} == set(tables())
    recipes = {
        "sota-pacs-alexnet": "pacs-alexnet",
        "sota-office31-resnet18": "default",
        "sota-officecaltech-alexnet": "officecaltech-alexnet",
    }
    new = []
    for name, recipe in recipes.items():
        own = make.planned(name, recipe, rows=("BNE", "DeepAll"))
        for row, correct, leaning in (("DeepAll", 500, 520), ("BNE", 600, 590)):
            new += made_up([item for item in own if item.row == row], correct, leaning)
    before, after = (rows(make.page(records, others), heading) for others in ((), new))
    for name, recipe in recipes.items():
        _, _, ours, leaning, *_, verdict = after[f"`{name}`"]
        assert (ours, leaning, verdict) == ("+10.0 ± 0.0", "+7.0 ± 0.0", "confirmed")
        assert after[f"`{name}`"][0] == f"`{recipe}`"
        assert before[f"`{name}`"][-1] == "not run yet"


def test_the_rivals_that_are_run_stand_beside_the_papers(make: Any, records: list[Any]) -> None:
    heading = "The systems the paper compares with"
    runs = [item for item in make.planned("sota-pacs-resnet18") if item.row == "CrossGrad"]
    known = [one for one in records if one.settings["method"] not in ("crossgrad", "metareg")]
    text = make.page([*known, *made_up(runs[:4], 820, 830)])
    deepall = fmean(scores("deepall")[target, 0] for target in TARGETS)
    gain = f"{82 - deepall:+.1f}"
    assert rows(text, heading)["CrossGrad"] == ["82.0", gain, "83.0", "77.8", "−1.3", "1"]
    assert "Not run yet: MetaReg" in text


def test_the_gain_by_other_settings(make: Any, records: list[Any]) -> None:
    heading, name = "Accuracy on the target", "DeepAll with unbalanced batches"
    known = [one for one in records if one.settings["options"].get("balanced", True)]
    assert name not in rows(make.page(known), heading)
    runs = make.planned(rows=("DeepAll",), **{"options.balanced": False})
    text = make.page([*known, *made_up(runs[:4], 700, 700)])
    bne = [scores("bne")[target, 0] - 70 for target in TARGETS]
    expected = [f"{gain:+.1f}" for gain in [*bne, fmean(bne)]]
    assert rows(text, heading)[name] == [*expected, "1"]


def test_strong_augmentation_has_the_newest_sound_statistics(make: Any, records: list[Any]) -> None:
    old = [record for record in records if "statistics" not in record.settings]
    repeated = [record for record in old if record.settings["augmentation"] == "strong"]
    new = [replace(record, settings={**record.settings, "statistics": 2}) for record in repeated]
    running, exact = -2, -1
    for own, entry in ((old, running), ([*old, *new], exact), ([*old, *new[1:4]], running)):
        text = make.page(own)
        assert words(text) <= 1500
        table = rows(text, "Strong augmentation")
        for name, method in (("DeepAll", "deepall"), ("BNE (c)", "bne")):
            assert table[name][:5] == cells(scores(method, "strong", entry))


def test_figures_in_the_questions_are_those_of_the_results(page: str) -> None:
    figures = re.findall(r"[\d.]+ ± [\d.]+\d", (ROOT / "docs" / "questions.md").read_text())
    assert [figure for figure in figures if figure not in page] == []


def test_the_table_of_starts_is_what_its_records_give() -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    for record in read(ROOT / "results" / "starts.jsonl"):
        epochs = [epoch for epoch in read_epochs(record.epochs) if epoch.phase == "train"]
        losses = ", ".join(f"{epoch.loss:.2f}" for epoch in epochs)
        assert f"| {losses} | {mean_accuracy(epochs[-1].validation):.0f} % |" in page
        rate = record.settings["train"]["optimiser"]["learning_rate"]
        unclipped = record.settings["train"]["optimiser"]["clip"] is None
        factor = record.settings["train"]["optimiser"]["head_factor"]
        too_high = (rate, factor) == (3e-3, 10) and unclipped
        assert bool(undone(read_epochs(record.epochs), 7)) == too_high
