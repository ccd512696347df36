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


def text(make: ModuleType, folder: Path) -> str:
    """Both pages, one after the other."""
    return "".join(make.pages(folder).values())


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
    for name, expected in make.pages().items():
        written = (make.DOCS / name).read_text(encoding="utf-8")
        assert written == expected, "run python results/make.py"
        weights = "resnet18_imagenet (reconstructed torchvision V1)"
        assert written.index(weights) < written.index("| ")


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
    page = text(make, write(tmp_path, tables=tables, search=lines("search.jsonl")))
    by_hand = {(line["method"], *line["target"]): accuracy(line, rule) for line in tables}
    gaps = [by_hand["bne", target] - by_hand["deepall", target] for target in TARGETS]
    label = {"oracle": "ours, oracle (on the target)"}.get(rule, f"ours, {rule}")
    section = page[page.index("## The paper's orders") :]
    assert numbers(row(section, label)) == pytest.approx([*gaps, fmean(gaps)], abs=0.051)
    assert "[1/3]" in page
    assert "| BNE (dt,no-warmup) | paper | 79.8 |" in page  # not run: the paper's alone


def test_the_search(make: ModuleType, search: list[Line], tmp_path: Path) -> None:
    page = text(make, write(tmp_path, search=search))
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
    page = text(make, write(tmp_path, tables=runs))
    section = page[page.index("Does the gap grow?") :]
    course: dict[str, dict[str, list[float]]] = {"deepall": {}, "bne": {}}
    for line in runs:
        epochs = [epoch["target"].values() for epoch in line["epochs"] if epoch["phase"] == "train"]
        accuracies = [100 * s["correct"] / s["images"] for (s,) in epochs]
        course[line["method"]][line["target"][0]] = accuracies

    def tens(method: str, *targets: str) -> list[float]:
        own = course[method]
        return [fmean(v for t in targets for v in own[t][s : s + 10]) for s in range(0, 60, 10)]

    for method, own in course.items():
        assert numbers(row(section, method)) == pytest.approx(tens(method, *TARGETS), abs=0.051)
        wandering = page[page.index("How much the last epoch") :]
        cells = row(wandering, f"{method} by `pacs-resnet18`, `epoch=220`")
        spreads = [float(cell.split("±")[1]) for cell in cells]
        expected = fmean(pstdev(run[40:]) for run in own.values())
        assert spreads[-1] == pytest.approx(expected, abs=0.051)
    pairs = zip(tens("bne", "sketch"), tens("deepall", "sketch"), strict=True)
    gaps = [bne_ - deepall for bne_, deepall in pairs]
    assert numbers(row(section, "gap, sketch")) == pytest.approx(gaps, abs=0.051)
    assert "10 (warm-up) | 11–20 (warm-up) | 21–30 (DT)" in section
    # On other targets there is nothing to compare.
    other = [line for line in runs if (line["method"] == "bne") == (line["target"] == ["photo"])]
    assert "Does the gap grow?" not in text(make, write(tmp_path, tables=other))


