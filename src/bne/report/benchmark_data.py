"""The figures and curves of a benchmark, for the script of its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bne.evaluation.reference import AVERAGE
from bne.report import curves
from bne.report.epochs import read_epochs
from bne.report.theme import PALETTE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.engine.events import Epoch
    from bne.evaluation.records import Record
    from bne.evaluation.tables import Found, Row, Rule, Table

NUMBERS = 200_000  # in all curves together, so that a page stays small
FEWEST, MOST = 12, 100  # points of one curve
DASHES = ("solid", "dash", "dot")


def chart_data(found: Found, tables: Mapping[Rule, Table]) -> dict[str, Any]:
    """Plain numbers and texts for JSON.

    Args:
        found: the runs, with their records.
        tables: of accuracy, by rule.
    """
    rows = list(dict.fromkeys(item.row for item, _ in found))
    targets = list(dict.fromkeys(item.target for item, _ in found))
    finished = [(item, record) for item, record in found if record is not None]
    most = max(FEWEST, min(MOST, NUMBERS // (4 * len(finished) or 1)))
    kinds: list[list[dict[str, Any]]] = []
    runs = []
    for item, record in finished:
        epochs = epochs_of(record)
        if not epochs:
            continue
        stages = curves.plain_stages(epochs)
        if stages not in kinds:
            kinds.append(stages)
        runs.append(
            {
                "method": rows.index(item.row),
                "target": targets.index(item.target),
                "seed": item.recipe.seed,
                "stages": kinds.index(stages),
                **_lines(epochs, most),
            }
        )
    return {
        "methods": [{"name": name, **_look(number)} for number, name in enumerate(rows)],
        "targets": targets,
        "figures": {rule: _figures(table, rows, targets) for rule, table in tables.items()},
        "stages": kinds,
        "runs": runs,
    }


def epochs_of(record: Record) -> tuple[Epoch, ...]:
    """What was recorded of a run's epochs; nothing if that cannot be read."""
    try:
        return read_epochs(record.epochs)
    except ValueError:
        return ()


def _lines(epochs: Sequence[Epoch], most: int) -> dict[str, Any]:
    places = curves.thinned(len(epochs), most)
    chosen = [epochs[place] for place in places]
    return {
        "x": [place + 1 for place in places],
        "loss": curves.line(chosen, lambda epoch: epoch.loss),
        "source": curves.line(chosen, curves.source_accuracy),
        "target_accuracy": curves.line(chosen, curves.target_accuracy),
    }


def _look(number: int) -> dict[str, str]:
    turn, colour = divmod(number, len(PALETTE))
    return {"colour": PALETTE[colour], "dash": DASHES[turn % len(DASHES)]}


def _figures(table: Table, rows: Sequence[str], targets: Sequence[str]) -> list[list[Any]]:
    """A row a method, a figure a target, then the average."""
    by_name = {row.name: row for row in table.rows}
    return [[_figure(by_name[name], column) for column in (*targets, AVERAGE)] for name in rows]


def _figure(row: Row, column: str) -> dict[str, Any]:
    cell = row.cells[column]
    return {
        "mean": _short(cell.mean),
        "error": _short(cell.error),
        "seeds": [[seed, _short(value)] for seed, value in cell.values.items()],
        "paper": row.paper.get(column),
    }


def _short(value: float | None) -> float | None:
    """All to the same digits: a mean of one seed lies where the seed does."""
    return None if value is None else round(value, 3)
