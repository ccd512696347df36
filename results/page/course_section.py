"""Whether the gap grows with training, and how much accuracies wander on the way."""

from __future__ import annotations

from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from bne.benchmark.tables import signed
from page.campaign import PAPERS, papers_settings, target
from page.course import course, last_third
from page.kinds import by_kind
from page.search import METHODS
from page.words import listed, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record

    Runs = dict[str, dict[str, list[list[float]]]]

STRETCH = 10  # epochs


def course_section(records: Sequence[Record]) -> str:
    """The course of long runs by the paper's settings, and the unsteadiness of all runs."""
    compared = [record for record in records if record.settings["method"] in METHODS]
    return "\n\n".join(filter(None, (_stretches(compared), wandering(compared))))


def _stretches(records: Sequence[Record]) -> str:
    """The gap by tens of epochs, for every target that both methods have."""
    runs = _by_the_papers_settings(records)
    targets = [name for name in runs["deepall"] if name in runs["bne"]]
    if not targets:
        return ""
    recipe = papers_settings().items[0].recipe.train
    starts = range(0, recipe.epochs, STRETCH)

    def means(method: str, names: Sequence[str]) -> list[float]:
        return [
            fmean(v for n in names for run in runs[method][n] for v in run[s : s + STRETCH])
            for s in starts
        ]

    def gap(names: Sequence[str]) -> list[float]:
        pairs = zip(*(means(method, names) for method in METHODS), strict=True)
        return [bne - deepall for deepall, bne in pairs]

    rows = [[m, *(f"{mean:.1f}" for mean in means(m, targets))] for m in METHODS]
    rows += [[f"gap, {n}", *(signed(v, 1) for v in gap([n]))] for n in targets]
    average = [signed(v, 1) for v in gap(targets)]
    rows.append(["gap", *average])
    stages = ["warm-up" if s < recipe.warm_up else "DT" for s in starts]
    head = [f"{s + 1}–{s + STRETCH} ({name})" for s, name in zip(starts, stages, strict=True)]
    since = listed(f"{v}" for v, name in zip(average, stages, strict=True) if name == "DT")
    text = (
        f"Does the gap grow? By the paper's own settings (`{PAPERS}`: Adam 1e-4, no schedule) the "
        "learning rate stays the same, so that one long run tells. Accuracy on the target, mean "
        f"over stretches of epochs and over the targets. While bne warms up it trains as row (a); "
        f"since distance training (DT) began, the gap is {since}."
    )
    return f"{text}\n\n{table(['epochs', *head], rows)}"


def wandering(records: Sequence[Record]) -> str:
    """The standard deviation from epoch to epoch in the last third of training."""
    targets = sorted({target(record) for record in records})
    rows = []
    for kind, own in by_kind(records).items():
        by_target = {t: [last_third(r) for r in own if target(r) == t] for t in targets}
        if all(by_target.values()):
            spreads = [fmean(pstdev(values) for values in by_target[t]) for t in targets]
            means = [fmean(fmean(values) for values in by_target[t]) for t in targets]
            pairs = zip((*means, fmean(means)), (*spreads, fmean(spreads)), strict=True)
            rows.append([kind, *(f"{mean:.1f} ± {spread:.1f}" for mean, spread in pairs)])
    if not rows:
        return ""
    text = (
        "How much the last epoch is a matter of luck: accuracy on the target over the last third "
        "of the epochs, mean ± standard deviation from epoch to epoch, mean over seeds; DeepAll "
        "and BNE, where they were run on all targets."
    )
    return f"{text}\n\n{table(['run', *targets, 'mean'], rows)}"


def _by_the_papers_settings(records: Sequence[Record]) -> Runs:
    """By method, then by target: the courses of its seeds."""
    found: Runs = {method: {} for method in METHODS}
    for item, record in papers_settings().found(records):
        if record is not None:
            found[item.recipe.method].setdefault(item.target, []).append(course(record))
    return found
