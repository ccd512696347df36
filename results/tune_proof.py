r"""Which rule finds settings that suit an unseen domain: held-out images, or leaving sources out.

    python results/tune_proof.py                       writes docs/tuning.md, says what is missing
    python results/tune_proof.py --plan plan.json      also writes the runs of PACS that are missing
    bne benchmark --data pacs --plan plan.json --weights resnet18_imagenet.safetensors \
        --no-analyze --records results/tune/pacs.jsonl

Read are settings that have all four targets. For each target, accuracy on it is compared with the
mean accuracy on held-out images of the sources in the same run, and with the mean over sources left
out: the runs of two sources that saw nothing of the target. For settings of the paper's tables they
are smaller and shorter, as in a search that has to be cheap. All figures are of the last epoch,
mean over the seeds that are there.
"""

from __future__ import annotations

import argparse
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
from bne.training.scores import SHARES
from bne.tuning.objective import Fold, questions, score

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bne.benchmark.records import Record
    from bne.tuning.objective import Share

ROOT = Path(__file__).parent
PAGE = ROOT.parent / "docs" / "tuning.md"
STYLES = ("art_painting", "cartoon", "photo", "sketch")
DRAWINGS = ("blueprint", "chalk", "ink", "poster")
RULES = {
    "validation": "held-out images of the sources",
    "left_out": "sources left out in turn",
}
FEWEST = 12  # settings, for a rank correlation to say anything


@dataclass(frozen=True)
class Data:
    """Records that are compared.

    Attributes:
        domains: each unseen in turn.
        files: of records.
        shares: to lean by; each of them is another setting.
        cheaper: epochs and pixels of the runs of two sources; those of the setting if None.
    """

    domains: Sequence[str]
    files: Sequence[str]
    shares: Sequence[Share] = (0.0,)
    cheaper: tuple[int, int] | None = None


TABLES = "PACS, settings of the paper's tables"
FULL = ("beyond/pacs.jsonl", "beyond/pacs-pairs.jsonl")
DATA = {
    "PACS at 224 pixels, methods at eight shares to lean by": Data(STYLES, FULL, SHARES),
    "PACS at 224 pixels, methods without leaning": Data(STYLES, FULL),
    "PACS at 224 pixels, methods at the share that `bne train` takes": Data(
        STYLES, FULL, ("auto",)
    ),
    "PACS at 112 pixels": Data(STYLES, ("tune/pacs-112.jsonl",)),
    "the demo's digits": Data(DRAWINGS, ("tune/digits-proof.jsonl",)),
    TABLES: Data(STYLES, ("pacs-resnet18/*.jsonl", "tune/pacs.jsonl"), cheaper=(5, 112)),
}


@dataclass(frozen=True)
class Setting:
    """Settings with records of all targets.

    Attributes:
        name: the row of the records.
        outer: runs by target.
        pairs: runs of two sources, by what they hold out; complete if there are six.
        wanted: the runs of two sources that are not recorded.
        share: to lean by.
    """

    name: str
    outer: dict[str, list[Record]]
    pairs: dict[tuple[str, ...], list[Record]]
    wanted: list[Item]
    share: Share = 0.0

    def figures(self, target: str) -> dict[str, float]:
        """Accuracy on a target, and what each rule goes by."""
        domains = [*self.outer]
        (asked,) = [one for one in questions(domains, every=True) if one.target == (target,)]
        held_out = [Fold(d, (target,)) for d in domains if d != target]
        runs = self.outer[target]
        found = {
            "outer": self._mean(runs, [Fold(target, (target,))]),
            "validation": self._mean(runs, held_out),
            "left_out": fmean(self._mean(self.pairs[fold.target], [fold]) for fold in asked.folds),
        }
        return {what: round(value, 9) for what, value in found.items()}  # equal ones stay a tie

    def _mean(self, runs: Sequence[Record], folds: Sequence[Fold]) -> float:
        values = [score(run, fold, self.share) for run in runs for fold in folds]
        if None in values:
            raise ValueError(f"{self.name} has a run without scores at share {self.share}")
        return fmean(value for value in values if value is not None)


