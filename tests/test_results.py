"""docs/results.md says what the records say, and the recipe what the search picks.

Figures are computed here once more, from the lines of the files as they are.
"""

import importlib
import json
import re
import sys
from copy import deepcopy
from pathlib import Path
from statistics import fmean, pstdev, stdev
from types import ModuleType
from typing import Any

import pytest
from scipy.stats import binom

from bne.engine.recipe_files import load
from bne.evaluation.identity import settings
from bne.evaluation.records import Record
from bne.methods.registry import find
from tests.cli.test_data_check import bne
from tests.docs.pages import ROOT

FOLDER = ROOT / "results" / "pacs-resnet18"
README = ROOT / "results" / "README.md"
TARGETS = ("art_painting", "cartoon", "photo", "sketch")
Line = dict[str, Any]


@pytest.fixture(scope="module")
def make() -> ModuleType:
    sys.path.insert(0, str(ROOT / "results"))
    try:
        return importlib.import_module("make")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def search() -> list[Line]:
    return lines("search.jsonl")


@pytest.fixture(scope="module")
def tables() -> list[Line]:
    """The runs of the standard setting, seed 0."""
    found = []
    for line in lines("tables.jsonl"):
        overrides = {"method": line["method"], "target": line["target"]}
        recipe = load("pacs-resnet18-standard", overrides)
        standard = {**settings(recipe), "weights": line["settings"]["weights"]}
        if line["method"] in ("deepall", "bne") and line["settings"] == standard:
            found.append(line)
    assert len(found) == 8
    return found


def lines(name: str) -> list[Line]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def write(folder: Path, **files: list[Line]) -> Path:
    for name, content in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
    return folder


def accuracy(line: Line, rule: str) -> float:
    (score,) = line["accuracy"][rule].values()
    return 100 * score["correct"] / score["images"]


def held_out(line: Line, statistics: str) -> float:
    """The mean over source domains after the last epoch, in percent."""
    epochs = [e for e in line["epochs"] if e["phase"] == "train" and e["statistics"] == statistics]
    return 100 * fmean(s["correct"] / s["images"] for s in epochs[-1]["validation"].values())


def row(page: str, start: str) -> list[str]:
    """The cells of the first row of a table that starts so."""
    found = re.search(rf"^\| {re.escape(start)} \|(.*)\|$", page, flags=re.MULTILINE)
    assert found, start
    return [cell.strip() for cell in found[1].split("|")]


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.split()[0].replace("−", "-")) for cell in cells]


def with_seed(line: Line, seed: int, more: int) -> Line:
    """The same run with another seed and some more correct answers."""
    other = deepcopy(line)
    other["seed"] = other["settings"]["seed"] = seed
    for scores in other["accuracy"].values():
        for score in scores.values():
            score["correct"] += more
    return Record.from_dict(other).to_dict()


def test_the_page_is_what_the_records_give(make: ModuleType) -> None:
    written = make.PAGE.read_text(encoding="utf-8")
    assert written == make.page(), "run python results/make.py"
    assert written.index("resnet18_imagenet (reconstructed torchvision V1)") < written.index("| ")


def test_the_recipe_is_what_the_final_picks(search: list[Line]) -> None:
    tried: dict[str, dict[str, list[Line]]] = {"bne": {}, "deepall": {}}
    for line in search:
        usual = find(line["method"]).options
        options = {k: v for k, v in line["settings"]["options"].items() if v != usual[k]}
        key = json.dumps([line["settings"]["train"], options], sort_keys=True)
        tried[line["method"]].setdefault(key, []).append(line)
    common = tried["bne"].keys() & tried["deepall"].keys()
    means = {
        key: fmean(held_out(run, "running") for runs in tried.values() for run in runs[key])
        for key in common
    }
    best = sorted(common, key=means.__getitem__)[-2:]
    finals: dict[str, dict[tuple[str, str], float]] = {key: {} for key in best}
    for line in lines("tables.jsonl"):
        for key, found in finals.items():
            train, options = json.loads(key)
            own = line["settings"]["train"]
            like = all(own[part] == train[part] for part in ("optimiser", "schedule"))
            if like and own["epochs"] == 20 and line["method"] in tried and not line["seed"]:
                found[line["method"], *line["target"]] = held_out(line, "running")
    runs = set.intersection(*(set(found) for found in finals.values()))
    assert {method for method, _ in runs} == {"bne", "deepall"}
    runs = {(m, t) for m, t in runs if {("bne", t), ("deepall", t)} <= runs}
    pick = max(best, key=lambda key: fmean(finals[key][run] for run in runs))
    train, options = json.loads(pick)
    standard = load("pacs-resnet18-standard", {"target": ["sketch"]})
    ours = standard.to_dict()
    assert ours["train"]["optimiser"] == train["optimiser"]
    assert ours["train"]["schedule"] == train["schedule"]
    assert ours["options"] == options == {}
    gain = fmean(
        held_out(run, "exact") - held_out(run, "running")
        for runs in tried.values()
        for run in runs[pick]
    )
    assert standard.exact_statistics == (gain > 0)


