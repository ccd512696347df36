"""The paper's tables of the latent space, made from the analyses in records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bne.evaluation.cells import average
from bne.evaluation.reference import AVERAGE, AVERAGE_CLASS, AVERAGE_DOMAIN, PaperRow, PaperTable
from bne.evaluation.tables import Table, accuracy, beside, cell, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bne.evaluation.records import Record
    from bne.evaluation.tables import Found

RANKS = ("closest", "second", "third")


def latent_table(kind: str, name: str, found: Found, paper: PaperTable) -> Table:
    """One of the tables that show what networks do inside; all are of the last epoch.

    Args:
        kind: "closest-domain-accuracy", "domain-accuracy" or "similarity".
        name: of the table.
        found: the runs, with their records, which hold analyses.
        paper: the table of the paper to show beside ours.
    """
    makers: dict[str, Callable[[str, Found, PaperTable], Table]] = {
        "closest-domain-accuracy": closest_domain_accuracy,
        "domain-accuracy": domain_accuracy,
        "similarity": similarity,
    }
    return makers[kind](name, found, paper)


def closest_domain_accuracy(name: str, found: Found, paper: PaperTable) -> Table:
    """Accuracy of the nearest branch, the second and so on; Avg. weighs targets by their images."""
    targets = _targets(found)
    images = {item.target: record for item, record in found if record is not None}
    ours = {}
    for place, rank in enumerate(RANKS):
        cells = {target: cell(found, target, _by_rank(place)) for target in targets}
        weights = [_images(images[t]) if t in images else 0 for t in targets]
        ours[rank] = {**cells, AVERAGE: average(list(cells.values()), weights)}
    return Table(name, (*targets, AVERAGE), beside(ours, paper), "last")


def domain_accuracy(name: str, found: Found, paper: PaperTable) -> Table:
    """How often training images lie nearest to their own domain, mean over the source domains."""
    targets = _targets(found)
    ours = {}
    for row in dict.fromkeys(item.row for item, _ in found):
        own = [(item, record) for item, record in found if item.row == row]
        cells = {target: cell(own, target, _tells_domains_apart) for target in targets}
        classes = [cell(own, target, lambda r: accuracy(r, "last")) for target in targets]
        summaries = {AVERAGE_DOMAIN: average(list(cells.values())), AVERAGE_CLASS: average(classes)}
        ours[row] = {**cells, **summaries}
    columns = (*targets, AVERAGE_DOMAIN, AVERAGE_CLASS)
    return Table(name, columns, beside(ours, paper), "last")


def similarity(name: str, found: Found, paper: PaperTable) -> Table:
    """Mean 1 / distance of a source's training images, a row, to each source domain, a column.

    Its scale is arbitrary: ours and the paper's are in percent of the row.
    """
    (target,) = _targets(found)
    rows = []
    for row in paper.rows:
        total = sum(row.cells.values())
        shares = {column: 100 * value / total for column, value in row.cells.items()}
        rows.append(PaperRow(row.method, "", shares, {}))
    ours = {
        row.method: {
            column: cell(found, target, _share(row.method, column)) for column in paper.targets
        }
        for row in rows
    }
    shares_table = PaperTable(name, paper.backbone, paper.benchmark, tuple(rows))
    return Table(name, paper.targets, beside(ours, shares_table), "last")


def _targets(found: Found) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.target for item, _ in found))


def _by_rank(place: int) -> Callable[[Record], float | None]:
    def value(record: Record) -> float | None:
        ranks = record.analysis["target"]["accuracy"]["by_rank"]
        return percent(ranks[place]) if place < len(ranks) else None

    return value


def _tells_domains_apart(record: Record) -> float:
    scores: Mapping[str, Any] = record.analysis["sources"]["domain_accuracy"]["train"]
    return sum(percent({source: score}) for source, score in scores.items()) / len(scores)


def _share(source: str, column: str) -> Callable[[Record], float | None]:
    def value(record: Record) -> float | None:
        row: Mapping[str, float] = record.analysis["sources"]["similarity"][source]
        return 100 * row[column] / sum(row.values())

    return value


def _images(record: Record) -> int:
    return sum(score["images"] for score in record.accuracy["last"].values())