def settings(records: Sequence[Record], data: Data) -> list[Setting]:
    """All settings that have every target, at every share."""
    kinds: dict[str, dict[tuple[str, ...], list[Record]]] = {}
    for record in records:
        if record.settings["exact_statistics"] and record.settings.get("statistics") is None:
            continue  # measured by an earlier version, on batches of one class
        own = kinds.setdefault(kind(record.settings), {})
        own.setdefault(tuple(record.settings["target"]), []).append(record)
    found = []
    for own in kinds.values():
        if not all((domain,) in own for domain in data.domains):
            continue
        first = own[data.domains[0],][0]
        plain = {key: value for key, value in first.settings.items() if key != "statistics"}
        recipe = to_recipe(checked(plain))
        if data.cheaper:
            epochs, size = data.cheaper
            warm_up = round(recipe.train.warm_up * epochs / recipe.train.epochs)
            train = replace(recipe.train, epochs=epochs, warm_up=warm_up)
            recipe = replace(recipe, train=train, size=size, resize=size * 8 // 7)
        inner = kinds.get(kind(settings_of(recipe)), {})
        row = f"{first.row} {kind(first.settings)[:8]}"
        items = [
            Item("tune-proof", row, replace(recipe, target=pair, seed=0), first.materials)
            for pair in combinations(data.domains, 2)
        ]
        setting = Setting(
            row,
            {domain: own[domain,] for domain in data.domains},
            {pair: inner[pair] for pair in combinations(data.domains, 2) if pair in inner},
            [item for item in items if item.recipe.target not in inner],
        )
        found += [replace(setting, share=share) for share in data.shares]
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


def shown(name: str, result: dict[str, Any]) -> Iterator[str]:
    """The comparison as rows of a table and, of enough settings, which rule is better."""
    names = " | ".join(one.removesuffix("_painting") for one in result["targets"])
    yield f"{name[0].upper()}{name[1:]}, {result['settings']} settings:"
    yield ""
    yield f"| | {names} | mean |"
    yield f"| --- |{' ---: |' * (len(result['targets']) + 1)}"
    rows = [*result["targets"].values(), result["mean"]]
    ranked = result["settings"] >= FEWEST
    for rule, words in RULES.items() if ranked else ():
        cells = [f"{own['correlation'][rule]:.2f}".replace("-", "−") for own in rows]
        yield f"| rank correlation: {words} | {' | '.join(cells)} |"
    for rule, words in {**RULES, "any": "a setting at random"}.items():
        cells = [f"{own['regret'][rule]:.1f}" for own in rows]
        yield f"| points below the best: {words} | {' | '.join(cells)} |"
    if not ranked:
        return
    measures = (("rank correlation", "correlation", 1), ("points below the best", "regret", -1))
    won = [
        words
        for words, what, sign in measures
        for own in [result["mean"][what]]
        if sign * (own["left_out"] - own["validation"]) > 0
    ]
    verdict = "both figures" if len(won) == 2 else f"{won[0]} only" if won else "neither"
    yield ""
    yield f"On average leaving sources out is better by {verdict}."


def read_settings(data: Data) -> list[Setting]:
    """Those that are recorded."""
    files = sorted(file for pattern in data.files for file in ROOT.glob(pattern))
    return settings([one for file in files for one in read(file)], data)


def page(text: str, results: Mapping[str, dict[str, Any]]) -> str:
    """docs/tuning.md with its tables."""
    rows: list[str] = []
    for name, result in results.items():
        rows += [*shown(name, result), ""]
    return filled(text, "proof", rows[:-1] or ["Not recorded yet."])


def results(found: Mapping[str, Sequence[Setting]]) -> dict[str, dict[str, Any]]:
    """The comparisons of settings that have all runs of two sources."""
    complete = {name: [one for one in own if not one.wanted] for name, own in found.items()}
    return {name: compare(own) for name, own in complete.items() if own}


def main() -> None:
    """Reads the records, writes the comparison and says what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most-epochs", type=int, default=20, help="of settings that are planned")
    parser.add_argument("--plan", type=Path, help="the file for runs of PACS that are missing")
    arguments = parser.parse_args()
    found = {name: read_settings(data) for name, data in DATA.items()}
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), results(found)), encoding="utf-8")
    for name, own in found.items():
        print(
            f"{name}: {len(own)} settings have all targets, {sum(not s.wanted for s in own)} of "
            "them all runs of two sources."
        )
    if arguments.plan:
        lacking = [
            item
            for one in found[TABLES]
            for item in one.wanted
            if item.recipe.train.epochs <= arguments.most_epochs
        ]
        write_plan(arguments.plan, lacking)
        print(f"{arguments.plan}: {len(lacking)} runs that are missing.")


if __name__ == "__main__":
    main()
