"""`bne analyze`: report a run, and make the latent space of its model visible."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common
from bne.cli.progress import Phase, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.inspection.analysis import Analysis
    from bne.training.folder import Training

MAPPED = ("first", "middle", "last")  # layers, unless others are asked for
A_MAP, A_POINT = 2.0, 0.01  # guessed seconds of a map, and of each point on it
WRITING = 10.0  # guessed seconds
EPILOG = "Example: bne analyze runs/pacs-sketch --data data/pacs"


def analyze(
    run: common.Run,
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
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Of the draw and of the maps.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write.", show_default="analysis in RUN")
    ] = None,
    device: common.Device = "auto",
    cache: common.Cache = None,
    skip_bad: common.SkipBad = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Write the report of a run: what was trained, how that went, and how it sees domains.

    The folder gets index.html, which needs nothing else, analysis.json, and every figure as PNG
    and PDF. A run that is not finished gets a page of what there is.
    """
    from bne.errors import DataError, require

    require("matplotlib", "report")
    from bne.report.run_page import write_report
    from bne.training.folder import NO_NETWORK, find_model, read_training

    training = read_training(run)
    model, network = find_model(run)
    if training is None and model is None:
        raise DataError(
            f"{run} is neither a run's folder nor a model's: it has no recipe.yaml and no "
            "model.json; name what bne train has written."
        )
    folder = out or run / "analysis"
    common.check_folder(folder, data)
    analysis = None
    if model is not None:
        analysis = _look(
            model,
            training,
            data,
            folder,
            domains=domains,
            layers=common.parse_names(layers) if layers else None,
            images=images,
            seed=seed,
            device=device,
            cache=cache,
            skip_bad=skip_bad,
        )
        analysis = replace(analysis, data=data.name, network=network)
    folder.mkdir(parents=True, exist_ok=True)
    with progress(Phase("Writing the report", 1, seconds=WRITING)):
        files = write_report(folder, analysis, training)
    if as_json:
        numbers = analysis.to_dict() if analysis else {"left_out": [NO_NETWORK]}
        typer.echo(json.dumps(numbers, indent=2))
    else:
        for group in analysis.numbers.get("alike", []) if analysis else []:
            typer.echo(
                f"{', '.join(group['domains'])} cannot be told apart: at most "
                f"{group['told_apart']:.0%} of the images of two of them lie nearer to their own. "
                "Consider making them one domain."
            )
        typer.echo(f"{files[0]}: the page, with {len(files) - 1} files of figures and numbers.")


def _look(
    model: Path,
    training: "Training | None",
    data: Path,
    folder: Path,
    *,
    domains: str | None,
    layers: "Sequence[str] | None",
    images: int,
    seed: int,
    device: str,
    cache: Path | None,
    skip_bad: bool,
) -> "Analysis":
    """Shows images to a model; what could not be written later fails first."""
    from bne.data.sources import open_images
    from bne.data.splits import official_split
    from bne.inspection.analysis import POINTS, analyse_images
    from bne.training.folder import ALL_TRAINED_ON, held_out_images
    from bne.training.model_folder import load_model

    method, transform, info = load_model(model)
    pictures = open_images(data)
    wanted = common.parse_names(domains, pictures.domains) if domains else list(pictures.domains)
    pictures.indices_of(wanted)  # fails on an unknown domain before anything is decoded
    where = common.choose_device(device)
    prepared = common.prepare(
        pictures,
        data,
        cache,
        transform.way,
        skip_bad=skip_bad,
        show=True,
    )
    split_file = official_split(data)
    held_out, unknown = held_out_images(training, info.domains, prepared.images, split_file)
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(min(images, len(prepared.images.indices_of([domain]))) for domain in wanted)
    maps = 1 + len(layers or MAPPED)
    seconds = A_MAP + A_POINT * min(total, POINTS)
    phases = Phase("Looking at images", total), Phase("Drawing maps", maps, "maps", seconds)
    with progress(*phases) as advance:
        analysis = analyse_images(
            method.to(where),
            transform,
            info,
            prepared,
            wanted,
            layers=layers,
            images=images,
            held_out=held_out,
            seed=seed,
            device=where,
            after_images=partial(advance, "Looking at images"),
            after_map=partial(advance, "Drawing maps"),
        )
    if unknown:
        analysis.numbers["left_out"].append(f"{unknown} {ALL_TRAINED_ON}")
    return analysis
