"""The recorded runs and the pages made of them, as tests read them."""

import json
import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from types import ModuleType
from typing import Any

from bne.benchmark.records import Record, settings
from bne.recipes.files import load
from tests.docs.pages import ROOT

FOLDER = ROOT / "results" / "pacs-resnet18"
README = ROOT / "results" / "README.md"
TARGETS = ("art_painting", "cartoon", "photo", "sketch")
Line = dict[str, Any]


def text(make: ModuleType, folder: Path) -> str:
    """Both pages, one after the other."""
    return "".join(make.pages(folder).values())


@cache
def lines(name: str) -> list[Line]:
    """Of a file of records; not to be changed."""
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


def on_target(line: Line, statistics: str) -> float:
    """The same of the target."""
    epochs = [e for e in line["epochs"] if e["phase"] == "train" and e["statistics"] == statistics]
    (score,) = epochs[-1]["target"].values()
    return 100 * float(score["correct"]) / score["images"]


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


@cache
def _recipe(name: str, method: str, *changes: tuple[str, Any]) -> Line:
    return settings(load(name, {"method": method, "target": ["sketch"], **dict(changes)}))


def is_standard(
    line: Line, recipe: str = "pacs-resnet18-standard", *changes: tuple[str, Any]
) -> bool:
    """Whether a run differs from the recipe, some settings changed, in target, seed, distance."""
    own = deepcopy(line["settings"])
    usual = _recipe(recipe, own["method"], *changes)
    for key in ("target", "seed", "weights"):
        own[key] = usual[key]
    if "distance" in usual["options"]:
        own["options"]["distance"] = usual["options"]["distance"]
    return bool(own == usual)


def standard_runs(name: str, recipe: str = "pacs-resnet18-standard") -> dict[tuple[str, int], Line]:
    """By target and seed: the runs of a method, or of BNE (c) with a distance in training."""
    found = {}
    for line in lines("tables.jsonl"):
        own = line["method"]
        if own == "bne":
            own = line["settings"]["options"]["distance"]
        if own == name and is_standard(line, recipe):
            found[line["target"][0], line["seed"]] = line
    return found


def last(name: str, recipe: str = "pacs-resnet18-standard") -> dict[tuple[str, int], float]:
    """Accuracy after the last epoch of `standard_runs`."""
    return {key: accuracy(line, "last") for key, line in standard_runs(name, recipe).items()}


def gap(ours: dict[tuple[str, int], float], theirs: dict[tuple[str, int], float]) -> float:
    """By how many points the former lie above the latter, on the runs that both have."""
    common = ours.keys() & theirs.keys()
    assert common
    return fmean(ours[key] - theirs[key] for key in common)


def by_seed(
    ours: dict[tuple[str, int], float],
    theirs: dict[tuple[str, int], float],
    targets: tuple[str, ...] = TARGETS,
) -> list[float]:
    """The same in every seed in which both have all the targets, mean over these."""
    common = ours.keys() & theirs.keys()
    seeds = [seed for seed in range(3) if all((target, seed) in common for target in targets)]
    return [fmean(ours[t, seed] - theirs[t, seed] for t in targets) for seed in seeds]


def with_error(differences: list[float]) -> str:
    """The mean over seeds and its standard error, as the prose has them."""
    error = stdev(differences) / len(differences) ** 0.5
    return f"{fmean(differences):.1f} ± {error:.1f}"


def changed(method: str, *changes: tuple[str, Any]) -> dict[str, Line]:
    """By target: seed 0 of a method under the standard settings but for some."""
    found = [
        line
        for line in lines("tables.jsonl")
        if (line["method"], line["seed"]) == (method, 0)
        and line["settings"]["options"].get("distance") in (None, "wasserstein")
        and is_standard(line, "pacs-resnet18-standard", *changes)
    ]
    by_target = {line["target"][0]: line for line in found}
    assert len(by_target) == len(found)
    return by_target
