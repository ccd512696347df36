"""The page of a benchmark, made from its records alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.benchmark.reference import tables as paper_tables
from bne.benchmark.tables import accuracy_table
from bne.errors import DataError
from bne.report import benchmark_sections as sections
from bne.report import look
from bne.report.benchmark_sections import chart_data, progress
from bne.training.scores import RULES
from bne.words import counted, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.execute import Outcome
    from bne.benchmark.tables import Found
    from bne.recipes.files import Experiment

DOTS = (
    "Small dots are single runs, one a seed; bars are their means, with one standard error up and "
    "down. Point at one, or tap it, to see what it is."
)
PAPER = " Diamonds are the paper's figures."
CURVES = (
    "A line a run, its colour that of the method. The target's accuracy is recorded epoch by "
    "epoch, but nothing is chosen by it, except by the rule that says so."
)
_MEASURES = {
    "source": "accuracy on held-out source images, mean over domains",
    "target_accuracy": "accuracy on the target (not used for choosing)",
    "loss": "loss",
}


def chart_library() -> str:
    """The script that draws the charts.

    Raises:
        DataError: plotly, which has it, is not installed.
    """
    library = look.plotly()
    if library is None:
        raise DataError("--report: plotly is not installed; pip install 'bne[report]' brings it.")
    return library


def benchmark_page(experiment: Experiment, found: Found, failed: Sequence[Outcome] = ()) -> str:
    """One page that needs nothing else.

    Args:
        experiment: that the runs are of.
        found: its runs, with their records.
        failed: runs that have just failed.

    Raises:
        DataError: plotly is not installed.
    """
    library = chart_library()
    records = [record for _, record in found if record is not None]
    recorded = {rule for record in records for rule in record.accuracy}
    paper = paper_tables().get(experiment.name)
    beside = None if experiment.analysis else paper  # whose figures are no accuracies
    tables = {
        rule: accuracy_table(experiment.name, found, beside, rule)
        for rule in RULES
        if rule in recorded or not recorded
    }
    data = chart_data(found, tables)
    about = experiment.title if paper else f"Recipe {experiment.name}: {experiment.title}"
    lead = [
        look.paragraph(f"{about}. {progress(found)}"),
        look.paragraph(
            "Every method is trained on all domains but the target, and tested on that: figures "
            "are the share of the target's images whose class is named rightly."
        ),
        look.tiles(
            [
                (f"{len(records)} of {len(found)}", "runs finished"),
                (duration(sum(record.seconds for record in records)), "of training and testing"),
                _tile(len(data["methods"]), "method"),
                _tile(len(data["targets"]), "target"),
            ]
        ),
        sections.filter_form(data["methods"], data["targets"], tables),
        look.json_script("benchmark-data", data),
    ]
    content = {
        "results": ("Results", sections.result_sections(experiment, found, tables)),
        "missing": ("Not finished", sections.missing_section(found, failed)),
        "targets": ("Target by target", _dots(beside is not None) if records else []),
        "curves": ("Training", _curves() if data["runs"] else []),
        "runs": ("Runs", sections.run_section(found)),
        "methods": ("Methods", sections.method_section(found)),
        "settings": ("Settings", sections.setting_section(found)),
        "environment": ("Environment", sections.environment_section(found)),
    }
    own = [library, look.own("charts"), look.own("benchmark")]
    return look.document(f"Benchmark {experiment.name}", lead, content, own)


def _tile(count: int, thing: str) -> tuple[str, str]:
    number, _, name = counted(count, thing).partition(" ")
    return number, name


def _dots(beside_paper: bool) -> list[str]:
    label = "The accuracy of every method on every target."
    chart = f'<div class="chart" id="dots" role="img" aria-label="{label}"></div>'
    return [look.paragraph(DOTS + (PAPER if beside_paper else "")), chart]


def _curves() -> list[str]:
    options = "".join(f'<option value="{key}">{text}</option>' for key, text in _MEASURES.items())
    return [
        look.paragraph(CURVES),
        f'<p><label>Show <select id="measure">{options}</select></label></p>',
        '<div class="charts" id="run-curves"></div>',
    ]
