"""`bne data prepare`: decode and resize the images of a dataset once, ahead of training."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common

if TYPE_CHECKING:
    from bne.data.check import Report
    from bne.data.images import ImageSet

app = typer.Typer(help="Check and prepare the images of a dataset.", no_args_is_help=True)


@app.callback()
def data() -> None:
    """Check and prepare the images of a dataset."""


@app.command(epilog="Example: bne data check data/pacs --benchmark pacs")
def check(
    path: Annotated[
        Path,
        typer.Argument(
            help=common.SOURCES,
            show_default=False,
        ),
    ],
    benchmark: Annotated[
        str | None,
        typer.Option(help="Compare with this benchmark: pacs, office31, office_caltech, ..."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Read every image; say what is there, missing, damaged or repeated.

    Exits with 1 when something is wrong. Identical images in one class of one domain are only
    noted; in two classes or two domains they are wrong.
    """
    from bne.data.check import Report
    from bne.errors import DataError

    try:
        report = _check(path, benchmark)
    except (DataError, OSError) as error:
        if not as_json:
            raise
        report = Report({}, (str(error),), (), (), ())
    if as_json:
        typer.echo(json.dumps({"ok": not report.errors, **asdict(report)}, indent=2))
    else:
        _show(report)
    if report.errors:
        raise typer.Exit(1)


def _check(path: Path, benchmark: str | None) -> "Report":
    from rich.console import Console
    from rich.progress import Progress

    from bne.data.benchmarks import find_benchmark
    from bne.data.check import check as check_images
    from bne.data.entries import count_passed_over, describe
    from bne.data.sources import open_images
    from bne.errors import DataError

    declaration = find_benchmark(benchmark) if benchmark else None
    try:
        images = open_images(path)
    except DataError as error:
        if not declaration:
            raise
        raise DataError(f"{error} {declaration.provenance}") from error
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Reading images", total=len(images))
        report = check_images(images, declaration, lambda: progress.advance(task))
    if declaration and declaration.split_file:
        folder = path if path.is_dir() else path.parent
        report = _with_split(report, images, folder / declaration.split_file, declaration.title)
    notes = list(report.notes)
    if passed_over := count_passed_over(path):
        notes.append(describe(passed_over))
    if declaration and report.errors:
        notes.append(declaration.provenance)
    return replace(report, notes=tuple(notes))


def _with_split(report: "Report", images: "ImageSet", table: Path, title: str) -> "Report":
    """Also reports what is wrong with the benchmark's official split."""
    from bne.data.splits import official
    from bne.errors import DataError

    try:
        if not table.is_file():
            raise DataError(
                f"The official split of {title}, {table.name}, is missing; make it from the lists "
                f"that {title} is distributed with, see docs/data.md, or hold out a share with "
                "validation=0.1."
            )
        official(images, images.domains, table)
    except DataError as error:
        return replace(report, errors=(*report.errors, str(error)))
    return report


def _show(report: "Report") -> None:
    from rich.console import Console
    from rich.table import Table

    from bne.words import readable_list

    domains = list(next(iter(report.counts.values())))
    totals = [sum(row[domain] for row in report.counts.values()) for domain in domains]
    table = Table(show_footer=True)
    table.add_column("class", footer="all")
    for domain, total in zip(domains, totals, strict=True):
        table.add_column(domain, footer=str(total), justify="right")
    for name, row in report.counts.items():
        table.add_row(name, *map(str, row.values()))
    # Wide enough for any table: squeezed into the terminal it would lose names, even numbers.
    console = Console(markup=False, highlight=False, width=10_000)
    console.print(table)
    if report.duplicates:
        groups = [readable_list(group, " = ") for group in report.duplicates]
        lines = readable_list(groups, "\n  ")
        console.print(f"Identical images:\n  {lines}", soft_wrap=True)
    for note in report.notes:
        console.print(f"Note: {note}", soft_wrap=True)
    for error in report.errors:
        console.print(f"Wrong: {error}", style="red", soft_wrap=True)
    wrong = "1 thing is" if len(report.errors) == 1 else f"{len(report.errors)} things are"
    verdict = f"{wrong} wrong." if report.errors else "All is well."
    console.print(f"{sum(totals)} images. {verdict}")


@app.command(epilog="Example: bne data prepare data/pacs --cache /scratch/bne")
def prepare(
    path: Annotated[
        Path,
        typer.Argument(
            help=common.SOURCES,
            show_default=False,
        ),
    ],
    cache: common.Cache = None,
    size: Annotated[int, typer.Option(min=1, help="Height and width to resize to.")] = 256,
    skip_bad: common.SkipBad = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Decode and resize every image once, so that training starts at once.

    If that is done already, it only says where the result lies.
    """
    from bne.data.sources import open_images
    from bne.words import readable_size

    prepared = common.prepare(open_images(path), path, cache, size, skip_bad=skip_bad, show=True)
    report = {
        "folder": str(prepared.folder),
        "images": len(prepared),
        "size": size,
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
