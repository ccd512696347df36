"""`bne export`: a trained model as one graph, for ONNX Runtime or torch."""

from pathlib import Path
from typing import Annotated

import typer

from bne.cli import common
from bne.errors import SettingsError

FORMATS = {".onnx": "onnx", ".pt2": "torch"}
EPILOG = "Example: bne export model.bne model.onnx --preprocess"


def export(
    model: common.Model,
    file: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
    format: Annotated[  # noqa: A002 - the option's name
        str | None,
        typer.Option(
            "--format",
            help="onnx, or torch for torch.export.load.",
            show_default="onnx for a .onnx file, torch for a .pt2",
        ),
    ] = None,
    preprocess: Annotated[
        bool,
        typer.Option(
            "--preprocess",
            help="Crop and normalize inside: the graph takes (N, size, size, 3) uint8 images.",
        ),
    ] = False,
    places: Annotated[
        bool,
        typer.Option("--places", help="Weights and distances of the centre too: one more pass."),
    ] = False,
    branch: Annotated[
        str | None,
        typer.Option(
            help="Only the plain network of this domain, or of their centre.",
            show_default="the whole mixture",
        ),
    ] = None,
    quantize: Annotated[
        Path | None,
        typer.Option(
            help="Labeled images, as --data elsewhere: to make an int8 graph and measure its "
            "accuracy.",
            show_default=False,
        ),
    ] = None,
    lean: common.Lean = None,
    mix: common.Mix = None,
    nearest: common.Nearest = None,
    layers: common.Layers = None,
) -> None:
    """Write a trained model as one graph: images in; logits, weights and distances out.

    The graph takes any number of images. bne predict takes an .onnx file as its model, and python
    -m bne.deploy.onnx does the same without torch. Before anything is written, the graph's answers
    are compared with the model's.
    """
    from bne import api
    from bne.data.sources import open_images
    from bne.words import readable_size

    common.check_file(file, "FILE", model)
    named = format or FORMATS.get(file.suffix.lower())
    if named is None:
        raise SettingsError(f"FILE {file}: end the name in .onnx or .pt2, or give --format.")
    loaded = api.load(model, "cpu", lean=lean, mix=mix, nearest=nearest, layers=layers)
    found = loaded.export(
        file,
        named,  # type: ignore[arg-type]
        preprocess=preprocess,
        places=places,
        branch=branch,
        quantize=open_images(quantize) if quantize else None,
    )
    size = readable_size(file.stat().st_size)
    if found.cost is None:
        typer.echo(f"{file}: {size}, logits as in PyTorch to {found.difference:.1g}.")
        return
    before, after = (
        100 * right / found.cost.images for right in (found.cost.before, found.cost.after)
    )
    typer.echo(
        f"{file}: {size}, int8, accuracy {after:.1f} % instead of {before:.1f} % on "
        f"{found.cost.images} images."
    )
