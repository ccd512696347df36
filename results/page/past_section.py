"""The section past the paper: what both methods gain elsewhere, and DSON under BNE's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.benchmark.reference import AVERAGE
from bne.benchmark.tables import AWAITED, Cell, average, cell, percent
from bne.training.scores import LABELS
from page import analyses, gaps
from page.campaign import BNE, DEEPALL, paper_table, strong
from page.search import last_epoch
from page.words import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record
    from bne.benchmark.tables import Found


def strong_section(records: Sequence[Record]) -> str:
    """DeepAll and BNE under the strong augmentation; empty before both are run."""
    wanted = strong()
    tables = gaps.by_rule(wanted, records)
    if not all(gaps.our_row(tables["last"], row) for row in (DEEPALL, BNE)):
        return ""
    columns = [*wanted.targets, AVERAGE]
    rows = []
    for rule, one in tables.items():
        base, own = (gaps.our_row(one, row) for row in (DEEPALL, BNE))
        label = LABELS[rule]
        for name, row in ((DEEPALL, base), (BNE, own)):
            rows.append([name, label, *(_text(row.get(column)) for column in columns)])
        difference = gaps.gap(own, base)
        cells = [difference.get(column, Cell({}, 0)) for column in columns]
        rows.append(["gap", label, *map(gaps.text, cells)])
    running = [_running(wanted.found(records), row, columns[:-1]) for row in (DEEPALL, BNE)]
    label = "last, running statistics"
    for name, cells in zip((DEEPALL, BNE), running, strict=True):
        rows.append([name, label, *map(_text, (*cells, average(cells)))])
    cells = [gaps.minus(own, base) for base, own in zip(*running, strict=True)]
    rows.append(["gap", label, *map(gaps.text, (*cells, average(cells)))])
    text = (
        f"The recipe `{wanted.recipe}`: colours and crops changed more strongly, exact statistics "
        "after the last epoch, everything else as in the main table, the same for both methods. "
        "Accuracy on the target, in percent; the gap is of the seeds that both have. The last rows "
        "are of the last epoch too, before the statistics were made exact."
    )
    return f"{text}\n\n{table(['', 'rule', *columns], rows, texts=2)}"


def dson_section(records: Sequence[Record]) -> str:
    """The same DSON networks with averaged and with weighted branches; empty before any is run."""
    wanted = paper_table("sota-pacs-resnet18")
    found = wanted.found(records)
    own = [(item, r) for item, r in found if item.row == "DSON" and (r is None or r.analysis)]
    if not any(record for _, record in own):
        return ""
    targets = wanted.targets
    averaged, weighted = (
        [cell(own, name, value) for name in targets]
        for value in (analyses.prediction, analyses.of_weighting("wasserstein"))
    )
    differences = [gaps.minus(*pair) for pair in zip(weighted, averaged, strict=True)]
    rows = [
        [label, *map(show, [*cells, average(cells)])]
        for label, cells, show in (
            ("averaged, as in DSON", averaged, _text),
            ("weighted by distance, as in BNE", weighted, _text),
            ("difference", differences, gaps.text),
        )
    ]
    text = (
        "DSON's training does not depend on how the branches are weighted in the end, so both "
        "answers are of the same networks, after the last epoch: accuracy on the target, in "
        "percent. `dson-bne` is the method that answers in the second way."
    )
    return f"{text}\n\n{table(['', *targets, AVERAGE], rows)}"


def _running(found: Found, row: str, targets: Sequence[str]) -> list[Cell]:
    def value(record: Record) -> float | None:
        end = last_epoch(record, "running")
        return percent(end["target"]) if end else None

    own = [(item, record) for item, record in found if item.row == row]
    return [cell(own, name, value) for name in targets]


def _text(cell: Cell | None) -> str:
    return AWAITED if cell is None or cell.mean is None else str(cell)
