"""`bne bundle`: make one file of a trained model."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common
from bne.errors import SettingsError

if TYPE_CHECKING:
    from bne.deploy.classifier import Classifier
    from bne.deploy.manifest import Manifest

EPILOG = "Example: bne bundle runs/pacs-sketch model.bne"


def bundle(
    run: common.Run,
    file: Annotated[Path, typer.Argument(help="The file to write, model.bne for example.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="The data of the run, to calibrate the model on its held-out source images.",
            show_default="calibrated as the run recorded it",
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            help="Records of bne benchmark with the same settings: keep what to expect at a new "
            "domain.",
            show_default="nothing is kept",
        ),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(
            "--map",
            min=1,
            help="With --data: keep a map of so many held-out images per domain, as points.",
            show_default="no map",
        ),
    ] = None,
    thumbnails: Annotated[
        bool,
        typer.Option(
            "--thumbnails",
            help="With --map: keep a small JPEG of each image, which all who have the file can "
            "see.",
        ),
    ] = False,
    lean: common.Lean = None,
    mix: common.Mix = None,
    nearest: common.Nearest = None,
    layers: common.Layers = None,
    device: common.Device = "auto",
    cache: common.Cache = None,
    skip_bad: common.SkipBad = False,
) -> None:
    """Make one file of a trained model: all that bne predict and bne.load need.

    bne train writes such a file too, model.bne in the run's folder.
    """
    from bne import api
    from bne.deploy.bundle import write
    from bne.deploy.expecting import expecting
    from bne.words import readable_size

    common.check_file(file, "FILE")
    if points and data is None:
        raise SettingsError("--map needs the images of the run; name them with --data.")
    if thumbnails and not points:
        raise SettingsError("--thumbnails are those of a map; say how many images with --map.")
    if records and (lean, mix, nearest, layers) != (None,) * 4:
        raise SettingsError(
            "--records tells of the model as it was trained; leave out --lean, --mix, "
            "--nearest and --layers."
        )
    where = device if data else "cpu"
    model = api.load(run, where, lean=lean, mix=mix, nearest=nearest, layers=layers)
    info = model.info
    if data:
        info = _measured(model, run, data, cache, points, thumbnails, skip_bad)
    if records:
        info = expecting(info, records)
    write(file, model.engine.method, info)
    images = info.calibration.images
    told = f"calibrated on {images} held-out images" if images else "not calibrated"
    size = readable_size(file.stat().st_size)
    typer.echo(f"{file}: {info.method}, {len(info.classes)} classes, {told}, {size}.")
    if info.expected:
        typer.echo(info.expected["sentence"])


def _measured(
    model: "Classifier",
    run: Path,
    data: Path,
    cache: Path | None,
    points: int | None,
    thumbnails: bool,
    skip_bad: bool,
) -> "Manifest":
    """What is known of a model, with what held-out images of its run tell."""
    from bne.data.feed import Feed
    from bne.data.sources import open_images
    from bne.data.splits import official_split
    from bne.deploy.engine import calibrate
    from bne.deploy.map import make_map
    from bne.errors import DataError
    from bne.training.folder import held_out_images, read_training

    images, known, engine = open_images(data), model.info, model.engine
    if images.classes != model.classes:
        raise DataError(f"{data} has other classes than the model; name the data of its run.")
    prepared = common.prepare(images, data, cache, engine.way, skip_bad=skip_bad, show=True)
    images = prepared.images
    training, split_file = read_training(run), official_split(data)
    if training is None:
        raise DataError(
            f"{run} does not say which images its run held out; name the run's folder, or leave "
            "--data out."
        )
    held_out, unknown = held_out_images(training, known.domains, images, split_file)
    if not held_out:
        told = f"{unknown.removesuffix('.')}; name the data of the run." if unknown else ""
        raise DataError(told or f"{run} held out no images to calibrate on; leave --data out.")
    members = {
        name: [number for number in images.indices_of([name]) if number in held_out]
        for name in images.domains
    }
    members = {name: numbers for name, numbers in members.items() if numbers}
    scale = calibrate(engine, Feed(prepared, engine.device), members)
    places = known.map
    if points:
        places = make_map(engine, known, prepared, held_out, points, pictures=thumbnails)
    return replace(known, calibration=scale, map=places)
