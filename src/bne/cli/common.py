"""What several verbs do alike."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bne.api import parse_names, prepare, show_notes
from bne.errors import SettingsError
from bne.training.environment import choose_device
from bne.training.files import check_file, check_folder, check_writable

__all__ = [
    "check_file",
    "check_folder",
    "check_writable",
    "choose_device",
    "parse_names",
    "parse_settings",
    "prepare",
    "show_notes",
]

SOURCES = (
    "A folder domain/class/image, a folder of one .tar or .zip per domain, one of WILDS, Dassl or "
    "Hugging Face, or a CSV."
)

IMAGES = "Images"
ANSWERS = "How the model answers"
STOPPING = "Print and stop"

Group = Annotated[
    str | None,
    typer.Option(
        help=r"Pattern on file names, 'patient(\d+)': no split parts images that share it.",
        show_default="a CSV's column group, if it has one",
        rich_help_panel=IMAGES,
        metavar="PATTERN",
    ),
]
Run = Annotated[Path, typer.Argument(help="A run's folder, or a model's.", show_default=False)]
Model = Annotated[Path, typer.Argument(help="A model file, or a run's folder.", show_default=False)]
ModelOrGraph = Annotated[
    Path,
    typer.Argument(help="A model file, an exported .onnx, or a run's folder.", show_default=False),
]
Pictures = Annotated[
    list[str],
    typer.Argument(
        help="Files, folders, globs, .tar, .zip, .csv or .parquet; - reads names from standard "
        "input.",
        show_default=False,
    ),
]
Column = Annotated[str, typer.Option(help="Of a table, that has the paths.")]
Data = Annotated[Path, typer.Option(help=SOURCES, show_default=False)]
Cache = Annotated[
    Path | None,
    typer.Option(
        envvar="BNE_CACHE",
        help="Where prepared images are kept.",
        show_default="bne in the user's cache folder",
        rich_help_panel=IMAGES,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto takes a GPU if there is one.")]
Domains = Annotated[
    str | None,
    typer.Option(help="Joined by commas.", show_default="all of the data", metavar="NAMES"),
]
Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Runs of each method on each target.")]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad", help="Leave out images that cannot be read.", rich_help_panel=IMAGES
    ),
]
Lean = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="How far images lean on their own statistics, 0.1 for instance.",
        show_default="as the model was saved",
        rich_help_panel=ANSWERS,
    ),
]
Mix = Annotated[
    str | None,
    typer.Option(
        help="What is mixed: logits, probabilities, statistics (two passes) or centre (one).",
        show_default="as the model was saved",
        rich_help_panel=ANSWERS,
        metavar="WHAT",
    ),
]
Layers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Place images among the domains by so many first batch-norm layers alone.",
        show_default="as the model was saved",
        rich_help_panel=ANSWERS,
    ),
]
Nearest = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Run so many branches per image, the nearest ones.",
        show_default="as the model was saved",
        rich_help_panel=ANSWERS,
    ),
]
AllowGaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps",
        help="Train although a source domain has no images of a class that others have.",
        rich_help_panel=IMAGES,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Initial weights: torchvision, timm or a file.",
        show_default="the recipe's",
        metavar="FILE",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
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
    from bne.recipes.files import parse

    parsed = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise SettingsError(
                f"--set {setting}: write it as key=value, train.epochs=20 for example."
            )
        try:
            parsed[key] = parse(value)
        except ValueError as error:
            raise SettingsError(f"--set {setting}: {error}.") from None
    return parsed
