"""The page of a benchmark, made from its records alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bne.benchmark.expectation import expectations
from bne.benchmark.reference import AVERAGE, SUMMARIES
from bne.benchmark.reference import tables as paper_tables
from bne.benchmark.render import HEADS, result_grid
from bne.benchmark.tables import NONE, Cell, Row, accuracy, accuracy_table
from bne.inspection.intervals import quantile
from bne.methods.method import find
from bne.report.charts import rounded, stages, thinned
from bne.report.look import PALETTE
from bne.report.page import environment_texts, render, setting_texts
from bne.training.events import read_epochs
from bne.training.scores import RULES, mean_accuracy, pooled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.benchmark.execute import Outcome
    from bne.benchmark.expectation import Expectation
    from bne.benchmark.records import Record
    from bne.benchmark.render import Grid
    from bne.benchmark.tables import Found, Table
    from bne.recipes.files import Experiment
    from bne.report.charts import Stage
    from bne.training.events import Epoch
    from bne.training.scores import Rule

NUMBERS = 200_000  # in all curves together, so that a page stays small
FEWEST, MOST = 12, 100  # points of one curve
DASHES = ("solid", "dash", "dot")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "pentagon", "star")
OF_A_RUN = ("method", "target", "seed", "sources")  # which the runs of a method differ in anyway


@dataclass(frozen=True)
class BenchmarkPage:
    """What the template shows; what is None or empty is left out."""

    title: str
    about: str  # what is compared
    found: Found
    records: Sequence[Record]  # of the runs that are finished
    data: Mapping[str, Any]  # for `benchmark.js`
    rules: Sequence[Rule]
    rows: Sequence[str]  # that were trained, without those that only lean
    expected: Mapping[Rule, Sequence[Expectation]]  # at a new domain; none under the oracle
    grids: Mapping[Rule, Grid]  # of accuracies
    latent: Grid | None  # of a table of the latent space
    beside_paper: bool  # whether the paper's figures are drawn
    missing: Sequence[str]  # runs that are not finished
    failed: Sequence[Outcome]
    mute: int  # finished runs without epochs
    accuracy: Sequence[Sequence[float | None]]  # one row per run, one column per rule
    methods: Mapping[tuple[str, str], str]  # the paper's sentences, by row and method
    differing: Mapping[str, Sequence[str]]  # settings by key, one text per method
    common: Mapping[str, str]  # settings in which no methods differ
    environment: Mapping[str, str]


def benchmark_page(experiment: Experiment, found: Found, failed: Sequence[Outcome] = ()) -> str:
    """One page that needs nothing else.

    Args:
        experiment: that the runs are of.
        found: its runs, with their records.
        failed: runs that have just failed.
    """
    records = [record for _, record in found if record is not None]
    recorded = {rule for record in records for rule in record.accuracy}
    rules = [rule for rule in RULES if rule in recorded or not recorded]
    paper = paper_tables().get(experiment.name)
    beside = None if experiment.analysis else paper  # whose figures are no accuracies
    tables = {rule: accuracy_table(experiment.name, found, beside, rule) for rule in rules}
    grids = {} if experiment.analysis else {r: result_grid(experiment, found, [r]) for r in rules}
    settings = {item.row: setting_texts(item.settings) for item, _ in found}
    keys = dict.fromkeys(key for own in settings.values() for key in own if key not in OF_A_RUN)
    texts = {key: [own.get(key, NONE) for own in settings.values()] for key in keys}
    data = chart_data(found, tables)
    content = BenchmarkPage(
        title=f"Benchmark {experiment.name}",
        about=experiment.title if paper else f"Recipe {experiment.name}: {experiment.title}",
        found=found,
        records=records,
        data=data,
        rules=rules,
        rows=list(settings),
        expected={} if experiment.analysis else {r: expectations(found, [r]) for r in rules},
        grids=grids,
        latent=result_grid(experiment, found) if experiment.analysis else None,
        beside_paper=beside is not None,
        missing=[str(item) for item, record in found if record is None],
        failed=failed,
        mute=len(records) - len(data["runs"]),
        accuracy=[[accuracy(r, rule) if r else None for rule in RULES] for _, r in found],
        methods={
            (item.row, item.recipe.method): find(item.recipe.method).sentence for item, _ in found
        },
        differing={key: own for key, own in texts.items() if len(set(own)) > 1},
        common={key: own[0] for key, own in texts.items() if len(set(own)) == 1},
        environment=environment_texts([r.environment for r in records if r.environment]),
    )
    return render("benchmark", content)


def chart_data(found: Found, tables: Mapping[Rule, Table]) -> dict[str, Any]:
    """Plain numbers and texts for JSON.

    Args:
        found: the runs, with their records.
        tables: of accuracy, by rule.
    """
    trained = dict.fromkeys(item.row for item, _ in found)
    leaning = [row.name for table in tables.values() for row in table.rows if row.cells]
    rows = list(trained | dict.fromkeys(leaning))
    baseline = next((item.row for item, _ in found if item.recipe.method == "deepall"), None)
    targets = list(dict.fromkeys(item.target for item, _ in found))
    seeds = len({item.recipe.seed for item, _ in found})
    finished = [(item, record) for item, record in found if record is not None]
    most = max(FEWEST, min(MOST, NUMBERS // (4 * len(finished) or 1)))
    kinds: list[list[Stage]] = []
    runs = []
    for item, record in finished:
        epochs = epochs_of(record)
        if not epochs:
            continue
        own = stages(epochs)
        if own not in kinds:
            kinds.append(own)
        places = {"method": rows.index(item.row), "target": targets.index(item.target)}
        kind = {"seed": item.recipe.seed, "stages": kinds.index(own)}
        runs.append({**places, **kind, **_lines(epochs, most)})
    return {
        "methods": [
            {
                "name": name,
                "color": PALETTE[number % len(PALETTE)],
                "shape": SHAPES[number % len(SHAPES)],
                "dash": DASHES[number % len(DASHES)],
            }
            for number, name in enumerate(rows)
        ],
        "baseline": None if baseline is None else rows.index(baseline),
        "targets": targets,
        "summaries": [HEADS[name] for name in SUMMARIES],
        "quantiles": {count: quantile(count) for count in range(2, seeds + 1)},
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
    """Loss, held-out source images (mean over domains) and target, of at most so many epochs."""
    places = thinned(len(epochs), most)
    chosen = [epochs[place] for place in places]
    return {
        "x": [place + 1 for place in places],
        "loss": rounded(epoch.loss for epoch in chosen),
        "source": rounded(mean_accuracy(e.validation) if e.validation else None for e in chosen),
        "target_accuracy": rounded(pooled(epoch.target.values()).accuracy for epoch in chosen),
    }


def _figures(table: Table, rows: Sequence[str], targets: Sequence[str]) -> list[list[Any]]:
    """One row per method: a figure per target, then the average."""
    by_name = {row.name: row for row in table.rows}
    return [
        [
            {
                "text": str(cell),
                "planned": cell.planned,
                "seeds": [[seed, round(value, 6)] for seed, value in cell.values.items()],
                "paper": row.paper.get(column),
            }
            for column in (*targets, AVERAGE)
            for cell in [row.cells.get(column, Cell({}, 0))]
        ]
        for row in (by_name.get(name, Row(name, {}, {})) for name in rows)
    ]
