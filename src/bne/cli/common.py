"""What several verbs do alike."""

import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bne.data.cache import PreparedImages
    from bne.data.images import ImageSet
    from bne.recipes.schema import Recipe

SOURCES = "A folder domain/class/image, a folder of one .tar or .zip a domain, or a CSV."

Data = Annotated[Path, typer.Option(help=SOURCES, show_default=False)]
Cache = Annotated[
    Path | None,
    typer.Option(
        envvar="BNE_CACHE",
        help="Where prepared images are kept.",
        show_default="bne in the user's cache folder",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto takes a GPU if there is one.")]
Domains = Annotated[
    str | None, typer.Option(help="Joined by commas.", show_default="all of the data")
]
Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Runs of each method on each target.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")]
AllowGaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps",
        help="Train although a source domain has no images of a class that others have.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(help="Initial weights: torchvision, timm or a file.", show_default="the recipe's"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting of the recipe, train.epochs=20 for instance; may be repeated.",
        show_default=False,
    ),
]


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """The values of `--set key=value`, by dotted key."""
    from bne.errors import DataError
    from bne.recipes.files import parse

    parsed = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise DataError(f"--set {setting}: write it as key=value, train.epochs=20 for example.")
        try:
            parsed[key] = parse(value)
        except ValueError as error:
            raise DataError(f"--set {setting}: {error}.") from None
    return parsed


def parse_names(names: str, known: "Collection[str]" = ()) -> list[str]:
    """The names in a list that is joined by commas; one that is known may have commas itself."""
    return [names] if names in known else [name.strip() for name in names.split(",")]


def check_folder(folder: Path, data: Path | None, *, write: bool = True) -> None:
    """Finds what would keep results from being written, before anything is done.

    Args:
        folder: of the results.
        data: that they are of.
        write: whether anything is to be written.

    Raises:
        DataError: `folder` is a file or cannot be written, or it lies within the data.
    """
    from bne.errors import DataError

    if folder.exists() and not folder.is_dir():
        raise DataError(f"--out {folder} is a file; name a folder.")
    check_apart(folder, data, "--out")
    if write:
        check_writable(folder, "--out")


def check_apart(folder: Path, data: Path | None, option: str) -> None:
    """Refuses a folder within the data, which then would hold more than images.

    Raises:
        DataError: It lies there.
    """
    from bne.errors import DataError

    if data is not None and data.is_dir() and folder.resolve().is_relative_to(data.resolve()):
        raise DataError(
            f"{option} {folder} lies within the data in {data}; name a folder elsewhere."
        )


def check_file(file: Path, option: str) -> None:
    """Finds what would keep a file from being written, before anything is done.

    Its folder is made if it is not there.

    Raises:
        DataError: It is a folder or a device, or cannot be written.
    """
    from bne.errors import DataError

    if file.exists() and not file.is_file():
        kind = "a folder" if file.is_dir() else "no file"
        raise DataError(f"{option} {file} is {kind}; name a file.")
    check_writable(file, option)
    file.parent.mkdir(parents=True, exist_ok=True)


def check_writable(path: Path, option: str) -> None:
    """Finds out whether a file or folder, or what it would lie in, may be written to.

    Raises:
        DataError: It may not.
    """
    from bne.errors import DataError

    whole = path.absolute()
    place = next(place for place in (whole, *whole.parents) if place.exists())
    if place != whole and not place.is_dir():
        raise DataError(f"{option} {path}: {place} is a file, not a folder.")
    if not os.access(place, os.W_OK):
        raise DataError(f"{option} {path} cannot be written: you may not write to {place}.")
    try:  # rights do not tell all: a disk may be full, and a folder take no files
        with TemporaryFile(dir=place) if place.is_dir() else place.open("ab"):
            pass
    except OSError as error:
        raise DataError(f"{option} {path} cannot be written: {place}: {error.strerror}.") from None


def choose_device(name: str) -> str:
    """`cpu` or `cuda`, from what `--device` says."""
    import torch

    from bne.errors import DataError

    if name not in ("auto", "cpu", "cuda"):
        raise DataError(f"--device {name}: choose auto, cpu or cuda.")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise DataError("--device cuda: PyTorch finds no GPU here; choose cpu.")
    return "cuda" if there and name != "cpu" else "cpu"


def prepare(
    images: "ImageSet", data: Path, cache: Path | None, size: int, *, skip_bad: bool, show: bool
) -> "PreparedImages":
    """Decodes and resizes the images of some data, with a progress bar the first time."""
    from rich.console import Console
    from rich.progress import Progress

    from bne.data import cache as image_cache

    check_apart(cache or image_cache.default_folder(), data, "--cache")
    console = Console(stderr=True, quiet=not show)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("Preparing images", total=len(images))
        prepared = image_cache.prepare(
            images,
            cache,
            size,
            skip_bad=skip_bad,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    for problem in prepared.skipped:
        console.print(f"Skipped: {problem}", markup=False, highlight=False, soft_wrap=True)
    return prepared


def show_notes(recipes: "Iterable[Recipe]", images: "ImageSet", split_file: Path | None) -> None:
    """Says once what one should know of runs though nothing is wrong."""
    from bne.recipes.checks import notes

    for note in dict.fromkeys(n for recipe in recipes for n in notes(recipe, images, split_file)):
        typer.echo(f"Note: {note}", err=True)
