"""The recorded runs and the pages made of them, as tests read them."""

import json
import re
from copy import deepcopy
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

from bne.evaluation.records import Record
from tests.docs.pages import ROOT

FOLDER = ROOT / "results" / "pacs-resnet18"
README = ROOT / "results" / "README.md"
TARGETS = ("art_painting", "cartoon", "photo", "sketch")
Line = dict[str, Any]


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
