r"""Which rule finds settings that suit an unseen domain: held-out images, or leaving sources out.

    python results/tune_proof.py                       writes docs/tuning.md, says what is missing
    python results/tune_proof.py --plan plan.json      also writes the runs of PACS that are missing
    bne benchmark --data pacs --plan plan.json --weights resnet18_imagenet.safetensors \
        --no-analyze --records results/tune/pacs.jsonl

Read are settings that have all four targets. For each target, accuracy on it is compared with the
mean accuracy on held-out images of the sources in the same run, and with the mean over sources left
out: the runs of two sources that saw nothing of the target. For settings of the paper's tables they
are smaller and shorter, as in a search that has to be cheap. All figures are of the last epoch,
leaning by nothing, mean over seeds.
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
from watch import filled

from bne.benchmark.plan import Item, kind
from bne.benchmark.plan_file import write_plan
from bne.benchmark.records import read
from bne.recipes.schema import checked, to_recipe
from bne.training.identity import settings_of
from bne.tuning.objective import Fold, questions, score

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bne.benchmark.records import Record

ROOT = Path(__file__).parent
PAGE = ROOT.parent / "docs" / "tuning.md"
PACS, SMALL = "PACS", "PACS at 112 pixels"
STYLES = ("art_painting", "cartoon", "photo", "sketch")
DATA = {
    PACS: STYLES,
    SMALL: STYLES,
    "the demo's digits": ("blueprint", "chalk", "ink", "poster"),
}
FILES = {
    PACS: ("pacs-resnet18/*.jsonl", "beyond/pacs*.jsonl", "tune/pacs.jsonl"),
    SMALL: ("tune/pacs-112.jsonl",),
    "the demo's digits": ("tune/digits-proof.jsonl",),
}
RULES = {
    "validation": "held-out images of the sources",
    "left_out": "sources left out in turn",
}
CHEAPER = {PACS: (5, 112)}
"""Epochs and pixels of runs of two sources, where they are not those of the settings."""
FEWEST = 12  # settings, for a rank correlation to say anything


@dataclass(frozen=True)
class Setting:
    """Settings with records of all targets.

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
        domains = [*self.outer]
        (asked,) = [one for one in questions(domains, every=True) if one.target == (target,)]
        held_out = [Fold(d, (target,)) for d in domains if d != target]
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


def settings(
    records: Sequence[Record],
    domains: Sequence[str] = DATA[PACS],
    cheaper: tuple[int, int] | None = None,
) -> list[Setting]:
    """All settings that have every target.

    Args:
        records: of one data set.
        domains: of it.
        cheaper: epochs and pixels of the runs of two sources; those of the setting if None.
    """
    kinds: dict[str, dict[tuple[str, ...], list[Record]]] = {}
    for record in records:
        if record.settings["exact_statistics"] and record.settings.get("statistics") is None:
            continue  # measured by an earlier version, on batches of one class
        own = kinds.setdefault(kind(record.settings), {})
        own.setdefault(tuple(record.settings["target"]), []).append(record)
    found = []
    for own in kinds.values():
        if not all((domain,) in own for domain in domains):
            continue
        first = own[domains[0],][0]
        plain = {key: value for key, value in first.settings.items() if key != "statistics"}
        recipe = to_recipe(checked(plain))
        if cheaper:
            epochs, size = cheaper
            warm_up = round(recipe.train.warm_up * epochs / recipe.train.epochs)
            train = replace(recipe.train, epochs=epochs, warm_up=warm_up)
            recipe = replace(recipe, train=train, size=size, resize=size * 8 // 7)
        inner = kinds.get(kind(settings_of(recipe)), {})
        row = f"{first.row} {kind(first.settings)[:8]}"
        items = [
            Item("tune-proof", row, replace(recipe, target=pair, seed=0), first.materials)
            for pair in combinations(domains, 2)
        ]
        found.append(
            Setting(
                row,
                {domain: own[domain,] for domain in domains},
                {pair: inner[pair] for pair in combinations(domains, 2) if pair in inner},
                [item for item in items if item.recipe.target not in inner],
            )
        )
    return found


def compare(found: Sequence[Setting]) -> dict[str, Any]:
    """Rank correlation with accuracy on the unseen domain, and points below the best setting.

    Args:
        found: settings with all runs of two sources.
    """
    targets: dict[str, Any] = {}
    for target in found[0].outer:
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
        what: {rule: fmean(own[what][rule] for own in targets.values()) for rule in rules}
        for what, rules in (("correlation", [*RULES]), ("regret", ["any", *RULES]))
    }
    return {"settings": len(found), "targets": targets, "mean": means}