def test_the_main_table(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    page = make.pages(write(tmp_path, tables=tables))["results.md"]
    by_hand = {(line["method"], *line["target"]): accuracy(line, "last") for line in tables}
    cells = row(page, "**BNE (c)**: after a warm-up, the whole method")
    own = [by_hand["bne", target] for target in TARGETS]
    assert numbers(cells) == pytest.approx([*own, fmean(own)], abs=0.051)
    assert [cell.split("(")[1] for cell in cells] == ["78.8)", "78.9)", "94.8)", "79.7)", "83.1)"]
    assert row(page, "InstanceNorm")[0] == "… (62.6)"


def test_orders_are_open_within_the_error(
    make: ModuleType, tables: list[Line], tmp_path: Path
) -> None:
    def verdict(fewer: int, targets: tuple[str, ...]) -> list[str]:
        """With InstanceNorm as DeepAll, but for so many fewer correct answers on each target."""
        overrides = {"method": "instance-norm", "target": ["sketch"]}
        usual = settings(load("pacs-resnet18-standard", overrides))
        others = []
        for line in tables:
            if line["method"] == "deepall" and line["target"][0] in targets:
                other = with_seed(line, 0, -fewer)
                other["method"] = other["settings"]["method"] = "instance-norm"
                other["settings"]["options"] = usual["options"]
                others.append(Record.from_dict(other).to_dict())
        page = text(make, write(tmp_path, tables=tables + others))
        return row(page, "BatchNorm > InstanceNorm")[1:3]

    assert verdict(4, TARGETS)[0] == "open"
    assert verdict(150, TARGETS)[0] == "yes"
    assert verdict(-80, TARGETS)[0] == "**no**"
    assert verdict(150, TARGETS[1:3]) == ["yes", "+7.7 (cartoon, photo)"]


def test_the_form_of_the_distance(make: ModuleType) -> None:
    page = make.pages()["results.md"]
    form, *_ = (json.loads(line) for line in (FOLDER.parent / "distances.jsonl").open())
    assert (form["spread"], form["form"]) == ("σ", "squared")
    printed = {"art_painting": (1.18, 0.70, 1.15), "cartoon": (0.94, 1.02, 0.90)}
    printed["photo"] = (1.19, 0.70, 1.25)
    differences = []
    for source, similarities in form["similarity"]["sketch"].items():
        ours = [100 * v / sum(similarities.values()) for v in similarities.values()]
        papers = [100 * v / sum(printed[source]) for v in printed[source]]
        differences += [abs(a - b) for a, b in zip(ours, papers, strict=True)]
    cells = numbers(row(page, "(μ, σ), squared"))
    assert cells[1] == pytest.approx(fmean(differences), abs=0.051)
    accuracies = [form["domain_accuracy"][target] for target in TARGETS]
    assert cells[2:] == pytest.approx([*accuracies, fmean(accuracies)], abs=0.051)


def test_what_the_notes_say_is_still_so(search: list[Line]) -> None:
    """Prose does not follow from records by itself."""
    notes = (FOLDER.parent / "notes.md").read_text()
    runs = lines("tables.jsonl")

    def tried(part: str, key: str, usual: Any, among: list[Line]) -> bool:
        found = [line["settings"][part] if part else line["settings"] for line in among]
        return any(own.get(key, usual) != usual for own in found)

    everything = runs + search
    assert "The batch size: not tried." in notes
    assert not tried("", "per_domain", 16, everything)
    assert "no lower on average than with Wasserstein's, one seed each" in notes
    assert "(`options.distance=root-wasserstein`, cartoon and sketch, one seed)" in notes
    by_distance = {distance: last(runs, distance) for distance in ("root-wasserstein", "uniform")}
    by_distance |= {name: last(runs, name) for name in ("bhattacharyya", "wasserstein", "dnet")}
    squared = by_distance.pop("wasserstein")
    root = by_distance.pop("root-wasserstein")
    assert set(root) == {("cartoon", 0), ("sketch", 0)}
    assert 0.5 < root["cartoon", 0] - squared["cartoon", 0] < 2 * 1.3
    assert abs(root["sketch", 0] - squared["sketch", 0]) < 0.5
    assert root["cartoon", 0] < 78.9 - 2
    assert root["sketch", 0] < 79.7 - 2
    for other in by_distance.values():
        assert {seed for _, seed in other} == {0}
        assert len(other) == 4
        assert fmean(other.values()) >= fmean(squared[key] for key in other)
        assert other["cartoon", 0] > squared["cartoon", 0]
    assert "options.layers" in notes
    assert not any(line["settings"]["options"].get("layers") for line in everything)
    assert "At the standard length, and by the paper's own settings, it is not tried." in notes
    assert not tried("options", "branch_statistics", "batch", runs)
    assert "(`options.mix`): not tried." in notes
    assert not tried("options", "mix", "logits", everything)
    assert "BNE (c) has fewer seeds than DeepAll" in notes
    assert {seed for _, seed in squared} == {0, 1}


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


def test_one_thing_changed(make: ModuleType) -> None:
    runs = lines("tables.jsonl")
    page = text(make, FOLDER)
    page = page[page.index("### One thing changed") : page.index("### Length of training")]
    whole = last(runs, "wasserstein")
    for name in ("root-wasserstein", "uniform"):
        own = last(runs, name)
        cells = row(page, f"bne, `options.distance={name}`")
        for column, target in enumerate(("art_painting", "cartoon", "photo", "sketch")):
            if (target, 0) in own:
                gap = own[target, 0] - whole[target, 0]
                assert float(cells[column].replace("−", "-")) == pytest.approx(gap, abs=0.051)
            else:
                assert cells[column] == "…"
        assert cells[-1] == "1"
    assert row(page, "dnet")[-2] != "…"
    assert row(page, "freeze-bn")[-2] == "…"
    assert "clip" not in page


def test_several_seeds(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    more = [with_seed(line, 1, 40 if line["method"] == "bne" else 0) for line in tables]
    page = text(make, write(tmp_path, tables=tables + more))
    assert "(2 seeds), DeepAll" in page
    gaps = []
    for runs in (tables, more):
        base, own = (
            fmean(accuracy(line, "last") for line in runs if line["method"] == method)
            for method in ("deepall", "bne")
        )
        gaps.append(own - base)
    mean, error = row(page[page.index("## The paper's orders") :], "ours, last")[-1].split(" ± ")
    assert float(mean) == pytest.approx(fmean(gaps), abs=0.051)
    assert float(error) == pytest.approx(stdev(gaps) / 2**0.5, abs=0.051)


def test_the_final(
    make: ModuleType, search: list[Line], tables: list[Line], tmp_path: Path
) -> None:
    page = text(make, write(tmp_path, search=search, tables=tables))
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
    page = text(make, write(tmp_path, search=search, tables=tables + others))
    assert "So far on art_painting, cartoon, sketch:" in page
    assert "The rule picks **Adam 3e-4, weight decay 1e-6, cosine**" in page
    assert "The recipe has another." in page
    elsewhere = deepcopy(others)
    for line in elsewhere:
        line["settings"]["weights"] = "other.safetensors"
    page = text(make, write(tmp_path, search=search, tables=tables + elsewhere))
    assert "No target has been run with both settings and both methods yet." in page
    page = text(make, write(tmp_path, search=search, tables=tables + others))
    by_method = [
        fmean(
            held_out(line, "running")
            for line in tables
            if line["method"] == method and line["target"] != ["photo"]
        )
        for method in ("deepall", "bne")
    ]
    final = page[page.index("## Settings") :]
    cells = numbers(row(final, "SGD 3e-3, momentum 0.9, head × 10, cosine"))
    assert cells == pytest.approx([*by_method, fmean(by_method)], abs=0.0051)


def test_runs_of_no_table_are_shown(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    odd = deepcopy(next(line for line in tables if line["method"] == "bne"))
    odd["settings"]["options"]["layers"] = ["bn1"]
    page = text(make, write(tmp_path, tables=tables, further=[odd]))
    (target,) = odd["target"]
    assert f"| run | rule | {target} | seeds |" in page
    cells = row(page, "bne, `options.layers=['bn1']` | last")
    assert cells == [f"{accuracy(odd, 'last'):.1f}", "1"]


def test_nothing_is_hidden_when_little_is_recorded(
    make: ModuleType, search: list[Line], tables: list[Line], tmp_path: Path
) -> None:
    empty = text(make, write(tmp_path))
    assert "No search is recorded." in empty
    assert "No run is recorded." in empty
    assert "| Variants of the method |" in empty
    assert "0 of 60" in empty
    alone = [line for line in search if line["method"] == "deepall"]
    page = text(make, write(tmp_path, search=alone, tables=tables[:1]))
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
    page = text(make, write(tmp_path, search=changed))
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
    page = text(make, write(tmp_path, search=[line for line in fewer if line is not adam[0]]))
    assert not re.search(r"\| Adam 3e-4.*in the final", page)
    assert page.count("| in the final") == 4


def test_runs_of_another_method_do_not_disturb_the_search(
    make: ModuleType, search: list[Line], tmp_path: Path
) -> None:
    third = deepcopy(search[0])
    third["method"] = third["settings"]["method"] = "bne-b"
    page = text(make, write(tmp_path, search=[*search, third]))
    assert page.count("| in the final") == 4


def test_the_gap_by_optimiser(make: ModuleType, search: list[Line], tmp_path: Path) -> None:
    page = text(make, write(tmp_path, search=search))
    section = page[page.index("The search's runs under every setting") :]
    *_, cell, half = row(section, "Adam 1e-4, weight decay 1e-6, constant")
    ends: dict[str, list[float]] = {"deepall": [], "bne": []}
    later: dict[str, list[float]] = {"deepall": [], "bne": []}
    for line in search:
        train = line["settings"]["train"]
        if (train["optimiser"]["learning_rate"], train["schedule"]["name"]) == (1e-4, "constant"):
            scores = [next(iter(epoch["target"].values())) for epoch in line["epochs"][-6:-1]]
            values = [100 * score["correct"] / score["images"] for score in scores]
            ends[line["method"]].append(values[-1])
            later[line["method"]] += values[-4:]  # of 8 epochs; the last line is of exact ones
    deepall, bne_ = (fmean(values) for values in ends.values())
    assert cell == f"{deepall:.1f}, {bne_:.1f}: +{bne_ - deepall:.1f}"
    assert numbers([half])[0] == pytest.approx(
        fmean(later["bne"]) - fmean(later["deepall"]), abs=0.051
    )


def test_what_is_inside(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    page = text(make, write(tmp_path, tables=tables))
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
