"""The final of the search: its two best settings at the standard length, on every target."""

from __future__ import annotations

from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

from bne.benchmark.tables import signed
from bne.recipes.files import load
from page.campaign import ABLATION, BNE, DEEPALL, RECIPE, WEIGHTS, Wanted, difference
from page.search import (
    METHODS,
    TUNED,
    Estimate,
    Setting,
    best,
    finalists,
    minus,
    settings_tried,
    shared,
)
from page.words import listed, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record
    from bne.recipes.schema import Recipe
    from page.search import Tuning

RULE = (
    "**Rule.** All rows share one setting. Of those tried with every method, the two with the "
    "highest mean over the methods go on to a final at the standard length, seed 0, on all four "
    "targets. There the higher held-out accuracy with running statistics wins, mean over the "
    "methods, on the targets that all have been run on."
)
HISTORY = (
    "**How the rule came about.** At first the search alone decided, by BNE's highest held-out "
    "accuracy; that was put into words after the search, its figures in view. By that rule the "
    "standard runs were made with SGD 3e-3; Adam 3e-4 had been tried with DeepAll only. Tried with "
    "BNE as well, it came out higher, by less than the error. Short runs could not tell the two "
    "apart, so the final was added: after the accuracies of the standard runs on the targets were "
    "known, before the same runs with Adam 3e-4 were made."
)


def other_finalists(search: Sequence[Record]) -> list[Wanted]:
    """What the final needs beside the standard runs."""
    tried = settings_tried(search)
    wanted = []
    for tuning in finalists(tried):
        changes = difference(next(s.records[0] for s in tried if s.tuning == tuning))
        overrides = {key: value for key, value in changes.items() if key.startswith(TUNED)}
        if overrides:
            title = f"The final of the search: {tuning}"
            rows = (DEEPALL, BNE)
            wanted.append(Wanted(title, ABLATION, rows=rows, seeds=1, overrides=overrides))
    return wanted


def entries(search: Sequence[Record], records: Sequence[Record]) -> list[Setting]:
    """Both methods under both settings, with the runs that all four have."""
    tunings = finalists(settings_tried(search))
    found = [
        setting
        for setting in settings_tried([r for r in records if _is_of_the_final(r)])
        if any(setting.tuning.is_like(tuning) for tuning in tunings)
    ]
    if len(found) < len(METHODS) * len(tunings):
        return []
    common = set.intersection(*(setting.runs for setting in found))
    return [setting.on(common) for setting in found] if common else []


def winner(search: Sequence[Record], records: Sequence[Record]) -> Tuning | None:
    """The setting that the rule picks; None before there is a final."""
    found = entries(search, records)
    return max((s.tuning for s in found), key=lambda t: _mean(found, t).mean, default=None)


def final_section(search: Sequence[Record], records: Sequence[Record]) -> str:
    """The rule, its history, the figures and what they pick."""
    found = entries(search, records)
    if not found:
        return f"{RULE} No target has been run with both settings and both methods yet."
    first, second = sorted({s.tuning for s in found}, key=lambda t: -_mean(found, t).mean)
    rows = []
    for tuning in (first, second):
        own = {s.method: str(s.held_out("running")) for s in found if s.tuning == tuning}
        rows.append([str(tuning), *(own[m] for m in METHODS), str(_mean(found, tuning))])
    targets = listed(sorted(name for name, _ in found[0].runs))
    head = ["setting", *(f"held out, {method}" for method in METHODS), "mean"]
    margin = minus(_mean(found, first), _mean(found, second))
    within = "within" if margin.mean < margin.error else "more than"
    recipe = any(not difference(r) for s in found if s.tuning == first for r in s.records)
    return (
        f"{RULE} So far on {targets}:\n\n{table(head, rows)}\n\n"
        f"The rule picks **{first}**, by {margin}: {within} one standard error, as if all were "
        "tested on different images. "
        + ("The recipe of the tables has it." if recipe else "**The recipe has another.**")
        + f"\n\n{HISTORY} {_by_the_search_alone(search)}"
    )


def _by_the_search_alone(search: Sequence[Record]) -> str:
    """What the first rule would pick now, and BNE's gap under each method's own highest."""
    tried = settings_tried(search)
    pick = best(shared(tried), "bne")
    own = {method: best(tried, method) for method in METHODS}
    targets = list(dict.fromkeys(name for s in tried for name, _ in sorted(s.runs)))
    means = {
        method: fmean(setting.on_target(name, "running") or 0.0 for name in targets)
        for method, setting in own.items()
        if setting
    }
    gap = signed(means["bne"] - means["deepall"], 1)
    return (
        f"By the first rule it would be {pick.tuning if pick else 'none'} now. On the search's "
        f"targets, which no rule looks at, BNE's gap over DeepAll is {gap} points where each has "
        "its own highest of the search."
    )


def _is_of_the_final(record: Record) -> bool:
    settings = record.settings
    standard = _standard()
    train = settings["train"]
    length = (train["epochs"], train["warm_up"]) == (standard.train.epochs, standard.train.warm_up)
    alike = settings["exact_statistics"] == standard.exact_statistics
    started = settings["weights"] == WEIGHTS
    return settings["method"] in METHODS and settings["seed"] == 0 and length and alike and started


@cache
def _standard() -> Recipe:
    return load(RECIPE, {"target": ["sketch"]})


def _mean(found: Sequence[Setting], tuning: Tuning) -> Estimate:
    """Over the methods."""
    own = [e for s in found if s.tuning == tuning and (e := s.held_out("running"))]
    error = sum(estimate.error**2 for estimate in own) ** 0.5 / len(own)
    return Estimate(fmean(estimate.mean for estimate in own), error)
