"""Tables like the paper's, made from records: cells over seeds, rows, and the paper beside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from bne.benchmark.records import finished
from bne.benchmark.reference import (
    AVERAGE,
    AVERAGE_CLASS,
    AVERAGE_DEEPALL,
    AVERAGE_DOMAIN,
    GAIN,
    PaperRow,
    PaperTable,
)
from bne.inspection.intervals import margin
from bne.methods.method import find
from bne.training.events import ACCURACY, Leaning, scores_from_dict
from bne.training.scores import choose_leaning, mean_accuracy, pooled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bne.benchmark.plan import Item
    from bne.benchmark.records import Record
    from bne.training.events import Measure
    from bne.training.scores import Rule

    Found = list[tuple[Item, Record | None]]

NONE, AWAITED = "–", "…"
LEANING = ", leaning"  # after the name of a row
RANKS = ("closest", "second", "third")


@dataclass(frozen=True)
class Cell:
    """A figure over seeds.

    Attributes:
        values: figures by seed.
        planned: number of seeds there will be.
    """

    values: Mapping[int, float]
    planned: int

    @property
    def mean(self) -> float | None:
        """Over the seeds there are; None if there are none."""
        return fmean(self.values.values()) if self.values else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean, which needs two seeds."""
        count = len(self.values)
        return stdev(self.values.values()) / count**0.5 if count > 1 else None

    @property
    def margin(self) -> float | None:
        """Half the width of the mean's 95 % interval, Student's t over the seeds: at least two."""
        return margin(list(self.values.values()))

    @property
    def clear(self) -> bool:
        """Whether a difference is one: its 95 % interval does not hold 0."""
        return self.mean is not None and self.margin is not None and abs(self.mean) > self.margin

    @property
    def complete(self) -> bool:
        """Whether every planned seed is there."""
        return len(self.values) >= self.planned

    def difference(self, other: float, *, digits: int = 1) -> str:
        """By how much it exceeds a figure, in brackets; nothing if it is not there."""
        return "" if self.mean is None else f" ({signed(self.mean - other, digits)})"

    def __str__(self) -> str:
        if self.mean is None:
            return AWAITED if self.planned else NONE
        error = "" if self.error is None else f" ± {self.error:.1f}"
        return f"{self.mean:.1f}{error}{self._count()}"

    def _count(self) -> str:
        return "" if self.complete else f" [{len(self.values)}/{self.planned}]"


@dataclass(frozen=True)
class Gain(Cell):
    """By how many percent of a baseline one average exceeds another, Δ% of the paper's tables.

    Attributes:
        values: averages by seed.
        planned: number of seeds there will be.
        baseline: averages of the same seeds to compare with.
    """

    baseline: Cell

    @property
    def mean(self) -> float | None:
        """100 · (average − baseline) / baseline."""
        ours, base = super().mean, self.baseline.mean
        return 100 * (ours - base) / base if ours is not None and base else None

    @property
    def error(self) -> None:
        """The paper's tables give none."""

    @property
    def margin(self) -> None:
        """None either: its values are averages, not gains."""

    def difference(self, other: float, *, digits: int = 2) -> str:
        """As of any figure, with one more digit."""
        return super().difference(other, digits=digits)

    def __str__(self) -> str:
        return super().__str__() if self.mean is None else f"{signed(self.mean, 2)}{self._count()}"


def average(cells: Sequence[Cell], weights: Sequence[float] | None = None) -> Cell:
    """The mean over targets, of the seeds that every target has.

    Args:
        cells: figures, one per target.
        weights: weights of the targets; by default all weigh the same.
    """
    if not cells:
        return Cell({}, 0)
    seeds = set.intersection(*(set(cell.values) for cell in cells))
    means = {seed: fmean((c.values[seed] for c in cells), weights) for seed in sorted(seeds)}
    return Cell(means, max(cell.planned for cell in cells))


def compared(ours: Cell, baseline: Cell) -> tuple[Cell, Gain]:
    """The baseline and the gain over it, both over the seeds that there are of each."""
    common = sorted(ours.values.keys() & baseline.values.keys())
    base = Cell({seed: baseline.values[seed] for seed in common}, ours.planned)
    return base, Gain({seed: ours.values[seed] for seed in common}, ours.planned, base)


def signed(value: float, digits: int) -> str:
    """With its sign, which is a true minus."""
    text = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text.replace("-", "−")


