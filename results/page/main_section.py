"""The page's first table: every method in a row, ours and the paper's in a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.benchmark.reference import AVERAGE
from bne.benchmark.tables import AWAITED, Cell
from page import gaps
from page.campaign import (
    ABLATION,
    BNE,
    CLIP,
    DEEPALL,
    FREEZE,
    NORMALISATION,
    ROW_A,
    ROW_B,
    paper_table,
)
from page.words import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record

# Table, row of it, and what it is called here.
ROWS = (
    (ABLATION, DEEPALL, "DeepAll: one network for all domains"),
    (ABLATION, ROW_A, "BNE (a): branches, no distance training"),
    (ABLATION, ROW_B, "BNE (b): distance training from the start"),
    (ABLATION, BNE, "**BNE (c)**: after a warm-up, the whole method"),
    (ABLATION, "DNet (dt,warmup)", "DNet: weights by a small network"),
    (
        NORMALISATION,
        FREEZE,
        f"FreezeBatchNorm, gradients clipped to {CLIP['train.optimiser.clip']}",
    ),
    (NORMALISATION, "InstanceNorm", "InstanceNorm"),
)


def main_section(records: Sequence[Record]) -> str:
    """After the last epoch, under the standard setting."""
    tables = {name: gaps.by_rule(paper_table(name), records)["last"] for name, _, _ in ROWS}
    targets = paper_table(ABLATION).targets
    rows = []
    for name, row, label in ROWS:
        ours = gaps.last_of(name, row, records)
        paper = next(one.paper for one in tables[name].rows if one.name == row)
        cells = [(ours.get(column, Cell({}, 0)), paper[column]) for column in (*targets, AVERAGE)]
        shown = [f"{AWAITED if own.mean is None else own} ({printed})" for own, printed in cells]
        rows.append([label, *shown])
    text = (
        "Accuracy on the target after the last epoch, in percent, mean ± standard error over "
        "seeds; in brackets the paper's. [1/3]: so many of the planned seeds are there; … has no "
        "record: not run yet, or failed. Other rules, all other tables and the settings are in "
        "[Results in detail](results-details.md)."
    )
    return f"{text}\n\n{table(['', *targets, 'average'], rows)}"
