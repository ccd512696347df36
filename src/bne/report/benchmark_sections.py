"""The results and settings of a benchmark, as parts of a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from bne.benchmark.reference import AVERAGE, SUMMARIES
from bne.benchmark.render import result_grid
from bne.benchmark.tables import NONE, Cell, accuracy, signed
from bne.methods.registry import find
from bne.report import curves, look
from bne.report.look import PALETTE
from bne.report.run_sections import environment_table, flat, settings_table
from bne.training.events import read_epochs
from bne.training.scores import RULES
from bne.words import counted, duration, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bne.benchmark.execute import Outcome
    from bne.benchmark.records import Record
    from bne.benchmark.render import Grid
    from bne.benchmark.tables import Found, Row, Table
    from bne.recipes.files import Experiment
    from bne.training.events import Epoch
    from bne.training.scores import Rule

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
    return [
        [_chart_figure(by_name[name], column) for column in (*targets, AVERAGE)] for name in rows
    ]


def _chart_figure(row: Row, column: str) -> dict[str, Any]:
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


CLEAR = 2  # standard errors
FEW = 2  # seeds, whose standard error is itself mostly chance


def progress(found: Found) -> str:
    """How many of the runs there are."""
    seeds = len({item.recipe.seed for item, _ in found})
    rows = len({item.row for item, _ in found})
    targets = len({item.target for item, _ in found})
    finished = sum(record is not None for _, record in found)
    plan = (
        f"{counted(rows, 'method')}, {counted(targets, 'target')} and {counted(seeds, 'seed')} "
        f"make {counted(len(found), 'run')}"
    )
    if finished == len(found):
        return f"{plan}, all of them finished."
    return f"{plan}; {finished} of them are finished, so everything below is provisional."


def verdict(table: Table, baseline: str | None) -> list[str]:
    """Which method is best on average, by how much, and how sure that is.

    Args:
        table: of accuracy, under one rule.
        baseline: the row to compare the best with besides the second best, if there is one.
    """
    averages = {row.name: row.cells[AVERAGE] for row in table.rows if AVERAGE in row.cells}
    known = {name: cell for name, cell in averages.items() if cell.mean is not None}
    ranked = sorted(known, key=lambda name: known[name].mean or 0.0, reverse=True)
    absent = [name for name in averages if name not in known]
    if not ranked:
        return ["No method has been run on every target with the same seed: there is no average."]
    targets = len([column for column in table.columns if column not in SUMMARIES])
    best = ranked[0]
    over = "on the only target" if targets == 1 else f"on average over {targets} targets"
    leads = "has" if len(ranked) == 1 else "is best:"
    sentences = [f"{best} {leads} {_figure(known[best])} {over}."]
    others = dict.fromkeys([*ranked[1:2], *([baseline] if baseline in known else [])])
    sentences += [_lead(best, other, known) for other in others if other != best]
    if absent:
        sentences.append(f"There is no average yet of {listed(absent)}.")
    return sentences


def _figure(cell: Cell) -> str:
    seeds = counted(len(cell.values), "seed")
    if cell.error is None:
        return f"{cell.mean:.1f} % ({seeds})"
    return f"{cell.mean:.1f} ± {cell.error:.1f} % (mean ± standard error over {seeds})"


def _lead(best: str, other: str, known: Mapping[str, Cell]) -> str:
    """By how much one is better than another, over the seeds that both have."""
    ours, theirs = known[best].values, known[other].values
    common = sorted(ours.keys() & theirs.keys())
    name = f"{other} ({known[other].mean:.1f} %)"
    if not common:
        return f"It has no seed in common with {name}, so the two cannot be compared."
    difference = Cell({seed: ours[seed] - theirs[seed] for seed in common}, len(common))
    assert difference.mean is not None
    points = signed(difference.mean, 1)
    if difference.error is None:
        return (
            f"Against {name} that is {points} points in the one seed that both have: how much of "
            "it is chance cannot be told from one seed."
        )
    start = (
        f"Against {name} that is {points} ± {difference.error:.1f} points, seed by seed over "
        f"{len(common)} seeds"
    )
    if difference.mean > CLEAR * difference.error:
        end = ", but two seeds tell little of that" if len(common) <= FEW else ""
        return f"{start}: more than twice its standard error{end}."
    return f"{start}: within twice its standard error, so the two cannot be told apart."


OF_A_RUN = ("method", "target", "seed", "sources")  # which the runs of a method differ in anyway


def filter_form(
    methods: Sequence[Mapping[str, str]], targets: Sequence[str], rules: Iterable[Rule]
) -> str:
    """Boxes to tick and a choice of the rule; `benchmark.js` shows them."""
    boxes = "".join(
        f'<label><input type="checkbox" name="method" value="{number}" checked>'
        f'<i style="background:{one["colour"]}"></i>{escape(one["name"])}</label>'
        for number, one in enumerate(methods)
    )
    places = "".join(
        f'<label><input type="checkbox" name="target" value="{number}" checked>{escape(name)}'
        "</label>"
        for number, name in enumerate(targets)
    )
    options = "".join(f'<option value="{rule}">{escape(RULES[rule])}</option>' for rule in rules)
    return (
        '<form id="filters" hidden autocomplete="off">'
        f"<fieldset><legend>Methods</legend>{boxes}</fieldset>"
        f"<fieldset><legend>Targets</legend>{places}</fieldset>"
        f'<label class="rule">Network of <select id="rule">{options}</select></label></form>'
    )


def result_sections(
    experiment: Experiment, found: Found, tables: Mapping[Rule, Table]
) -> list[str]:
    """The verdict and the table under every rule, one beneath the other."""
    baseline = next((item.row for item, _ in found if item.recipe.method == "deepall"), None)
    html = []
    for rule, table in tables.items():
        sentences = " ".join(verdict(table, baseline))
        html.append(
            f'<div data-rule="{rule}"><h3>Network of {escape(RULES[rule])}</h3>'
            f"{look.paragraph(sentences)}"
            f"{'' if experiment.analysis else _grid(result_grid(experiment, found, [rule]))}</div>"
        )
    if experiment.analysis:
        html.append(_grid(result_grid(experiment, found)))
    return html


def run_section(found: Found) -> list[str]:
    """Every run with its accuracy and time."""
    rows = [
        (
            item.row,
            item.target,
            str(item.recipe.seed),
            *(_percent(record, rule) for rule in RULES),
            NONE if record is None else duration(record.seconds),
        )
        for item, record in found
    ]
    table = look.table(
        "Accuracy on the target, %, by the epoch that is tested",
        ("method", "target", "seed", *RULES, "time"),
        rows,
    )
    return [look.folded(f"All {len(found)} runs", f'<div data-filter="runs">{table}</div>')]


def missing_section(found: Found, failed: Sequence[Outcome]) -> list[str]:
    """What is not finished, and what went wrong."""
    missing = [str(item) for item, record in found if record is None]
    mute = [str(i) for i, record in found if record is not None and not epochs_of(record)]
    html = []
    if missing:
        rows = [(name,) for name in missing]
        html += [
            look.paragraph(
                f"{len(missing)} of {counted(len(found), 'run')} are not finished. Figures say how "
                "many seeds they are of; averages are over the seeds that every target has."
            ),
            look.folded("Which ones", look.table("Not finished", ("run",), rows)),
        ]
    html += [look.paragraph(f"{one.item} failed: {one.problem}") for one in failed]
    if mute:
        html.append(
            look.paragraph(f"{counted(len(mute), 'finished run')} recorded no epochs: no curves.")
        )
    return html


def setting_section(found: Found) -> list[str]:
    """What all runs have in common, and in which settings the methods differ."""
    by_row = {item.row: flat(item.settings) for item, _ in found}
    keys = dict.fromkeys(key for own in by_row.values() for key in own if key not in OF_A_RUN)
    texts = {key: [own.get(key, NONE) for own in by_row.values()] for key in keys}
    common = {key: own[0] for key, own in texts.items() if len(set(own)) == 1}
    differing = [(key, *own) for key, own in texts.items() if key not in common]
    html = [settings_table("Settings that all runs have in common", common)]
    if differing:
        caption = "Settings in which the methods differ"
        html.insert(0, look.table(caption, ("setting", *by_row), differing))
    return html


def method_section(found: Found) -> list[str]:
    """What stands behind the names of the methods."""
    names = {item.row: item.recipe.method for item, _ in found}
    return [
        look.paragraph(
            f"What the paper says of {row if row == name else f'{row}, the method {name}'}: "
            f"“{find(name).sentence}”."
        )
        for row, name in names.items()
    ]


def environment_section(found: Found) -> list[str]:
    """What the runs ran in, and how long they took."""
    records = [record for _, record in found if record is not None]
    environments = [record.environment for record in records if record.environment]
    if not records:
        return []
    total = sum(record.seconds for record in records)
    time = (
        f"The {counted(len(records), 'finished run')} took {duration(total)} if their times are "
        "added up; runs that shared a device took longer than they would have alone."
    )
    return [look.paragraph(time), environment_table(environments) if environments else ""]


def _percent(record: Record | None, rule: Rule) -> str:
    figure = None if record is None else accuracy(record, rule)
    return NONE if figure is None else f"{figure:.1f}"


def _grid(grid: Grid) -> str:
    """A table whose cells may be broken, but not within a mean and its error."""
    notes = look.paragraph(" ".join(grid.notes))
    rows = [[text.replace(" ± ", "\u00a0±\u00a0") for text in row] for row in grid.rows]
    table = look.table(grid.title, grid.head, rows)
    return f'<div data-filter="grid" class="grid">{table}</div><div class="muted">{notes}</div>'
