"""`bne analyze`: make the latent space of a trained model visible."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bne.cli import common

EPILOG = "Example: bne analyze runs/pacs-sketch --data data/pacs"


def analyze(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a model's.", show_default=False)],
    data: common.Data,
    domains: common.Domains = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="To map, joined by commas.", show_default="the first, the middle and the last"
        ),
    ] = None,
    images: Annotated[
        int, typer.Option(min=1, help="At most so many of each domain, drawn at random.")
    ] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw and of the maps.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write.", show_default="analysis in RUN")
    ] = None,
    device: common.Device = "auto",
    cache: common.Cache = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Write a page, figures and numbers of how a trained model sees domains, seen or not.

    The folder gets index.html, which needs nothing else, analysis.json, and every figure as PNG
    and PDF.
    """
    from rich.console import Console

    from bne.data.images import DataError
    from bne.data.sources import open_images
    from bne.engine.saved import load_model

    try:
        from bne.report.content import analyse_images
        from bne.report.write import write_analysis
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        message = "matplotlib is not installed; pip install 'bne[report]' brings it."
        raise DataError(message) from None
    method, transform, info = load_model(run / "model" if (run / "model").is_dir() else run)
    pictures = open_images(data)
    wanted = domains.split(",") if domains else list(pictures.domains)
    pictures.indices_of(wanted)  # fails on an unknown domain before anything is decoded
    where = common.choose_device(device)
    prepared = common.prepare(pictures, cache, transform.resize, skip_bad=False, show=True)
    folder = out or run / "analysis"
    folder.mkdir(parents=True, exist_ok=True)  # fails before anything is computed
    with Console(stderr=True).status("Looking at images"):
        analysis = analyse_images(
            method.to(where),
            transform,
            info,
            prepared,
            wanted,
            layers=layers.split(",") if layers else None,
            images=images,
            seed=seed,
            device=where,
        )
        files = write_analysis(folder, analysis)
    if as_json:
        typer.echo(json.dumps(analysis.to_dict(), indent=2))
    else:
        typer.echo(f"{files[0]}: the page, with {len(files) - 1} files of figures and numbers.")
