"""The results and settings of a benchmark, as parts of a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from bne.evaluation.cells import NONE
from bne.evaluation.results import result_grid
from bne.evaluation.tables import RULES as ALL_RULES
from bne.evaluation.tables import accuracy
from bne.methods.registry import find
from bne.report import parts
from bne.report.benchmark_data import epochs_of
from bne.report.benchmark_summary import verdict
from bne.report.settings_sections import environment_table, flat, settings_table
from bne.report.words import RULES, counted, duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bne.engine.recipe_files import Experiment
    from bne.evaluation.grid import Grid
    from bne.evaluation.records import Record
    from bne.evaluation.runs import Outcome
    from bne.evaluation.tables import Found, Rule, Table

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
            f"{parts.paragraph(sentences)}"
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
            *(_percent(record, rule) for rule in ALL_RULES),
            NONE if record is None else duration(record.seconds),
        )
        for item, record in found
    ]
    table = parts.table(
        "Accuracy on the target, %, by the epoch that is tested",
        ("method", "target", "seed", *ALL_RULES, "time"),
        rows,
    )
    return [parts.folded(f"All {len(found)} runs", f'<div data-filter="runs">{table}</div>')]


def missing_section(found: Found, failed: Sequence[Outcome]) -> list[str]:
    """What is not finished, and what went wrong."""
    missing = [str(item) for item, record in found if record is None]
    mute = [str(i) for i, record in found if record is not None and not epochs_of(record)]
    html = []
    if missing:
        rows = [(name,) for name in missing]
        html += [
            parts.paragraph(
                f"{len(missing)} of {counted(len(found), 'run')} are not finished. Figures say how "
                "many seeds they are of; averages are over the seeds that every target has."
            ),
            parts.folded("Which ones", parts.table("Not finished", ("run",), rows)),
        ]
    html += [parts.paragraph(f"{one.item} failed: {one.problem}") for one in failed]
    if mute:
        html.append(
            parts.paragraph(f"{counted(len(mute), 'finished run')} recorded no epochs: no curves.")
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
        html.insert(0, parts.table(caption, ("setting", *by_row), differing))
    return html


def method_section(found: Found) -> list[str]:
    """What stands behind the names of the methods."""
    names = {item.row: item.recipe.method for item, _ in found}
    return [
        parts.paragraph(
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
    return [parts.paragraph(time), environment_table(environments) if environments else ""]


def _percent(record: Record | None, rule: Rule) -> str:
    figure = None if record is None else accuracy(record, rule)
    return NONE if figure is None else f"{figure:.1f}"


def _grid(grid: Grid) -> str:
    """A table whose cells may be broken, but not within a mean and its error."""
    notes = parts.paragraph(" ".join(grid.notes))
    rows = [[text.replace(" ± ", "\u00a0±\u00a0") for text in row] for row in grid.rows]
    table = parts.table(grid.title, grid.head, rows)
    return f'<div data-filter="grid" class="grid">{table}</div><div class="muted">{notes}</div>'
