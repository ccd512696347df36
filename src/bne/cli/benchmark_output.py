"""What `bne benchmark` prints."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bne.cli import common
from bne.report.words import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from bne.engine.recipe_files import Experiment
    from bne.evaluation.plan import Item
    from bne.evaluation.runs import Outcome
    from bne.evaluation.tables import Found, Rule


def summary(items: "Sequence[Item]", left: "Sequence[Item]", seconds: float | None) -> str:
    """How much there is to do, in a sentence.

    Args:
        items: of the whole plan.
        left: those to run now.
        seconds: that they may take, if it is known.
    """
    count = "1 run" if len(items) == 1 else f"{len(items)} runs"
    if not left:
        return f"{count}, nothing to do."
    time = "for how long is not known yet" if seconds is None else f"about {duration(seconds)}"
    return f"{count}, {len(left)} to do, {time}."


def show_plan(
    items: "Sequence[Item]", left: "Sequence[Item]", seconds: float | None, as_json: bool
) -> None:
    """Prints every run that is to do."""
    if as_json:
        runs = [
            {"row": i.row, "target": i.target, "seed": i.recipe.seed, "digest": i.digest}
            for i in left
        ]
        typer.echo(json.dumps({"runs": len(items), "to_do": runs, "seconds": seconds}, indent=2))
        return
    for item in left:
        typer.echo(item)
    typer.echo(summary(items, left, seconds))


def show_outcome(console: "Console", outcome: "Outcome") -> None:
    """Prints how a run ended."""
    from bne.evaluation.tables import accuracy

    if outcome.record is None:
        console.print(f"{outcome.item} failed: {outcome.problem}", style="red", soft_wrap=True)
        return
    record = outcome.record
    percent = f"{accuracy(record, 'last'):.1f} %"
    console.print(f"{outcome.item}: {percent} in {duration(record.seconds)}", soft_wrap=True)


def show_table(
    experiment: "Experiment",
    found: "Found",
    rules: "Sequence[Rule]",
    form: str,
    as_json: bool,
    failed: "Sequence[Outcome]",
) -> None:
    """Prints the table.

    Args:
        experiment: that it is of.
        found: its runs, with their records.
        rules: by which the tested epoch is chosen.
        form: "terminal", "md", "latex", "csv" or "html".
        as_json: print JSON instead.
        failed: runs, told of in JSON.
    """
    from bne.evaluation import render
    from bne.evaluation.results import result_grid, result_tables

    tables = result_tables(experiment, found, rules)
    if as_json:
        problems = [{"run": str(outcome.item), "problem": outcome.problem} for outcome in failed]
        report = {"figures": render.figures(tables), "failed": problems}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    grid = result_grid(experiment, found, rules)
    if form == "terminal":
        from rich.console import Console

        # However narrow the terminal: a figure that is cut short is another figure.
        Console(highlight=False, width=10_000).print(render.terminal(grid))
        return
    texts = {
        "md": lambda: render.markdown([grid]),
        "latex": lambda: render.latex([grid]),
        "html": lambda: render.html([grid]),
        "csv": lambda: render.comma_separated(tables),
    }
    typer.echo(texts[form](), nl=False)


def check_report(file: Path) -> None:
    """Finds what would keep the page from being written, before anything is run."""
    from bne.data.images import DataError
    from bne.report.benchmark_page import chart_library

    chart_library()
    if file.exists() and not file.is_file():  # a device would be replaced
        kind = "a folder" if file.is_dir() else "no file"
        raise DataError(f"--report {file} is {kind}; name a file, report.html for example.")
    folder = file.resolve().parent  # where a new file takes the old one's place
    common.check_writable(folder, "--report")
    folder.mkdir(parents=True, exist_ok=True)


def write_report(
    file: Path, experiment: "Experiment", found: "Found", failed: "Sequence[Outcome]"
) -> None:
    """Writes the page, and says so."""
    from bne.engine.files import write_text
    from bne.report.benchmark_page import benchmark_page

    write_text(file.resolve(), benchmark_page(experiment, found, failed))  # a link stays one
    typer.echo(f"{file}: the report.", err=True)