@dataclass(frozen=True)
class Row:
    """A row: ours, the paper's, or both.

    Attributes:
        name: name of the row.
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
        name: name of the paper's table, or of the experiment.
        columns: targets, two domains held out together joined by a +, and what sums them up, by
            the names in `bne.benchmark.reference.SUMMARIES`.
        rows: rows in the paper's order, then those it does not have.
        rule: rule that chose the tested epoch.
        measure: measure of our figures; None if they are not of accuracy.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    rule: Rule
    measure: Measure | None = None


def find_records(items: Sequence[Item], records: Sequence[Record]) -> Found:
    """Every run of a plan with its record, if it is finished.

    Accuracies on different images are never mixed: if the plan does not know its images, those
    count on which most of its runs are recorded, and of several the last.
    """
    found: Found = [(item, None) for item in items]
    sets = dict.fromkeys(images for one in records if (images := one.materials.get("images")))
    for images in reversed([*sets] or [""]):
        own = [one for one in records if one.materials.get("images") in (images, None)]
        these = [(item, finished(own, item)) for item in items]
        found = max(found, these, key=_count)
    return found


def _count(found: Found) -> int:
    return sum(record is not None for _, record in found)


def accuracy_table(
    name: str, found: Found, paper: PaperTable | None, rule: Rule, measure: Measure = ACCURACY
) -> Table:
    """A row per method, a column per target, then Avg. DA, Avg. and Δ%.

    Args:
        name: name of the table.
        found: runs, with their records.
        paper: table of the paper to show beside ours.
        rule: rule that chooses the tested epoch.
        measure: measure of our figures.
    """
    targets = _targets(found)
    ours = {}
    for row, own in _by_row(found).items():
        value = partial(accuracy, rule=rule, measure=measure)
        cells = {target: cell(own, target, value) for target in targets}
        ours[row] = {**cells, AVERAGE: average(list(cells.values()))}
        if rule == "last" and any(record and record.leaning for _, record in own):
            value = partial(leaning_accuracy, measure=measure)
            cells = {target: cell(own, target, value) for target in targets}
            ours[f"{row}{LEANING}"] = {**cells, AVERAGE: average(list(cells.values()))}
    deepall = next((item.row for item, _ in found if item.recipe.method == "deepall"), None)
    for row in ours.keys() - {deepall}:
        if deepall is not None:
            base, gain = compared(ours[row][AVERAGE], ours[deepall][AVERAGE])
            ours[row] |= {AVERAGE_DEEPALL: base, GAIN: gain}
    columns = (*targets, AVERAGE_DEEPALL, AVERAGE, GAIN)
    return Table(name, columns, beside(ours, paper), rule, measure)


def beside(ours: Mapping[str, Mapping[str, Cell]], paper: PaperTable | None) -> tuple[Row, ...]:
    """Our rows and the paper's, in its order, then those it does not have."""
    printed = {row.name: {**row.cells, **row.summaries} for row in paper.rows} if paper else {}
    names = dict.fromkeys([*printed, *ours])
    return tuple(Row(name, ours.get(name, {}), printed.get(name, {})) for name in names)


def cell(found: Found, target: str, value: Callable[[Record], float | None]) -> Cell:
    """What the runs on a target gave.

    Args:
        found: runs of one row, with their records.
        target: target of the runs that count.
        value: figure of a finished run; None if it has none and never will.
    """
    own = [(item.recipe.seed, record) for item, record in found if item.target == target]
    values = {seed: value(record) for seed, record in own if record is not None}
    given = {seed: figure for seed, figure in values.items() if figure is not None}
    return Cell(given, len(own) - (len(values) - len(given)))


def accuracy(record: Record, rule: Rule, measure: Measure = ACCURACY) -> float | None:
    """In percent, over all images of the target; two domains held out together are one target.

    None under "validation" if the run held no source images out, and where balanced accuracy is
    not recorded.
    """
    if rule not in record.accuracy:
        return None
    return pooled(scores_from_dict(record.accuracy[rule]).values()).by(measure)


def uneven_targets(found: Found) -> tuple[str, ...] | None:
    """Targets whose classes are unbalanced; None if records lack balanced accuracy."""
    tested = [
        (item.target, pooled(scores_from_dict(record.accuracy["last"]).values()))
        for item, record in found
        if record is not None
    ]
    if not tested or any(score.balanced is None for _, score in tested):
        return None
    return tuple(dict.fromkeys(target for target, score in tested if score.unbalanced))


