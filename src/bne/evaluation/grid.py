"""A table as text: its figures put into words, ready for any way to print them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bne.evaluation.cells import NONE, Cell
from bne.evaluation.reference import (
    AVERAGE,
    AVERAGE_CLASS,
    AVERAGE_DEEPALL,
    AVERAGE_DOMAIN,
    GAIN,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.evaluation.tables import Row, Rule, Table

LABELS: dict[Rule, str] = {
    "last": "ours, last",
    "validation": "ours, validation",
    "oracle": "ours, oracle (on the target)",
}
MEANINGS: dict[Rule, str] = {
    "last": "Last: the network of the last epoch.",
    "validation": "Validation: that of the epoch best on held-out source images.",
    "oracle": "Oracle: chosen on the target itself, which is no fair choice but an upper bound.",
}
HEADS = {
    AVERAGE_DEEPALL: "Avg. DA",
    AVERAGE: "Avg.",
    GAIN: "Δ%",
    AVERAGE_DOMAIN: "Avg. Domain",
    AVERAGE_CLASS: "Avg. Class",
}


@dataclass(frozen=True)
class Grid:
    """A table of text.

    Attributes:
        title: above it.
        head: of the columns.
        rows: of text; the first column names the row and is empty where it goes on.
        notes: sentences to go with it.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def grid(tables: Sequence[Table], notes: Sequence[str] = ()) -> Grid:
    """Puts a table into words, under one rule or under several side by side.

    Args:
        tables: of the same runs, each under another rule.
        notes: to go with it.
    """
    first = tables[0]
    lines: list[tuple[str, ...]] = []
    for number, row in enumerate(first.rows):
        texts: list[tuple[str, ...]] = []
        if row.cells:
            texts += [(LABELS[t.rule], *_ours(t.rows[number], t.columns)) for t in tables]
        if row.paper:
            texts.append(("paper", *_papers(row, first.columns)))
        names = (row.name, *[""] * (len(texts) - 1))
        lines += [(name, *text) for name, text in zip(names, texts, strict=True)]
    head = ("", "", *(HEADS.get(column, column) for column in first.columns))
    meanings = [MEANINGS[table.rule] for table in tables]
    return Grid(first.name, head, tuple(lines), (*notes, *meanings, *_explanations(first)))


def _ours(row: Row, columns: Sequence[str]) -> list[str]:
    texts = []
    for column in columns:
        cell = row.cells.get(column, Cell({}, 0))
        paper = row.paper.get(column)
        texts.append(str(cell) + ("" if paper is None else cell.difference(paper)))
    return texts


def _papers(row: Row, columns: Sequence[str]) -> list[str]:
    return [_printed(c, row.paper[c]) if c in row.paper else NONE for c in columns]


def _printed(column: str, figure: float) -> str:
    """With the digits that the paper gives it."""
    short = column != GAIN and round(figure, 1) == figure
    return f"{figure:.1f}" if short else f"{figure:.2f}"


def _explanations(table: Table) -> list[str]:
    cells = [cell for row in table.rows for cell in row.cells.values()]
    sentences = []
    if any(cell.error is not None for cell in cells):
        sentences.append("Mean ± standard error over seeds.")
    if any(row.cells and row.paper for row in table.rows):
        sentences.append("In brackets: the difference from the paper's figure.")
    if any(not cell.complete for cell in cells):
        sentences.append("Not finished: [1/3] says how many of the seeds there are; … is none.")
    return sentences
