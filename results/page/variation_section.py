"""What changes when one thing about the whole method is another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.benchmark.reference import AVERAGE
from bne.benchmark.tables import Cell, accuracy
from page import gaps
from page.campaign import WEIGHTS, difference, target
from page.kinds import by_kind
from page.search import TUNED
from page.words import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record

WHOLE = "bne"  # the kind of BNE (c) under the standard settings


def variation_section(records: Sequence[Record]) -> str:
    """How far every other kind of run, optimiser and length as usual, lies above BNE (c)."""
    kinds = by_kind([record for record in records if _is_variation(record)])
    if WHOLE not in kinds:
        return "BNE (c) is not recorded yet."
    targets = sorted({target(record) for record in records})
    base = _row(kinds.pop(WHOLE))
    rows = []
    for name, own in kinds.items():
        gap = gaps.gap(_row(own), base)
        cells = [gap.get(column, Cell({}, 0)) for column in targets]
        seeds = {seed for cell in cells for seed in cell.values}
        average = gap[AVERAGE] if all(cell.values for cell in cells) else Cell({}, 0)
        rows.append([name, *map(gaps.text, [*cells, average]), str(len(seeds))])
    text = (
        "All that was run with the standard optimiser and length: by how many points it lies above "
        "BNE (c) on the target, after the last epoch, over the seeds that both have. The number of "
        "test images alone gives a difference on one target a standard error of about one point. "
        "`bne-a` and `bne-b` are the rows (a) and (b)."
    )
    return f"{text}\n\n{table(['', *targets, AVERAGE, 'seeds'], rows)}"


def _is_variation(record: Record) -> bool:
    changed = any(key.startswith((*TUNED, "train.epochs")) for key in difference(record))
    return not changed and record.settings["weights"] == WEIGHTS


def _row(records: Sequence[Record]) -> dict[str, Cell]:
    cells: dict[str, dict[int, float]] = {}
    for record in records:
        value = accuracy(record, "last")
        if value is not None:
            cells.setdefault(target(record), {})[record.settings["seed"]] = value
    return {name: Cell(values, len(values)) for name, values in cells.items()}