def leaning_accuracy(record: Record, measure: Measure = ACCURACY) -> float | None:
    """The same of the last epoch, leaning as `choose_leaning` says; None if it does not lean."""
    found = [Leaning.from_dict(one) for one in record.leaning]
    if not found:
        return None
    most = find(str(record.settings["method"])).method.most_lean
    return pooled(choose_leaning(found, most).target.values()).by(measure)


def percent(scores: Mapping[str, Mapping[str, int]]) -> float:
    """Of the images of all domains together."""
    return pooled(scores_from_dict(scores).values()).accuracy


def images_of(found: Found) -> dict[str, int]:
    """How many images each target has."""
    return {
        item.target: sum(score["images"] for score in record.accuracy["last"].values())
        for item, record in found
        if record is not None
    }


def latent_table(kind: str, name: str, found: Found, paper: PaperTable) -> Table:
    """One of the tables that show what networks do inside; all are of the last epoch.

    Args:
        kind: "closest-domain-accuracy", "domain-accuracy" or "similarity".
        name: name of the table.
        found: runs, with their records, which hold analyses.
        paper: table of the paper to show beside ours.
    """
    makers = {
        "closest-domain-accuracy": closest_domain_accuracy,
        "domain-accuracy": domain_accuracy,
        "similarity": similarity,
    }
    return makers[kind](name, found, paper)


def closest_domain_accuracy(name: str, found: Found, paper: PaperTable) -> Table:
    """Accuracy of the nearest branch, the second and so on; Avg. weighs targets by their images."""
    targets, sizes = _targets(found), images_of(found)
    ours = {}
    for place, rank in enumerate(RANKS):

        def value(record: Record, place: int = place) -> float | None:
            ranks = record.analysis["target"]["accuracy"]["by_rank"]
            return percent(ranks[place]) if place < len(ranks) else None

        cells = {target: cell(found, target, value) for target in targets}
        mean = average(list(cells.values()), [sizes.get(target, 0) for target in targets])
        ours[rank] = {**cells, AVERAGE: mean}
    return Table(name, (*targets, AVERAGE), beside(ours, paper), "last")


def domain_accuracy(name: str, found: Found, paper: PaperTable) -> Table:
    """How often training images lie nearest to their own domain, mean over the source domains."""

    def value(record: Record) -> float:
        return mean_accuracy(
            scores_from_dict(record.analysis["sources"]["domain_accuracy"]["train"])
        )

    targets = _targets(found)
    ours = {}
    for row, own in _by_row(found).items():
        cells = {target: cell(own, target, value) for target in targets}
        classes = [cell(own, target, lambda r: accuracy(r, "last")) for target in targets]
        summaries = {AVERAGE_DOMAIN: average(list(cells.values())), AVERAGE_CLASS: average(classes)}
        ours[row] = {**cells, **summaries}
    return Table(name, (*targets, AVERAGE_DOMAIN, AVERAGE_CLASS), beside(ours, paper), "last")


def similarity(name: str, found: Found, paper: PaperTable) -> Table:
    """Mean 1 / distance of a source's training images, a row, to each source domain, a column.

    Its scale is arbitrary: ours and the paper's are in percent of the row.
    """
    (target,) = _targets(found)
    ours: dict[str, dict[str, Cell]] = {row.method: {} for row in paper.rows}
    for row, column in product(ours, paper.targets):

        def share(record: Record, row: str = row, column: str = column) -> float:
            return _shares(record.analysis["sources"]["similarity"][row])[column]

        ours[row][column] = cell(found, target, share)
    rows = [PaperRow(row.method, "", _shares(row.cells), {}) for row in paper.rows]
    in_percent = PaperTable(name, paper.backbone, paper.benchmark, tuple(rows))
    return Table(name, paper.targets, beside(ours, in_percent), "last")


def _shares(row: Mapping[str, float]) -> dict[str, float]:
    """In percent of the row."""
    return {column: 100 * value / sum(row.values()) for column, value in row.items()}


def _targets(found: Found) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.target for item, _ in found))


def _by_row(found: Found) -> dict[str, Found]:
    rows: dict[str, Found] = {}
    for item, record in found:
        rows.setdefault(item.row, []).append((item, record))
    return rows
