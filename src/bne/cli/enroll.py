"""`bne enroll` and `bne forget`: change the domains of a trained model, without training."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bne.cli import common
from bne.cli.progress import Phase, counted, progress

ENROLL = "Example: bne enroll model.bne photos --name river --out river.bne"
FORGET = "Example: bne forget model.bne river --out model-without.bne"

Out = Annotated[Path, typer.Option(help="The model file to write.", show_default=False)]


def enroll(
    model: common.Model,
    images: common.Pictures,
    name: Annotated[str, typer.Option(help="Of the new domain.", show_default=False)],
    out: Out,
    recenter: Annotated[
        bool, typer.Option("--recenter", help="Count the new domain in the domains' centre.")
    ] = False,
    column: common.Column = "path",
    device: common.Device = "auto",
) -> None:
    """Add a domain to a model from unlabeled images, without training.

    The model gets one more branch, with the statistics of these images. A map of the domains that
    it keeps is left out.
    """
    from bne import api
    from bne.deploy.pictures import NAMES, find_pictures

    common.check_file(out, "--out")
    pictures = find_pictures(images, sys.stdin if NAMES in images else (), column)
    loaded = api.load(model, device)
    reads = Phase("Measuring", 2 * len(pictures))  # once for the branch, once for what is usual
    with progress(reads) as advance:
        images_read = counted(pictures, lambda: advance(reads.name, 1))
        made = loaded.enroll(name, images_read, recenter=recenter)
    made.save(out)
    typer.echo(f"{out}: {', '.join(made.domains)}; {name} from {len(pictures)} images.")


def forget(
    model: common.Model,
    name: Annotated[str, typer.Argument(help="Of the domain.", show_default=False)],
    out: Out,
) -> None:
    """Remove a domain from a model, enrolled or trained on.

    A map of the domains that it keeps is left out.
    """
    from bne import api

    common.check_file(out, "--out")
    made = api.load(model, "cpu").forget(name)
    made.save(out)
    typer.echo(f"{out}: {', '.join(made.domains)}.")