def test_the_recipe_finds_the_recorded_runs(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("benchmark", "--table", "ablation-pacs-resnet18", "--dry-run", "--json")
    chosen = ("--recipe", "pacs-resnet18-standard", "--weights", "resnet18_imagenet.safetensors")
    rows = ("--row", "DeepAll", "--row", "BNE (dt,warmup)")
    assert bne(*command, *chosen, *rows, "--records", FOLDER / "tables.jsonl") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["runs"], report["to_do"]) == (8, [])


def test_the_command_of_the_search_finds_its_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```bash\n(bne .*?)```", README.read_text(), flags=re.DOTALL)
    words = block.replace("\\\n", " ").replace("--data data/pacs", "").split()[1:]
    monkeypatch.chdir(ROOT)
    assert bne(*words, "--dry-run", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["runs"], report["to_do"]) == (4, [])


@pytest.mark.parametrize("rule", ["last", "validation", "oracle"])
def test_the_gap(make: ModuleType, tables: list[Line], tmp_path: Path, rule: str) -> None:
    page = make.page(write(tmp_path, tables=tables, search=lines("search.jsonl")))
    by_hand = {(line["method"], *line["target"]): accuracy(line, rule) for line in tables}
    gaps = [by_hand["bne", target] - by_hand["deepall", target] for target in TARGETS]
    label = {"oracle": "ours, oracle (on the target)"}.get(rule, f"ours, {rule}")
    section = page[page.index("## Where this disagrees") :]
    assert numbers(row(section, label)) == pytest.approx([*gaps, fmean(gaps)], abs=0.051)
    assert "[1/3]" in page
    assert "| BNE (dt,no-warmup) | paper | 79.8 |" in page  # not run: the paper's alone


def test_the_search(make: ModuleType, search: list[Line], tmp_path: Path) -> None:
    page = make.page(write(tmp_path, search=search))
    runs = []
    for line in search:
        optimiser = line["settings"]["train"]["optimiser"]
        if (line["method"], optimiser["learning_rate"]) == ("bne", 3e-3):
            runs.append(line)
    _, epochs, *cells = row(page, "bne | SGD 3e-3, momentum 0.9, head × 10 | cosine | –")
    assert epochs == "8 (2)"
    expected = [fmean(held_out(line, kind) for line in runs) for kind in ("running", "exact")]
    assert numbers(cells[:2]) == pytest.approx(expected, abs=0.0051)
    variance = 0.0
    for line in runs:
        scores = line["epochs"][-2]["validation"].values()
        shares = [(score["correct"] / score["images"], score["images"]) for score in scores]
        variance += sum(binom(n, p).var() / n**2 for p, n in shares) / 3**2 / len(runs) ** 2
    assert float(cells[0].split("±")[1]) == pytest.approx(100 * variance**0.5, abs=0.0051)
    on_art = next(line for line in runs if line["target"] == ["art_painting"])
    assert cells[2].split(" / ")[1] == f"{accuracy(on_art, 'last'):.1f}"


