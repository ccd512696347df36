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


SHARES = (0, 0.05, 0.1, 0.2, 0.3, 0.5)


@pytest.mark.parametrize(
    ("row", "method", "amplitudes"),
    [
        ("as it is", "points", None),
        ("amplitudes.name=random", "points", "random"),
        ("method=deepall-points", "deepall-points", None),
        ("method=deepall-points amplitudes.name=random", "deepall-points", "random"),
    ],
)
def test_the_table_of_the_digits_is_what_their_records_give(
    row: str, method: str, amplitudes: str | None
) -> None:
    plain = load_experiment(TRIALS / "digits-recipe.yaml").recipe({}).to_dict()
    accuracies: dict[str, dict[float, list[float]]] = {}
    for line in map(json.loads, (TRIALS / "digits.jsonl").open()):
        own = line["settings"]
        same = all(own[key] == plain[key] for key in ("epoch", "train"))
        changed = {"max_lean": 0.5, "centre": 0, "groups": False, "beyond": 0, "learn_lean": False}
        known = all(own["options"].get(key, value) == value for key, value in changed.items())
        if (own["method"], own["amplitudes"]["name"]) != (method, amplitudes) or not same & known:
            continue
        for target, domain in permutations(own["target"]):
            for one in line["leaning"]:
                score = one["target"][domain]
                accuracies.setdefault(target, {}).setdefault(one["share"], []).append(
                    100 * score["correct"] / score["images"]
                )
    assert all(len(found[0]) == 9 for found in accuracies.values())  # domains times seeds
    best = [max(fmean(found[share]) for share in SHARES) for found in accuracies.values()]
    cells = f"| `{row}` | {fmean(best):.1f} | "
    assert cells in (TRIALS / "digits.md").read_text()
