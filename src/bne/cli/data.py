"""`bne data`: check the images of a dataset, or decode and resize them ahead of training."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from bne.cli import common
from bne.cli.help import Command, Group
from bne.errors import SettingsError

if TYPE_CHECKING:
    from bne.data.check import Report
    from bne.data.values import Window

app = typer.Typer(cls=Group, help="Check and prepare the images of a dataset.")
Source = Annotated[Path, typer.Argument(help=common.SOURCES, show_default=False)]
Range = Annotated[
    str,
    typer.Option(
        "--range",
        help="Values of 16-bit and DICOM images that become black and white: full, or '[low, "
        "high]'.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
MANY_DOMAINS = 20  # beyond these a column of each would fit no screen


@app.command(cls=Command, epilog="Example: bne data check data/pacs --benchmark pacs")
def check(
    path: Source,
    benchmark: Annotated[
        str | None,
        typer.Option(help="Compare with this benchmark: pacs, office31, office_caltech, ..."),
    ] = None,
    values: Range = "full",
    group: common.Group = None,
    as_json: AsJson = False,
) -> None:
    """Read every image; say what is there, missing, damaged or repeated.

    Exits with 1 when something is wrong. Identical images in one class of one domain are only
    noted; in two classes or two domains they are wrong.
    """
    from rich.console import Console
    from rich.progress import Progress

    from bne.data.check import Report, check_path
    from bne.errors import BneError

    console = Console(stderr=True)
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("Reading images")
            report = check_path(
                path,
                benchmark,
                lambda done, total: bar.update(task, completed=done, total=total),
                window=_window(values),
                group=group,
            )
    except (BneError, OSError) as error:
        if not as_json:
            raise
        report = Report({}, (str(error),))
    if as_json:
        typer.echo(json.dumps({"ok": not report.errors, **asdict(report)}, indent=2))
    else:
        _show(report)
    if report.errors:
        raise typer.Exit(1)


def _window(values: str) -> "Window | None":
    from bne.data.values import parse_range
    from bne.recipes.schema import checked

    asked = checked(common.parse_settings([f"range={values}"]), "--range")["range"]
    if asked == "percentiles":
        raise SettingsError("--range percentiles: those of training images; bne train finds them.")
    return parse_range(asked)


def _show(report: "Report") -> None:
    from rich.console import Console
    from rich.table import Table

    from bne.words import counted, listed

    domains = list(next(iter(report.counts.values())))
    totals = [sum(row[domain] for row in report.counts.values()) for domain in domains]
    table = Table(show_footer=True)
    if len(domains) > MANY_DOMAINS:
        table.add_column("domain", footer="all")
        table.add_column("images", footer=str(sum(totals)), justify="right")
        table.add_column("classes", footer=str(len(report.counts)), justify="right")
        for domain, total in zip(domains, totals, strict=True):
            classes = sum(row[domain] > 0 for row in report.counts.values())
            table.add_row(domain, str(total), str(classes))
    else:
        table.add_column("class", footer="all")
        for domain, total in zip(domains, totals, strict=True):
            table.add_column(domain, footer=str(total), justify="right")
        for name, row in report.counts.items():
            table.add_row(name, *map(str, row.values()))
    # Wide enough for any table: squeezed into the terminal it would lose names, even numbers.
    console = Console(markup=False, highlight=False, width=10_000)
    console.print(table)
    if report.duplicates:
        lines = listed(map(listed, report.duplicates), "\n  ", "\n  ")
        console.print(f"Identical images:\n  {lines}", soft_wrap=True)
    if report.near_duplicates:
        lines = listed(map(listed, report.near_duplicates), "\n  ", "\n  ")
        console.print(f"Nearly the same:\n  {lines}", soft_wrap=True)
    for note in report.notes:
        console.print(f"Note: {note}", soft_wrap=True)
    for error in report.errors:
        console.print(f"Wrong: {error}", style="red", soft_wrap=True)
    verdict = f"{counted(len(report.errors), 'problem')}." if report.errors else "All is well."
    console.print(f"{sum(totals)} images. {verdict}")


@app.command(cls=Command, epilog="Example: bne data prepare data/pacs --cache /scratch/bne")
def prepare(
    path: Source,
    cache: common.Cache = None,
    size: Annotated[int, typer.Option(min=1, help="Height and width to resize to.")] = 256,
    fit: Annotated[
        str, typer.Option(help="How images become square: squash or letterbox (black borders).")
    ] = "squash",
    values: Range = "full",
    channels: Annotated[int, typer.Option(min=1, help="3 for color, 1 for gray.")] = 3,
    skip_bad: common.SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Decode and resize every image once, so that training starts at once.

    If that is done already, it only says where the result lies.
    """
    from bne.data.images import Fit, Way
    from bne.data.sources import open_images
    from bne.words import readable_size

    if fit not in get_args(Fit):
        raise SettingsError(f"--fit {fit} is unknown; give {' or '.join(get_args(Fit))}.")
    way = Way(size, cast("Fit", fit), _window(values), channels)
    prepared = common.prepare(open_images(path), path, cache, way, skip_bad=skip_bad, show=True)
    prepared.check_range()
    report = {
        "folder": str(prepared.folder),
        "images": len(prepared),
        "size": size,
        "fit": fit,
        "range": prepared.window or "full",
        "channels": channels,
        "notes": list(prepared.notes),
        "bytes": prepared.pixels.nbytes,
        "skipped": list(prepared.skipped),
    }
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    typer.echo(
        f"{len(prepared)} images of {size}x{size} pixels, "
        f"{readable_size(prepared.pixels.nbytes)}, are ready in {prepared.folder}"
    )