def test_the_course_of_long_runs(make: ModuleType, tmp_path: Path) -> None:
    runs = [line for line in lines("tables.jsonl") if line["settings"]["train"]["epochs"] == 60]
    page = make.page(write(tmp_path, tables=runs))
    course: dict[str, list[list[float]]] = {"deepall": [], "bne": []}
    for line in runs:
        epochs = [epoch["target"].values() for epoch in line["epochs"] if epoch["phase"] == "train"]
        course[line["method"]].append([100 * s["correct"] / s["images"] for (s,) in epochs])
    for method, own in course.items():
        means = [fmean(v for run in own for v in run[s : s + 10]) for s in range(0, 60, 10)]
        assert numbers(row(page, method)) == pytest.approx(means, abs=0.051)
        wandering = page[page.index("How much the last epoch") :]
        cells = row(wandering, f"{method} by `pacs-resnet18`, `epoch=220`")
        spreads = [float(cell.split("±")[1]) for cell in cells]
        assert spreads[-1] == pytest.approx(fmean(pstdev(run[40:]) for run in own), abs=0.051)
    # On other targets there is nothing to compare.
    other = [line for line in runs if (line["method"] == "bne") == (line["target"] == ["photo"])]
    assert "Does the gap grow?" not in make.page(write(tmp_path, tables=other))


