"""`bne predict`: classify images with a trained model."""

import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bne.cli import common
from bne.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bne.deploy.manifest import Manifest
    from bne.deploy.predict import Looks

EPILOG = "Example: bne predict model.bne photos --out answers.csv"
UNREADABLE = 3  # exit code


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            help="A model file, an exported .onnx, or a run's folder.", show_default=False
        ),
    ],
    images: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders, globs, .tar, .zip, or a .csv; - reads names from standard input.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="A .csv, .jsonl or .parquet file.", show_default="a table on the screen"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line per image.")] = False,
    top: Annotated[int, typer.Option(min=1, help="Show so many classes per image.")] = 1,
    columns: Annotated[
        str | None,
        typer.Option(
            help="class, probability, top, nearest, weights, unusual, distances, joined by commas.",
            show_default="all that cost nothing, but distances",
        ),
    ] = None,
    abstain: Annotated[
        float, typer.Option(min=0, max=1, help="Leave images open below this probability.")
    ] = 0.0,
    column: Annotated[str, typer.Option(help="Of a .csv, that has the paths.")] = "path",
    lean: common.Lean = None,
    mix: common.Mix = None,
    nearest: common.Nearest = None,
    device: common.Device = "auto",
) -> None:
    """Classify images: class, calibrated probability, nearest domain, how unusual each is.

    Images that cannot be read are named and left out; the exit code is then 3.
    """
    from rich.console import Console

    from bne.deploy import rows
    from bne.deploy.pictures import NAMES, find_pictures
    from bne.deploy.predict import predict as predicted

    if out:
        rows.check_suffix(out)
        common.check_file(out, "--out")
    pictures = find_pictures(images, sys.stdin if NAMES in images else (), column)
    engine, known = _open(model, device, lean=lean, mix=mix, nearest=nearest)
    wanted = rows.choose_columns(known, common.parse_names(columns) if columns else None, top)
    places = any(name in rows.PLACES for name in wanted)
    # A bar on the same screen as rows must be of their console.
    console = Console(stderr=not sys.stdout.isatty(), highlight=False, markup=False)
    longest = max(len(picture.name) for picture in pictures)
    width = console.width if sys.stdout.isatty() else None
    table = rows.Table(known, wanted, longest, width)
    unreadable = 0
    with (
        rows.file_writer(out) if out else nullcontext(rows.json_lines(sys.stdout)) as write,
        _progress(console, len(pictures)) as advance,
    ):
        if not (out or as_json):
            _say(console, table.head)
        for part in predicted(engine, known, pictures, abstain=abstain, places=places):
            for problem in part.problems:
                typer.echo(f"Skipped: {problem}", err=True)
            unreadable += len(part.problems)
            found = rows.rows(part.names, part.answers, wanted, top) if part.answers else []
            if out or as_json:
                write(found)
            else:
                for row in found:
                    _say(console, table.line(row))
            advance(len(found) + len(part.problems))
    if out:
        typer.echo(f"{out}: {len(pictures) - unreadable} images.", err=True)
    if unreadable:
        raise typer.Exit(UNREADABLE)


def _open(path: Path, device: str, **mode: Any) -> "tuple[Looks, Manifest]":
    """The network of a model file or a run, or of what was exported, which needs no torch."""
    if path.suffix.lower() == ".onnx" and path.is_file():
        from bne.deploy.onnx import OnnxEngine

        if asked := [name for name, value in mode.items() if value is not None]:
            raise SettingsError(
                f"--{asked[0]}: an exported model answers as it was exported; export it anew."
            )
        engine = OnnxEngine.load(path)
        return engine, engine.model
    from bne import api

    model = api.load(path, device, **mode)
    return model.engine, model.info


@contextmanager
def _progress(console: Any, total: int) -> "Iterator[Any]":
    from rich import progress

    shown = (
        progress.TextColumn("Predicting"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[speed]}"),
        progress.TimeRemainingColumn(),
    )
    bar = progress.Progress(
        *shown, console=console, transient=True, disable=not console.is_terminal
    )
    with bar:
        task = bar.add_task("", total=total, speed="")

        def advance(count: int) -> None:
            speed = bar.tasks[task].speed
            bar.update(task, advance=count, speed=f"{speed:.0f} images/s" if speed else "")

        yield advance


def _say(console: Any, line: str) -> None:
    if sys.stdout.isatty():
        console.print(line, soft_wrap=True)
    else:
        typer.echo(line)
