"""How far one row of a table lies above another, ours and the paper's, in points."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from bne.benchmark.reference import AVERAGE, SUMMARIES
from bne.benchmark.render import result_tables
from bne.benchmark.tables import AWAITED, Cell, average, signed
from page.campaign import standing_for, target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.benchmark.records import Record
    from bne.benchmark.tables import Table
    from bne.training.scores import Rule
    from page.campaign import Wanted

    Row = Mapping[str, Cell]


def by_rule(wanted: Wanted, records: Sequence[Record]) -> dict[Rule, Table]:
    """A wanted table as the records stand, under every rule."""
    return {one.rule: one for one in result_tables(wanted.experiment, wanted.found(records))}


def our_row(one: Table, name: str) -> Row:
    """Our figures, by column; none if nothing of the row is recorded."""
    cells = next((row.cells for row in one.rows if row.name == name), {})
    return cells if any(cell.values for cell in cells.values()) else {}


def last_of(table: str, row: str, records: Sequence[Record]) -> Row:
    """Our figures for a row of the paper's, after the last epoch."""
    return our_row(by_rule(standing_for(table, row), records)["last"], row)


def gap(row: Row, base: Row) -> dict[str, Cell]:
    """A cell a target, over the seeds that both rows have, and their average."""
    targets = [name for name in row if name in base and name not in SUMMARIES]
    cells = {name: minus(row[name], base[name]) for name in targets}
    return {**cells, AVERAGE: average(list(cells.values()))}


def minus(one: Cell | None, other: Cell | None) -> Cell:
    """Of the seeds that both have."""
    if one is None or other is None:
        return Cell({}, 0)
    common = sorted(one.values.keys() & other.values.keys())
    return Cell({seed: one.values[seed] - other.values[seed] for seed in common}, one.planned)


def papers_gap(one: Table, row: str, base: str) -> dict[str, float]:
    """The same of the paper's figures."""
    papers = {r.name: r.paper for r in one.rows}
    common = [name for name in papers[row] if name in papers[base]]
    return {name: papers[row][name] - papers[base][name] for name in common}


def image_error(shares: Sequence[float], images: int) -> float:
    """The standard error of the difference of two accuracies, as if of different images.

    Args:
        shares: the two accuracies, in percent.
        images: that each was measured on.
    """
    return sqrt(sum(share * (100 - share) for share in shares) / images)


def image_errors(row: Row, base: Row, records: Sequence[Record]) -> dict[str, float]:
    """By target that both rows have: the standard error that its images alone give the gap."""
    errors = {}
    for name, count in test_images(records).items():
        means = [cell.mean for one in (row, base) if (cell := one.get(name)) and cell.values]
        if len(means) == 2:
            errors[name] = image_error([mean or 0.0 for mean in means], count)
    return errors


def mean_error(errors: Mapping[str, float]) -> float:
    """The standard error of a mean over targets."""
    return sqrt(sum(error**2 for error in errors.values())) / len(errors)


def test_images(records: Sequence[Record]) -> dict[str, int]:
    """How many there are of each target."""
    counts = {target(r): sum(s["images"] for s in r.accuracy["last"].values()) for r in records}
    return dict(sorted(counts.items()))


def text(cell: Cell) -> str:
    """With its sign and, over several seeds, its standard error."""
    if cell.mean is None:
        return AWAITED
    error = "" if cell.error is None else f" ± {cell.error:.1f}"
    return f"{signed(cell.mean, 1)}{error}"