def test_several_seeds(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    more = [with_seed(line, 1, 40 if line["method"] == "bne" else 0) for line in tables]
    page = make.page(write(tmp_path, tables=tables + more))
    assert "over 2 seeds" in page
    gaps = []
    for runs in (tables, more):
        base, own = (
            fmean(accuracy(line, "last") for line in runs if line["method"] == method)
            for method in ("deepall", "bne")
        )
        gaps.append(own - base)
    mean, error = row(page[page.index("## Where this") :], "ours, last")[-1].split(" ± ")
    assert float(mean) == pytest.approx(fmean(gaps), abs=0.051)
    assert float(error) == pytest.approx(stdev(gaps) / 2**0.5, abs=0.051)


def test_the_final(
    make: ModuleType, search: list[Line], tables: list[Line], tmp_path: Path
) -> None:
    page = make.page(write(tmp_path, search=search, tables=tables))
    assert "No target has been run with both settings and both methods yet." in page
    adam = next(
        line["settings"]["train"]
        for line in search
        if line["settings"]["train"]["optimiser"]["learning_rate"] == 3e-4
    )
    others = [deepcopy(line) for line in tables if line["target"] != ["photo"]]
    for line in others:
        line["settings"]["train"] |= {key: adam[key] for key in ("optimiser", "schedule")}
        for epoch in line["epochs"]:
            for score in epoch["validation"].values():
                score["correct"] = score["images"]
    page = make.page(write(tmp_path, search=search, tables=tables + others))
    assert "So far on art_painting, cartoon, sketch:" in page
    assert "The rule picks **Adam 3e-4, weight decay 1e-6, cosine**" in page
    assert "The recipe has another." in page
    elsewhere = deepcopy(others)
    for line in elsewhere:
        line["settings"]["weights"] = "other.safetensors"
    page = make.page(write(tmp_path, search=search, tables=tables + elsewhere))
    assert "No target has been run with both settings and both methods yet." in page
    page = make.page(write(tmp_path, search=search, tables=tables + others))
    by_method = [
        fmean(
            held_out(line, "running")
            for line in tables
            if line["method"] == method and line["target"] != ["photo"]
        )
        for method in ("deepall", "bne")
    ]
    cells = numbers(row(page, "SGD 3e-3, momentum 0.9, head × 10, cosine"))
    assert cells == pytest.approx([*by_method, fmean(by_method)], abs=0.0051)


def test_runs_of_no_table_are_shown(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    odd = deepcopy(next(line for line in tables if line["method"] == "bne"))
    odd["settings"]["options"]["layers"] = ["bn1"]
    page = make.page(write(tmp_path, tables=tables, further=[odd]))
    (target,) = odd["target"]
    assert f"| run | rule | {target} | seeds |" in page
    cells = row(page, "bne, `options.layers=['bn1']` | last")
    assert cells == [f"{accuracy(odd, 'last'):.1f}", "1"]


def test_nothing_is_hidden_when_little_is_recorded(
    make: ModuleType, search: list[Line], tables: list[Line], tmp_path: Path
) -> None:
    empty = make.page(write(tmp_path))
    assert "No search is recorded." in empty
    assert "No run is recorded." in empty
    assert "| Variants of the method |" in empty
    assert "0 of 60" in empty
    alone = [line for line in search if line["method"] == "deepall"]
    page = make.page(write(tmp_path, search=alone, tables=tables[:1]))
    assert "No setting was tried with every method on every target." in page
    assert "are not both recorded" in page
    assert "1 of 60" in page


def test_what_only_bne_was_tried_with_is_not_in_the_final(
    make: ModuleType, search: list[Line], tmp_path: Path
) -> None:
    changed = deepcopy(search)
    for line in changed:
        if line["settings"]["options"].get("weight_gradient") is False:
            for epoch in line["epochs"]:
                for score in epoch["validation"].values():
                    score["correct"] = score["images"]
    page = make.page(write(tmp_path, search=changed))
    assert "| `options.weight_gradient=false` | its highest |" in page
    assert page.count("| in the final") == 4


def test_what_was_not_run_on_every_target_is_not_in_the_final(
    make: ModuleType, search: list[Line], tmp_path: Path
) -> None:
    fewer = deepcopy(search)
    adam = [
        line
        for line in fewer
        if line["settings"]["train"]["optimiser"]["learning_rate"] == 3e-4
        and line["target"] == ["sketch"]
    ]
    page = make.page(write(tmp_path, search=[line for line in fewer if line is not adam[0]]))
    assert not re.search(r"\| Adam 3e-4.*in the final", page)
    assert page.count("| in the final") == 4


def test_runs_of_another_method_do_not_disturb_the_search(
    make: ModuleType, search: list[Line], tmp_path: Path
) -> None:
    third = deepcopy(search[0])
    third["method"] = third["settings"]["method"] = "bne-b"
    page = make.page(write(tmp_path, search=[*search, third]))
    assert page.count("| in the final") == 4


def test_the_gap_by_optimiser(make: ModuleType, search: list[Line], tmp_path: Path) -> None:
    page = make.page(write(tmp_path, search=search))
    section = page[page.index("The search's runs under every setting") :]
    cell = row(section, "Adam 1e-4, weight decay 1e-6, constant")[-1]
    ends: dict[str, list[float]] = {"deepall": [], "bne": []}
    for line in search:
        train = line["settings"]["train"]
        if (train["optimiser"]["learning_rate"], train["schedule"]["name"]) == (1e-4, "constant"):
            (score,) = line["epochs"][-2]["target"].values()
            ends[line["method"]].append(100 * score["correct"] / score["images"])
    deepall, bne_ = (fmean(values) for values in ends.values())
    assert cell == f"{deepall:.1f}, {bne_:.1f}: +{bne_ - deepall:.1f}"


def test_what_is_inside(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    page = make.page(write(tmp_path, tables=tables))
    (line,) = (one for one in tables if (one["method"], one["target"]) == ("bne", ["sketch"]))
    found, sources = line["analysis"]["target"]["accuracy"], line["analysis"]["sources"]
    scores = [found["prediction"], *found["by_rank"]]
    scores += [found["by_weighting"][name] for name in ("bhattacharyya", "uniform")]
    expected = [100 * s["sketch"]["correct"] / s["sketch"]["images"] for s in scores]
    inside = page[page.index("## Inside") :]
    assert numbers(row(inside, "bne | sketch")) == pytest.approx(expected, abs=0.051)
    blocks = inside[inside.index("Share of each block") :]
    shares = numbers(row(blocks, "bne | sketch"))
    assert shares[0] == pytest.approx(100 * sources["layers"]["bn1"]["share"], abs=0.051)
    assert sum(shares) == pytest.approx(100, abs=0.3)
    own = [s["correct"] / s["images"] for s in sources["domain_accuracy"]["train"].values()]
    domains = inside[inside.index("How often images") :]
    assert numbers(row(domains, "bne | sketch"))[0] == pytest.approx(100 * fmean(own), abs=0.051)
