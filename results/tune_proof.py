r"""Which rule finds settings that suit an unseen domain: held-out images, or leaving sources out.

    python results/tune_proof.py                       what the records say, and what they lack
    python results/tune_proof.py --plan plan.json      also writes the runs that they lack
    bne benchmark --data pacs --plan plan.json --weights resnet18_imagenet.safetensors \
        --no-analyze --records results/tune/pacs.jsonl

Read are settings that have all four targets of PACS. For each target, accuracy on it is compared
with the mean accuracy on held-out images of the sources in the same run, and with the mean over
sources left out: the runs of two sources that saw nothing of the target. Those may be shorter:
`--epochs 8`. All figures are of the last epoch, leaning by nothing, mean over seeds.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from scipy.stats import spearmanr

from bne.benchmark.plan import Item, kind
from bne.benchmark.plan_file import write_plan
from bne.benchmark.records import read
from bne.recipes.schema import checked, to_recipe
from bne.training.identity import settings_of
from bne.tuning.objective import Fold, questions, score

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bne.benchmark.records import Record

ROOT = Path(__file__).parent
FILES = ("pacs-resnet18/*.jsonl", "beyond/pacs.jsonl", "tune/*.jsonl")
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
RULES = {
    "validation": "held-out images of the sources",
    "left_out": "sources left out in turn",
}
FEWEST = 12  # settings, for a rank correlation to say anything


@dataclass(frozen=True)
class Setting:
    """Settings with records of all four targets.

    Attributes:
        name: the row of the records.
        outer: runs by target.
        pairs: runs of two sources, by what they hold out; complete if there are six.
        wanted: the runs of two sources that are not recorded.
    """

    name: str
    outer: dict[str, list[Record]]
    pairs: dict[tuple[str, ...], list[Record]]
    wanted: list[Item]

    def figures(self, target: str) -> dict[str, float]:
        """Accuracy on a target, and what each rule goes by."""
        (asked,) = [one for one in questions(DOMAINS, every=True) if one.target == (target,)]
        held_out = [Fold(d, (target,)) for d in DOMAINS if d != target]
        runs = self.outer[target]
        return {
            "outer": _mean(score(run, Fold(target, (target,)), 0.0) for run in runs),
            "validation": _mean(score(run, fold, 0.0) for fold in held_out for run in runs),
            "left_out": _mean(
                _mean(score(run, fold, 0.0) for run in self.pairs[fold.target])
                for fold in asked.folds
            ),
        }


def _mean(values: Iterable[float | None]) -> float:
    return fmean(value for value in values if value is not None)


def settings(records: Sequence[Record], epochs: int | None = None) -> list[Setting]:
    """All settings that have the four targets.

    Args:
        records: of PACS.
        epochs: of the runs of two sources; as many as the setting has if None.
    """
    kinds: dict[str, dict[tuple[str, ...], list[Record]]] = {}
    for record in records:
        if record.settings["exact_statistics"] and record.settings.get("statistics") is None:
            continue  # measured by an earlier version, on batches of one class
        own = kinds.setdefault(kind(record.settings), {})
        own.setdefault(tuple(record.settings["target"]), []).append(record)
    found = []
    for own in kinds.values():
        if not all((domain,) in own for domain in DOMAINS):
            continue
        first = own[DOMAINS[0],][0]
        plain = {key: value for key, value in first.settings.items() if key != "statistics"}
        recipe = to_recipe(checked(plain))
        if epochs is not None and epochs < recipe.train.epochs:
            warm_up = round(recipe.train.warm_up * epochs / recipe.train.epochs)
            recipe = replace(recipe, train=replace(recipe.train, epochs=epochs, warm_up=warm_up))
        inner = kinds.get(kind(settings_of(recipe)), {})
        row = f"{first.row} {kind(first.settings)[:8]}"
        items = [
            Item("tune-proof", row, replace(recipe, target=pair, seed=0), first.materials)
            for pair in combinations(DOMAINS, 2)
        ]
        found.append(
            Setting(
                row,
                {domain: own[domain,] for domain in DOMAINS},
                {pair: inner[pair] for pair in combinations(DOMAINS, 2) if pair in inner},
                [item for item in items if item.recipe.target not in inner],
            )
        )
    return found


def compare(found: Sequence[Setting]) -> dict[str, Any]:
    """Rank correlation with accuracy on the unseen domain, and points below the best setting.

    Args:
        found: settings with all six runs of two sources.
    """
    targets = {}
    for target in DOMAINS:
        figures = [one.figures(target) for one in found]
        outer = [one["outer"] for one in figures]
        own: dict[str, Any] = {"best": max(outer), "regret": {"any": max(outer) - fmean(outer)}}
        own["correlation"] = {}
        for rule in RULES:
            values = [one[rule] for one in figures]
            own["correlation"][rule] = float(spearmanr(values, outer).statistic)
            own["regret"][rule] = max(outer) - outer[values.index(max(values))]
        targets[target] = own
    means = {
        what: {
            rule: fmean(own[what][rule] for own in targets.values())
            for rule in targets[DOMAINS[0]][what]
        }
        for what in ("correlation", "regret")
    }
    return {"settings": len(found), "targets": targets, "mean": means}


def shown(result: dict[str, Any]) -> str:
    """The comparison as a table, and a sentence on which rule is better."""
    lines = ["| unseen | rule | rank correlation | points below the best |", "| --- " * 4 + "|"]
    rows = {**result["targets"], "mean": result["mean"]}
    for target, own in rows.items():
        for rule, words in RULES.items():
            figures = f"{own['correlation'][rule]:.2f} | {own['regret'][rule]:.1f}"
            lines.append(f"| {target} | {words} | {figures} |")
        lines.append(f"| {target} | a setting at random | – | {own['regret']['any']:.1f} |")
    better = {
        what: sign * (own["left_out"] - own["validation"]) > 0
        for what, sign in (("correlation", 1), ("regret", -1))
        for own in [result["mean"][what]]
    }
    verdict = {2: "better by both", 1: "better by one of the two only", 0: "not better"}
    lines.append(
        f"\nOver {result['settings']} settings, leaving sources out is "
        f"{verdict[sum(better.values())]}: rank correlation and points below the best."
    )
    return "\n".join(lines)


def main() -> None:
    """Reads the records, prints the comparison and what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, help="of the runs of two sources")
    parser.add_argument("--most-epochs", type=int, default=20, help="of settings that are planned")
    parser.add_argument("--plan", type=Path, help="the file for runs that are missing")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    files = sorted(file for pattern in FILES for file in ROOT.glob(pattern))
    found = settings([one for file in files for one in read(file)], arguments.epochs)
    complete = [one for one in found if not one.wanted]
    if len(complete) >= 3:
        result = compare(complete)
        print(json.dumps(result, indent=1) if arguments.json else shown(result))
    lacking = [
        item
        for one in found
        for item in one.wanted
        if one.outer[DOMAINS[0]][0].settings["train"]["epochs"] <= arguments.most_epochs
    ]
    if not arguments.json:
        print(
            f"\n{len(found)} settings have all four targets, {len(complete)} of them all six runs "
            f"of two sources; {len(lacking)} runs are missing. "
            + ("" if len(complete) >= FEWEST else f"Fewer than {FEWEST} settings say little.")
        )
    if arguments.plan:
        write_plan(arguments.plan, lacking)


if __name__ == "__main__":
    main()
