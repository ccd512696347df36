"""Where the missing points are: in which step, in which class, under which weights."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from bne.benchmark.reference import AVERAGE
from bne.benchmark.tables import Cell, average, cell, percent, signed
from bne.data.benchmarks import BENCHMARKS
from page import analyses, gaps
from page.campaign import (
    ABLATION,
    BNE,
    DEEPALL,
    ROW_A,
    ROW_B,
    WEIGHTS,
    difference,
    paper_table,
    target,
)
from page.kinds import by_kind
from page.words import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record
    from bne.benchmark.tables import Found
    from page.analyses import Value

LETTERS = {DEEPALL: "DeepAll", ROW_A: "(a)", ROW_B: "(b)", BNE: "(c)"}
STEPS = ((ROW_A, DEEPALL), (BNE, ROW_A), (ROW_B, ROW_A), (BNE, ROW_B))
CLASSES = BENCHMARKS["pacs"].classes
UNSEEN = ("cartoon", "sketch")
# Networks of the same layers, trained with different weights.
WEIGHTED = ("bne", "bne-a", "bne-b", "bne-ce", "dnet", "dnet-ce")


class _Run(NamedTuple):
    """Own weight in training, accuracy on the target, mean accuracy of the branches there."""

    weight: float
    accuracy: float
    branches: float


def steps_section(records: Sequence[Record]) -> str:
    """What each step of the method brings, ours and the paper's."""
    one = gaps.by_rule(paper_table(ABLATION), records)["last"]
    columns = [*paper_table(ABLATION).targets, AVERAGE]
    rows = []
    for row, base in STEPS:
        ours = gaps.gap(gaps.our_row(one, row), gaps.our_row(one, base))
        cells = [ours.get(column, Cell({}, 0)) for column in columns]
        seeds = {seed for cell in cells for seed in cell.values}
        if not seeds:
            continue
        paper = gaps.papers_gap(one, row, base)
        name = f"{LETTERS[row]} above {LETTERS[base]}"
        rows.append([name, "ours", *map(gaps.text, cells), str(len(seeds))])
        rows.append(["", "paper", *(signed(paper[column], 1) for column in columns), ""])
    if not rows:
        return ""
    text = (
        "What each step brings, in points on the target after the last epoch, over the seeds that "
        "both rows have. Until distance training begins, (c) trains as (a) does, from the same "
        "random numbers."
    )
    return f"{text}\n\n{table(['', '', *columns, 'seeds'], rows, texts=2)}"


def classes_section(records: Sequence[Record]) -> str:
    """BNE and DeepAll by class, and the mean of the classes instead of that of the images."""
    found = [(i, r) for i, r in paper_table(ABLATION).found(records) if r is None or r.analysis]
    bne, deepall = ([(i, r) for i, r in found if i.row == row] for row in (BNE, DEEPALL))
    if not all(any(r for _, r in own) for own in (bne, deepall)):
        return ""
    rows = [[name, *_gaps(bne, deepall, _recall(place))] for place, name in enumerate(CLASSES)]
    rows.append(["**all classes alike**", *_gaps(bne, deepall, _mean_recall)])
    text = (
        "By how many points (c) lies above DeepAll on the images of each class, after the last "
        "epoch, over the seeds that both have. The last row is the mean of the classes; in the "
        "other tables a class counts by the number of its images."
    )
    return f"{text}\n\n{table(['', *paper_table(ABLATION).targets, AVERAGE], rows)}"


def weights_section(records: Sequence[Record]) -> str:
    """Accuracy against how sharp the weights were that the network was trained with."""
    found = [(name, _weighted(own)) for name, own in _kinds(records).items()]
    found = [(name, both) for name, both in found if all(both)]
    if len(found) < 3:
        return ""
    found.sort(key=lambda one: fmean(run.weight for run in one[1][0]))
    rows = [[name, *(text for runs in both for text in _texts(runs))] for name, both in found]
    columns = ["own weight", "accuracy", "branches"]
    head = ["", *(f"{name}: {column}" for name in UNSEEN for column in columns)]
    text = (
        "Cartoon and sketch unseen, ordered by how much weight, after training, the images of the "
        "source domains give to their own domain's branch; for (a), which trains every image in "
        "its own branch alone, 1 stands instead. Beside it the accuracy on the target after the "
        "last epoch, and the mean accuracy of the single branches there, each by seed: 0, 1 and 2 "
        "as far as they are run. `bne` is BNE (c), `bne-a` (a), `bne-b` (b). "
        "DSON, whose layers differ, is left out."
    )
    return f"{text}\n\n{table(head, rows)}"


def _kinds(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Analysed runs under the standard setting but for how branches are weighted, by kind."""
    return by_kind(
        [
            record
            for record in records
            if record.analysis
            and record.settings["method"] in WEIGHTED
            and difference(record).keys() <= {"options.distance"}
            and record.settings["weights"] == WEIGHTS
        ]
    )


def _weighted(records: Sequence[Record]) -> list[list[_Run]]:
    """By unseen target, the runs in the order of their seeds."""
    ordered = sorted(records, key=lambda record: int(record.settings["seed"]))
    return [[_run(record) for record in ordered if target(record) == name] for name in UNSEEN]


def _run(record: Record) -> _Run:
    given = record.analysis["sources"]["weights"]
    sharp = record.settings["method"] == "bne-a"
    weight = 1.0 if sharp else fmean(weights[domain] for domain, weights in given.items())
    branches = record.analysis["target"]["accuracy"]["by_branch"].values()
    return _Run(weight, analyses.prediction(record), fmean(map(percent, branches)))


def _texts(runs: Sequence[_Run]) -> list[str]:
    by_seed = [
        " / ".join(f"{value:.1f}" for value in values)
        for values in ([run.accuracy for run in runs], [run.branches for run in runs])
    ]
    return [f"{fmean(run.weight for run in runs):.2f}", *by_seed]


def _gaps(ours: Found, base: Found, value: Value) -> list[str]:
    """On every target and on average."""
    targets = paper_table(ABLATION).targets
    cells = [gaps.minus(cell(ours, name, value), cell(base, name, value)) for name in targets]
    return [gaps.text(one) for one in (*cells, average(cells))]


def _recall(place: int) -> Value:
    return lambda record: _recalls(record)[place]


def _mean_recall(record: Record) -> float:
    return fmean(_recalls(record))


def _recalls(record: Record) -> list[float]:
    """Accuracy on each class of the target, in percent; a row of the confusion is a true class."""
    (confusion,) = record.analysis["target"]["confusion"].values()
    return [100 * line[place] / sum(line) for place, line in enumerate(confusion)]
