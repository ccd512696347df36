"""The section past the paper: what both methods gain elsewhere, and DSON under BNE's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.evaluation.cells import AWAITED, average
from bne.evaluation.grid import LABELS
from bne.evaluation.reference import AVERAGE
from bne.evaluation.tables import percent
from page import analyses, gaps
from page.campaign import BNE, DEEPALL, DSON, dson, strong, target
from page.search import METHODS, last_epoch
from page.words import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.evaluation.cells import Cell
    from bne.evaluation.records import Record


def strong_section(records: Sequence[Record]) -> str:
    """DeepAll and BNE under the strong augmentation; empty before both are run."""
    wanted = strong()
    tables = gaps.by_rule(wanted, records)
    if not all(gaps.our_row(tables["last"], row) for row in (DEEPALL, BNE)):
        return ""
    columns = [*dict.fromkeys(item.target for item in wanted.items), AVERAGE]
    rows = []
    for rule, one in tables.items():
        base, own = (gaps.our_row(one, row) for row in (DEEPALL, BNE))
        label = LABELS[rule].removeprefix("ours, ")
        for name, row in ((DEEPALL, base), (BNE, own)):
            rows.append([name, label, *(_text(row.get(column)) for column in columns)])
        difference = gaps.gap(own, base)
        rows.append(["gap", label, *(gaps.text(difference[column]) for column in columns)])
    found = [record for _, record in wanted.found(records) if record is not None]
    running = [_running(found, method, columns[:-1]) for method in METHODS]
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
    found = [record for _, record in dson().found(records) if record is not None]
    own = [record for record in found if record.settings["method"] == DSON]
    if not own:
        return ""
    targets = sorted({target(record) for record in own})
    averaged, weighted = (
        [analyses.cell(own, name, value) for name in targets]
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


def _running(records: Sequence[Record], method: str, targets: Sequence[str]) -> list[Cell]:
    def value(record: Record) -> float | None:
        end = last_epoch(record, "running")
        return percent(end["target"]) if end else None

    own = [record for record in records if record.settings["method"] == method]
    return [analyses.cell(own, name, value) for name in targets]


def _text(cell: Cell | None) -> str:
    return AWAITED if cell is None or cell.mean is None else str(cell)
