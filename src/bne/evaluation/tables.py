"""Tables of accuracy made from records, beside the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bne.evaluation.cells import Cell, average, compared
from bne.evaluation.records import finished
from bne.evaluation.reference import AVERAGE, AVERAGE_DEEPALL, GAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bne.evaluation.plan import Item
    from bne.evaluation.records import Record
    from bne.evaluation.reference import PaperTable

    Found = list[tuple[Item, Record | None]]

Rule = Literal["last", "validation", "oracle"]
RULES: tuple[Rule, ...] = ("last", "validation", "oracle")


@dataclass(frozen=True)
class Row:
    """A row: ours, the paper's, or both.

    Attributes:
        name: of the row.
        cells: our figures, by column; none where the row is not ours to run.
        paper: the paper's figures, by column; none where it has no such row.
    """

    name: str
    cells: Mapping[str, Cell]
    paper: Mapping[str, float]


@dataclass(frozen=True)
class Table:
    """A table of figures, ours and the paper's.

    Attributes:
        name: of the paper's table, or of the experiment.
        columns: targets, two domains held out together joined by a +, and what sums them up, by
            the names in `bne.evaluation.reference.SUMMARIES`.
        rows: in the paper's order, then those it does not have.
        rule: by which the tested epoch was chosen.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    rule: Rule


def find_records(items: Sequence[Item], records: Sequence[Record]) -> Found:
    """Every run of a plan with its record, if it is finished.

    Args:
        items: the plan.
        records: of all runs so far, these and others.
    """
    return [(item, finished(records, item)) for item in items]


def accuracy_table(name: str, found: Found, paper: PaperTable | None, rule: Rule) -> Table:
    """A row a method, a column a target, then Avg. DA, Avg. and Δ%.

    Args:
        name: of the table.
        found: the runs, with their records.
        paper: the table of the paper to show beside ours.
        rule: by which the tested epoch is chosen.
    """
    targets = tuple(dict.fromkeys(item.target for item, _ in found))
    ours = {}
    for row in dict.fromkeys(item.row for item, _ in found):
        own = [(item, record) for item, record in found if item.row == row]
        cells = {target: cell(own, target, lambda r: accuracy(r, rule)) for target in targets}
        ours[row] = {**cells, AVERAGE: average(list(cells.values()))}
    deepall = next((item.row for item, _ in found if item.recipe.method == "deepall"), None)
    for row in ours.keys() - {deepall}:
        if deepall is not None:
            base, gain = compared(ours[row][AVERAGE], ours[deepall][AVERAGE])
            ours[row] |= {AVERAGE_DEEPALL: base, GAIN: gain}
    return Table(name, (*targets, AVERAGE_DEEPALL, AVERAGE, GAIN), beside(ours, paper), rule)


def beside(ours: Mapping[str, Mapping[str, Cell]], paper: PaperTable | None) -> tuple[Row, ...]:
    """Our rows and the paper's, in its order, then those it does not have."""
    printed = {row.name: {**row.cells, **row.summaries} for row in paper.rows} if paper else {}
    names = dict.fromkeys([*printed, *ours])
    return tuple(Row(name, ours.get(name, {}), printed.get(name, {})) for name in names)


def cell(found: Found, target: str, value: Callable[[Record], float | None]) -> Cell:
    """What the runs on a target gave.

    Args:
        found: the runs of one row, with their records.
        target: of the runs that count.
        value: of a finished run; None if it has none and never will.
    """
    own = [(item.recipe.seed, record) for item, record in found if item.target == target]
    values = {seed: value(record) for seed, record in own if record is not None}
    given = {seed: figure for seed, figure in values.items() if figure is not None}
    return Cell(given, len(own) - (len(values) - len(given)))


def accuracy(record: Record, rule: Rule) -> float | None:
    """In percent, over all images of the target; two domains held out together are one target.

    None under "validation" if the run held no source images out.
    """
    return percent(record.accuracy[rule]) if rule in record.accuracy else None


def percent(scores: Mapping[str, Mapping[str, int]]) -> float:
    """Of the images of all domains together."""
    correct = sum(score["correct"] for score in scores.values())
    return 100 * correct / sum(score["images"] for score in scores.values())
