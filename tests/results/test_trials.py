"""The table of trials, from an outcome made by hand; and the trials themselves, read."""

import json
from importlib import import_module
from itertools import permutations
from statistics import fmean
from typing import Any

import pytest

from bne.recipes.files import load_experiment
from bne.tuning.space import read_space
from tests.docs.pages import ROOT

TRIALS = ROOT / "results" / "trials"


def one(digest: str, mean: float, seeds: int = 1, **changes: Any) -> dict[str, Any]:
    return {"digest": digest, "mean": mean, "seeds": seeds, "changes": changes}


def test_gains_are_means_over_targets() -> None:
    found = [
        # The recipe twice: at its best share, and as it was chosen.
        {"target": ["art"], "settings": [one("a", 70, 2), one("a", 60), one("b", 73, epochs=2)]},
        {"target": ["ink"], "settings": [one("a", 50), one("b", 51, epochs=2), one("c", 9, lr=1)]},
    ]
    text = import_module("trials").table(found)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert rows[0] == ["settings", "mean", "over the recipe", "art", "ink", "seeds"]
    assert rows[2:] == [  # c has no runs for art
        ["`epochs=2`", "62.0", "+2.0 ± 1.0", "73.0", "51.0", "1"],
        ["`as it is`", "60.0", "", "70.0", "50.0", "1"],
    ]


@pytest.mark.parametrize("name", ["digits", "pacs"])
def test_every_trial_is_possible_and_differs_from_all_others(name: str) -> None:
    file = TRIALS / f"{name}.yaml"
    recipe = load_experiment(TRIALS / f"{name}-recipe.yaml").recipe({})
    given = sum(line.strip().startswith("- ") for line in file.read_text().splitlines())
    assert len(read_space(file, recipe).whole) == given + 1


SHARES = {"digits": (0, 0.05, 0.1, 0.2, 0.3, 0.5), "pacs": (0, 0.05, 0.1, 0.15, 0.2)}
CHANGED = {"max_lean": 0.5, "centre": 0, "groups": False, "beyond": 0, "learn_lean": False}
CHANGED |= {"mixstyle": None}


@pytest.mark.parametrize(
    ("name", "row", "method", "amplitudes", "rate", "folds"),
    [
        ("digits", "as it is", "points", None, 1e-2, 9),
        ("digits", "amplitudes.name=random", "points", "random", 1e-2, 9),
        ("digits", "method=deepall-points", "deepall-points", None, 1e-2, 9),
        (
            "digits",
            "method=deepall-points amplitudes.name=random",
            "deepall-points",
            "random",
            1e-2,
            9,
        ),
        ("pacs", "as it is", "points", "random", 3e-3, 3),
        ("pacs", "method=deepall-points", "deepall-points", "random", 3e-3, 3),
    ],
)
def test_the_tables_are_what_their_records_give(
    name: str, row: str, method: str, amplitudes: str | None, rate: float, folds: int
) -> None:
    recipe = load_experiment(TRIALS / f"{name}-recipe.yaml").recipe({}).to_dict()
    recipe["train"]["optimiser"]["learning_rate"] = rate
    accuracies: dict[str, dict[float, list[float]]] = {}
    for line in map(json.loads, (TRIALS / f"{name}.jsonl").open()):
        own = line["settings"]
        alike = ("epoch", "train", "averaging", "strong", "label_smoothing")
        same = all(own[key] == recipe[key] for key in alike if key in own)
        known = all(own["options"].get(key, value) == value for key, value in CHANGED.items())
        if (own["method"], own["amplitudes"]["name"]) != (method, amplitudes) or not same & known:
            continue
        for target, domain in permutations(own["target"]):
            for one in line["leaning"]:
                values = accuracies.setdefault(target, {}).setdefault(one["share"], [])
                score = one["target"][domain]
                plain = 100 * score["correct"] / score["images"]
                values.append(score["balanced"] if name == "pacs" else plain)
    assert all(len(found[0]) == folds for found in accuracies.values())  # domains times seeds
    best = [max(fmean(found[share]) for share in SHARES[name]) for found in accuracies.values()]
    cells = f"| `{row}` | {fmean(best):.1f} | "
    assert cells in (TRIALS / f"{name}.md").read_text()
