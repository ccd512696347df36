"""`bne evaluate`: test a trained model on any domains."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common
from bne.errors import SettingsError

if TYPE_CHECKING:
    from bne.inspection.evaluate import Accuracies

EPILOG = "Example: bne evaluate runs/pacs-sketch --data data/pacs --domains sketch"


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a model's.", show_default=False)],
    data: common.Data,
    domains: common.Domains = None,
    lean: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="How far images lean on their own statistics.",
            show_default="the model's own",
        ),
    ] = None,
    device: common.Device = "auto",
    cache: common.Cache = None,
    skip_bad: common.SkipBad = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Test a trained model on any domains, seen or not: accuracy per domain and class.

    For models with branches also of the nearest branch, of uniform weights and of each branch.
    """
    from bne.data.sources import open_images
    from bne.inspection.evaluate import evaluate_model
    from bne.training.model_folder import load_model

    method, transform, info = load_model(run)
    if lean is not None:
        try:
            method.lean = lean
        except ValueError as error:
            raise SettingsError(f"--lean: {error}.") from None
    images = open_images(data)
    wanted = common.parse_names(domains, images.domains) if domains else list(images.domains)
    images.indices_of(wanted)  # fails on an unknown domain before anything is decoded
    where = common.choose_device(device)
    prepared = common.prepare(images, data, cache, transform.resize, skip_bad=skip_bad, show=True)
    shares = evaluate_model(method.to(where), transform, info.classes, prepared, wanted, where)
    if as_json:
        plain = {
            domain: {
                whose: {
                    name: {"accuracy": share.accuracy, **asdict(share)}
                    for name, share in by_class.items()
                }
                for whose, by_class in by_answer.items()
            }
            for domain, by_answer in shares.items()
        }
        about = {"method": info.method, "lean": method.lean, "trained_on": list(info.domains)}
        report = {**about, "domains": plain}
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(shares, info.domains)


def _show(shares: "Accuracies", seen: tuple[str, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False, width=10_000)  # whole, even in a pipe
    for domain, answers in shares.items():
        note = ", seen in training" if domain in seen else ""
        table = Table("class", "images", title=f"{domain}{note}")
        for whose in answers:
            table.add_column(whose, justify="right")
        for name, share in answers["prediction"].items():
            cells = [answers[whose][name] for whose in answers]
            texts = (f"{cell.accuracy:.1f} ({cell.low:.1f}–{cell.high:.1f})" for cell in cells)
            table.add_row(name, str(share.images), *texts)
        console.print(table)
    console.print("Accuracy in percent, with 95 % bootstrap intervals.")
