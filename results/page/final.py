"""The final of the search: its two best settings at the standard length, on every target."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from bne.engine.recipe_files import load
from page.campaign import ABLATION, BNE, DEEPALL, RECIPE, Wanted, difference
from page.search import METHODS, Setting, finalists, settings_tried
from page.words import listed, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.evaluation.records import Record
    from page.search import Tuning

RULE = (
    "**Rule.** All rows share one setting. Of those tried with every method, the two with the "
    "highest mean over the methods go on to a final at the standard length, seed 0, on all four "
    "targets. There the higher held-out accuracy with running statistics wins, mean over the "
    "methods, on the targets that all have been run on. The final was decided on when the runs "
    "with SGD had been made and before those with Adam."
)


def other_finalist(search: Sequence[Record]) -> Wanted | None:
    """What the final needs beside the standard runs."""
    tried = settings_tried(search)
    for tuning in finalists(tried):
        changes = difference(next(s.records[0] for s in tried if s.tuning == tuning))
        tuned = ("train.optimiser.", "train.schedule.")
        overrides = {key: value for key, value in changes.items() if key.startswith(tuned)}
        if overrides:
            title = "The final of the search: the setting that is not the recipe's"
            rows = (DEEPALL, BNE)
            return Wanted(title, ABLATION, rows=rows, seeds=1, overrides=overrides)
    return None


def entries(search: Sequence[Record], records: Sequence[Record]) -> list[Setting]:
    """Both methods under both settings, with the runs that all four have."""
    tunings = finalists(settings_tried(search))
    standard = [r for r in records if r.settings["method"] in METHODS and not r.settings["seed"]]
    found = [
        setting
        for setting in settings_tried(standard)
        if any(setting.tuning.is_like(tuning) for tuning in tunings)
        and (setting.tuning.epochs, setting.tuning.warm_up) == _standard_length()
    ]
    if len(found) < len(METHODS) * len(tunings):
        return []
    common = set.intersection(*(setting.runs for setting in found))
    return [setting.on(common) for setting in found] if common else []


def winner(search: Sequence[Record], records: Sequence[Record]) -> Tuning | None:
    """The setting that the rule picks; None before there is a final."""
    found = entries(search, records)
    return max((s.tuning for s in found), key=lambda t: _mean(found, t), default=None)


def final_section(search: Sequence[Record], records: Sequence[Record]) -> str:
    """The rule, the figures and what they pick."""
    found = entries(search, records)
    if not found:
        return f"{RULE} The final is not run yet."
    pick = winner(search, records)
    assert pick is not None
    tunings = sorted({s.tuning for s in found}, key=lambda t: -_mean(found, t))
    rows = []
    for tuning in tunings:
        own = {s.method: str(s.held_out("running")) for s in found if s.tuning == tuning}
        mean = f"{_mean(found, tuning):.2f}"
        rows.append([str(tuning), *(own[method] for method in METHODS), mean])
    targets = listed(sorted(name for name, _ in found[0].runs))
    head = ["setting", *(f"held out, {method}" for method in METHODS), "mean"]
    return (
        f"{RULE} So far on {targets}:\n\n{table(head, rows)}\n\n"
        f"The rule picks **{pick}**, which the recipe of the tables has."
    )


def _standard_length() -> tuple[int, int]:
    train = load(RECIPE, {"target": ["sketch"]}).train
    return train.epochs, train.warm_up


def _mean(found: Sequence[Setting], tuning: Tuning) -> float:
    estimates = [s.held_out("running") for s in found if s.tuning == tuning]
    return fmean(estimate.mean for estimate in estimates if estimate)
