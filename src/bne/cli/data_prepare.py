"""`bne data prepare`: decode and resize the images of a dataset once, ahead of training."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bne.cli import common

EPILOG = "Example: bne data prepare data/pacs --cache /scratch/bne"


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
    from bne.data.wording import readable_size

    prepared = common.prepare(open_images(path), cache, size, skip_bad=skip_bad, show=True)
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
