"""`bne verify`: check a finished run against its manifest."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bne.cli import common

EPILOG = "Example: bne verify runs/pacs-sketch --data data/pacs"


def verify(
    run: Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)],
    data: Annotated[
        Path | None,
        typer.Option(
            help="The data of the run.", show_default="only the run's own files are checked"
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="Initial weights of the run.", show_default="where they were"),
    ] = None,
    device: common.Device = "auto",
    cache: common.Cache = None,
    skip_bad: common.SkipBad = False,
    as_json: common.Json = False,
) -> None:
    """Check a finished run: its files, images, split and initial weights by their digests.

    Then the model is scored again and compared with the record, to the digit on the same kind of
    machine. Exit code 1 if anything differs, with one sentence for each difference.
    """
    from bne import api

    found = api.verify(run, data, device=device, weights=weights, cache=cache, skip_bad=skip_bad)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        for sentence in found.held:
            typer.echo(f"Holds: {sentence}")
        for sentence in found.unchecked:
            typer.echo(f"Not checked: {sentence}")
        typer.echo(f"SHA-256 of the manifest, to be kept apart from the run: {found.manifest}")
    for sentence in found.differences:
        typer.echo(f"Differs: {sentence}", err=True)
    if not found.ok:
        raise typer.Exit(1)