def shown(data: str, result: dict[str, Any]) -> Iterator[str]:
    """The comparison as rows of a table, and a sentence on which rule is better."""
    names = " | ".join(one.removesuffix("_painting") for one in result["targets"])
    yield f"{data[0].upper()}{data[1:]}, {result['settings']} settings:"
    yield ""
    yield f"| | {names} | mean |"
    yield f"| --- |{' ---: |' * (len(result['targets']) + 1)}"
    rows = [*result["targets"].values(), result["mean"]]
    for rule, words in RULES.items():
        cells = [f"{own['correlation'][rule]:.2f}".replace("-", "−") for own in rows]
        yield f"| rank correlation: {words} | {' | '.join(cells)} |"
    for rule, words in {**RULES, "any": "a setting at random"}.items():
        cells = [f"{own['regret'][rule]:.1f}" for own in rows]
        yield f"| points below the best: {words} | {' | '.join(cells)} |"
    better = {
        what: sign * (own["left_out"] - own["validation"]) > 0
        for what, sign in (("correlation", 1), ("regret", -1))
        for own in [result["mean"][what]]
    }
    verdict = {2: "better by both", 1: "better by one of the two only", 0: "not better"}
    yield ""
    yield (
        f"On average leaving sources out is {verdict[sum(better.values())]}: rank correlation and "
        "points below the best."
    )


def read_settings(data: str) -> list[Setting]:
    """Those of one data set that are recorded."""
    files = sorted(file for pattern in FILES[data] for file in ROOT.glob(pattern))
    return settings([one for file in files for one in read(file)], DATA[data], CHEAPER.get(data))


def page(text: str, results: Mapping[str, dict[str, Any]]) -> str:
    """docs/tuning.md with its tables."""
    rows: list[str] = []
    for data, result in results.items():
        rows += [*shown(data, result), ""]
    return filled(text, "proof", rows[:-1] or ["Not recorded yet."])


def results(found: Mapping[str, Sequence[Setting]]) -> dict[str, dict[str, Any]]:
    """The comparisons on all data sets that have enough settings."""
    complete = {data: [one for one in own if not one.wanted] for data, own in found.items()}
    return {data: compare(own) for data, own in complete.items() if len(own) >= FEWEST}


def main() -> None:
    """Reads the records, writes the comparison and says what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most-epochs", type=int, default=20, help="of settings that are planned")
    parser.add_argument("--plan", type=Path, help="the file for runs of PACS that are missing")
    parser.add_argument("--json", action="store_true", help="print figures, and write no page")
    arguments = parser.parse_args()
    found = {data: read_settings(data) for data in DATA}
    compared = results(found)
    if arguments.json:
        print(json.dumps(compared, indent=1))
    else:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), compared), encoding="utf-8")
    for data, own in found.items():
        lacking = [
            item
            for one in own
            for item in one.wanted
            if item.recipe.train.epochs <= arguments.most_epochs
        ]
        if not arguments.json:
            print(
                f"{data}: {len(own)} settings have all targets, {sum(not s.wanted for s in own)} "
                f"of them all runs of two sources; {len(lacking)} runs are missing. "
                + ("" if data in compared else f"Fewer than {FEWEST} settings say little.")
            )
        if arguments.plan and data == PACS:
            write_plan(arguments.plan, lacking)


if __name__ == "__main__":
    main()
