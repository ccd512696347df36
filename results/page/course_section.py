"""How the accuracy on the target goes along with training, from the epochs in the records."""

from __future__ import annotations

from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from bne.evaluation.cells import signed
from bne.evaluation.tables import percent
from page.campaign import PAPERS, difference, target
from page.kinds import by_kind
from page.search import METHODS
from page.words import listed, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.evaluation.records import Record

STRETCH = 10  # epochs


def course_section(records: Sequence[Record]) -> str:
    """Whether the gap grows in runs by the paper's settings, and how much all runs wander."""
    compared = [record for record in records if record.settings["method"] in METHODS]
    parts = [_stretches(_by_the_papers_settings(compared)), _wandering(compared)]
    return "\n\n".join(filter(None, parts))


def _stretches(runs: dict[str, dict[tuple[str, int], list[float]]]) -> str:
    """Both methods by tens of epochs, over the targets and seeds that both have."""
    common = sorted(set.intersection(*(set(own) for own in runs.values())))
    if not common:
        return ""
    length = min(len(own[run]) for own in runs.values() for run in common)
    starts = range(0, length, STRETCH)
    means = {
        method: [fmean(v for run in common for v in own[run][s : s + STRETCH]) for s in starts]
        for method, own in runs.items()
    }
    rows = [[method, *(f"{mean:.1f}" for mean in own)] for method, own in means.items()]
    pairs = zip(*(means[method] for method in METHODS), strict=True)
    rows.append(["gap", *(signed(bne - deepall, 1) for deepall, bne in pairs)])
    head = ["epochs", *(f"{s + 1}–{min(s + STRETCH, length)}" for s in starts)]
    text = (
        f"Does the gap grow? By the paper's own settings (`{PAPERS}`: Adam 1e-4, no schedule, 20 "
        "epochs of warm-up) the learning rate stays the same, so a long run is a short one at its "
        "beginning. Accuracy on the target, mean over stretches of epochs and over "
        f"{listed(f'{name} (seed {seed})' for name, seed in common)}:"
    )
    return f"{text}\n\n{table(head, rows)}"


def _wandering(records: Sequence[Record]) -> str:
    """The standard deviation from epoch to epoch in the last third of training."""
    targets = sorted({target(record) for record in records})
    rows = []
    for kind, own in by_kind(records).items():
        by_target = {t: [_last_third(r) for r in own if target(r) == t] for t in targets}
        if all(by_target.values()):
            spreads = [fmean(pstdev(values) for values in by_target[t]) for t in targets]
            means = [fmean(fmean(values) for values in by_target[t]) for t in targets]
            cells = [
                f"{mean:.1f} ± {spread:.1f}" for mean, spread in zip(means, spreads, strict=True)
            ]
            rows.append([kind, *cells, f"{fmean(means):.1f} ± {fmean(spreads):.1f}"])
    if not rows:
        return ""
    text = (
        "How much the last epoch is a matter of luck: accuracy on the target over the last third "
        "of the epochs, mean ± standard deviation from epoch to epoch, mean over seeds."
    )
    return f"{text}\n\n{table(['run', *targets, 'mean'], rows)}"


def _by_the_papers_settings(
    records: Sequence[Record],
) -> dict[str, dict[tuple[str, int], list[float]]]:
    """By method, then by target and seed: the accuracy on the target after every epoch."""
    found: dict[str, dict[tuple[str, int], list[float]]] = {method: {} for method in METHODS}
    for record in records:
        if difference(record, PAPERS).keys() <= {"epoch"}:
            run = (target(record), record.settings["seed"])
            found[record.settings["method"]][run] = _course(record)
    return found


def _course(record: Record) -> list[float]:
    epochs = [e for e in record.epochs if e["phase"] == "train" and e["statistics"] == "running"]
    return [percent(epoch["target"]) for epoch in epochs]


def _last_third(record: Record) -> list[float]:
    course = _course(record)
    return course[-max(1, len(course) // 3) :]
