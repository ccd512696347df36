"""`bne demo`: see the method work."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.demo import Outcome

EPILOG = "Example: bne demo --seeds 3 --out digits.html"


def demo(
    seeds: common.Seeds = 2,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("bne-demo.html"),
    as_json: common.Json = False,
) -> None:
    """Train DeepAll, BNE and points on digits drawn in four ways, each in turn unseen.

    Takes two to three minutes on two cores and downloads nothing. All methods take as many steps. A
    leaning network is the trained one, whose images lean on their own statistics.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from bne.demo import METHODS, Settings, compare
    from bne.demo.digits import load
    from bne.demo.report import page
    from bne.training.files import write_text

    common.check_file(out, "--out")
    # Not the draw of digits that was looked at while the drawings were made.
    prepared, settings = load(seed=1), Settings()
    bars = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*bars, console=Console(stderr=True)) as progress:
        runs = len(METHODS) * seeds * len(prepared.images.domains)
        task = progress.add_task("Training networks", total=runs)
        outcomes = compare(prepared, seeds, settings, lambda: progress.advance(task))
    write_text(out.resolve(), page(prepared, outcomes, settings))  # a link stays one
    if as_json:
        typer.echo(json.dumps({"report": str(out), "runs": list(map(_plain, outcomes))}, indent=2))
    else:
        _show(outcomes, out)


def _plain(outcome: "Outcome") -> dict[str, object]:
    names = ("method", "target", "seed", "share")
    fields: dict[str, object] = {name: getattr(outcome, name) for name in names}
    fields["accuracy"] = outcome.accuracy()
    fields["leaning"] = outcome.accuracy(leaning=True)
    fields["leanings"] = list(map(asdict, outcome.leanings))
    if outcome.examples:
        fields["examples"] = [
            {"name": e.name, "truth": e.truth, "answer": e.answer, "weights": e.weights}
            for e in outcome.examples
        ]
    return fields


def _show(outcomes: "Sequence[Outcome]", out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from bne.benchmark.tables import average
    from bne.demo import ROWS
    from bne.demo.report import cells

    console = Console()
    targets = list(dict.fromkeys(outcome.target for outcome in outcomes))
    table = Table(
        "unseen:", *targets, "average", title="Accuracy in percent, mean ± standard error"
    )
    for name in ROWS:
        row = list(cells(outcomes, name).values())
        table.add_row(name, *map(str, (*row, average(row))))
    console.print(table)

    weights = Table("unseen image", "shows", "seen as", title="Weights of the known domains")
    for target in targets:
        weights.add_column(target, justify="right")
    for target in targets:
        example = next(o for o in outcomes if o.target == target and o.examples).examples[-1]
        percents = (f"{example.weights[d]:.0%}" if d in example.weights else "-" for d in targets)
        weights.add_row(example.name, example.truth, example.answer, *percents)
    console.print(weights)
    console.print(f"Report with the pictures: {out.resolve()}", soft_wrap=True, highlight=False)
