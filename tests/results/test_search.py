"""The search for settings: what its page says, and that the recipe has what it picks."""

import json
import re
from copy import deepcopy
from pathlib import Path
from statistics import fmean
from types import ModuleType

import pytest
from scipy.stats import binom

from bne.methods.registry import find
from bne.recipes.files import load
from tests.cli.test_data_check import bne
from tests.docs.pages import ROOT
from tests.results.reading import (
    FOLDER,
    README,
    Line,
    accuracy,
    held_out,
    lines,
    numbers,
    row,
    text,
    write,
)


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
            like &= line["row"] in ("DeepAll", "BNE (dt,warmup)") and own["epochs"] == 20
            like &= line["settings"]["augmentation"] == "paper" and not line["seed"]
            like &= line["settings"]["options"].get("distance", "wasserstein") == "wasserstein"
            if like:
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
