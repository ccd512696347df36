"""`bne predict`: classify images with a trained model."""

import sys
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bne.cli import common, screen
from bne.cli.progress import Phase, counted, progress
from bne.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bne.data.values import Tally
    from bne.deploy.manifest import Manifest
    from bne.deploy.pictures import Picture
    from bne.deploy.predict import Looks
    from bne.deploy.rows import Row

    Job = dict[str, Any]
    Told = tuple[list[Row], list[str], Tally]
    """Rows of images, why others cannot be read, and what is lost of more than 8 bits."""

EPILOG = "Example: bne predict model.bne photos --out answers.csv"
UNREADABLE = 3  # exit code


def predict(
    model: common.ModelOrGraph,
    images: common.Pictures,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A .csv, .jsonl or .parquet file.",
            show_default="a table on the screen",
            metavar="FILE",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line per image.")] = False,
    top: Annotated[
        int, typer.Option(min=1, help="Show so many classes per image.", rich_help_panel="Rows")
    ] = 1,
    columns: Annotated[
        str | None,
        typer.Option(
            help="class, probability, top, nearest, weights, unusual, distances, joined by commas.",
            show_default="all that cost nothing, but distances, and top unless --top is above 1",
            rich_help_panel="Rows",
            metavar="NAMES",
        ),
    ] = None,
    abstain: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Leave images open below this probability.", rich_help_panel="Rows"
        ),
    ] = 0.0,
    column: Annotated[
        str, typer.Option(help="Of a table, that has the paths.", rich_help_panel=common.IMAGES)
    ] = "path",
    one_domain: Annotated[
        bool,
        typer.Option(
            "--one-domain",
            help="All images are one unknown domain: read them twice, use their pooled statistics.",
            rich_help_panel=common.ANSWERS,
        ),
    ] = False,
    lean: common.Lean = None,
    mix: common.Mix = None,
    nearest: common.Nearest = None,
    layers: common.Layers = None,
    device: common.Device = "auto",
    engine: Annotated[
        str,
        typer.Option(
            help="local, or ray for all machines of a Ray cluster.",
            rich_help_panel="More than one machine",
            metavar="ENGINE",
        ),
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Of a Ray cluster, host:port or auto.",
            show_default="one started here",
            rich_help_panel="More than one machine",
            metavar="ADDRESS",
        ),
    ] = None,
) -> None:
    """Classify images: class, calibrated probability, nearest domain, how unusual each is.

    Images that cannot be read are named and left out; the exit code is then 3.
    """
    from bne.data.values import Tally
    from bne.deploy import rows
    from bne.deploy.pictures import NAMES, find_pictures
    from bne.deploy.predict import check_one_domain, open_engine

    if engine not in ("local", "ray"):
        raise SettingsError(f"--engine {engine}: choose local or ray.")
    if ray_address and engine != "ray":
        raise SettingsError("--ray-address needs --engine ray.")
    if one_domain and engine == "ray":
        raise SettingsError("--one-domain pools all images on one machine; leave --engine ray out.")
    if out:
        rows.check_suffix(out)
        common.check_file(out, "--out", *images)
    pictures = find_pictures(images, sys.stdin if NAMES in images else (), column)
    mode: dict[str, Any] = {"lean": lean, "mix": mix, "nearest": nearest, "layers": layers}
    opened, known = open_engine(model, device, **mode)
    if one_domain:
        check_one_domain(opened)
    if known.expected:
        typer.echo(known.expected["sentence"], err=True)
    asked = common.parse_names(columns) if columns else None
    wanted = rows.choose_columns(known, asked, top, one_domain=one_domain)
    places = any(name in rows.PLACES for name in wanted)
    table = rows.Table(known, wanted, [picture.name for picture in pictures], screen.width())
    job: dict[str, Any] = {"columns": wanted, "top": top, "abstain": abstain}
    if engine == "ray":
        job |= {"model": model.absolute(), "device": device, "mode": mode}
        told = _on_ray(job, pictures, ray_address)
    else:
        told = None
    unreadable, tally, like = 0, Tally(), rows.row_like(known, wanted, top)
    pooling = [Phase("Pooling", len(pictures))] if one_domain else []
    phases = [*pooling, Phase("Predicting", len(pictures))]
    with (
        rows.file_writer(out, like) if out else nullcontext(rows.json_lines(sys.stdout)) as write,
        progress(*phases, bar=not (as_json and sys.stdout.isatty())) as advance,
    ):
        if told is None:
            left = count(len(pictures) if one_domain else 0, -1)  # reads of the first pass
            shown = counted(pictures, lambda: advance("Pooling", 1) if next(left) > 0 else None)
            told = _local(opened, job, known, shown if one_domain else pictures, places, one_domain)
        if not (out or as_json):
            screen.say(table.head)
        for found, problems, lost in told:
            tally += lost
            for problem in problems:
                screen.say(f"Skipped: {problem}", err=True)
            unreadable += len(problems)
            if out or as_json:
                write(found)
            else:
                for row in found:
                    screen.say(table.line(row))
            advance("Predicting", len(found) + len(problems))
    for note in tally.notes(opened.way.window):
        typer.echo(f"Note: {note}", err=True)
    if out:
        from bne import words

        typer.echo(f"{out}: {words.counted(len(pictures) - unreadable, 'image')}.", err=True)
    if unreadable:
        raise typer.Exit(UNREADABLE)


def _local(
    engine: "Looks",
    job: "Job",
    known: "Manifest",
    pictures: "Sequence[Picture]",
    places: bool,
    one_domain: bool,
) -> "Iterator[Told]":
    from bne.deploy.predict import predict
    from bne.deploy.rows import rows

    said = predict(
        engine, known, pictures, abstain=job["abstain"], places=places, one_domain=one_domain
    )
    for part in said:
        answers = part.answers
        yield (
            rows(part.names, answers, job["columns"], job["top"]) if answers else [],
            part.problems,
            part.tally,
        )


def _on_ray(job: "Job", pictures: "Sequence[Picture]", address: str | None) -> "Iterator[Told]":
    from bne.deploy.ray import Job, predict_on_ray

    for row, problem, lost in predict_on_ray(Job(**job), pictures, address):
        yield [] if row is None else [row], [problem] if problem else [], lost
