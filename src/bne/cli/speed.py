"""`bne speed`: how fast this device is, against the plain network."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common

if TYPE_CHECKING:
    from bne.speed import Settings
    from bne.speed.records import Record

EPILOG = "Example: bne speed --backbone resnet18 --only train,inference --out speed.jsonl"


class Precision(StrEnum):
    """Of convolutions and matrix products."""

    BF16 = "bf16"
    FLOAT32 = "float32"


def speed(
    backbone: Annotated[
        str, typer.Option(help="resnet18, small_cnn, timm/..., as in a recipe.")
    ] = "resnet18",
    domains: Annotated[int, typer.Option(min=1, help="K, the number of source domains.")] = 3,
    per_domain: Annotated[
        int | None,
        typer.Option(
            min=1, help="Images of each domain in a step.", show_default="16, on the CPU 2"
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Images in inference.", show_default="256, on the CPU 16"),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, help="Height and width of images.", show_default="the backbone's own"),
    ] = None,
    device: common.Device = "auto",
    precision: Annotated[
        Precision, typer.Option(help="On a GPU; the CPU computes in float32.")
    ] = Precision.BF16,
    only: Annotated[
        str, typer.Option(help="Parts to run, joined by commas.")
    ] = "train,inference,memory,growth",
    repeat: Annotated[int, typer.Option(min=1, help="Readings; the median counts.")] = 5,
    out: Annotated[
        Path | None, typer.Option(help="A .jsonl file to add all measurements to.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the measurements as JSON.")
    ] = False,
) -> None:
    """Time training steps and inference on random images, as ratios to the plain network.

    On a GPU steps are CUDA graphs ("graph") unless the table says "calls". What each time is
    compared with, and the most it should be, is in the table.
    """
    import torch

    from bne.errors import DataError
    from bne.models.registry import find
    from bne.speed import PARTS, Settings
    from bne.speed.trial import try_out
    from bne.training.inputs import effective

    if out is not None:
        common.check_file(out, "--out")
    parts = list(dict.fromkeys(common.parse_names(only)))
    if unknown := [part for part in parts if part not in PARTS]:
        raise DataError(
            f"--only {unknown[0]}: there is no such part; choose of {', '.join(PARTS)}."
        )
    try:
        own_size = find(backbone).preprocessing.size
    except ValueError as error:
        raise DataError(f"--backbone: {error}") from None
    where = torch.device(common.choose_device(device))
    on_gpu = where.type == "cuda"
    settings = Settings(
        backbone=backbone,
        device=where,
        precision=effective(precision.value, where),
        domains=domains,
        per_domain=per_domain or (16 if on_gpu else 2),
        batch=batch or (256 if on_gpu else 16),
        size=size or own_size,
        repeat=repeat,
    )
    try_out(settings, parts)
    records = _measure(settings, parts, out)
    if as_json:
        typer.echo(json.dumps(records, indent=2))
    else:
        _show(records)


def _measure(settings: "Settings", parts: list[str], out: Path | None) -> list["Record"]:
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.progress import Progress

    from bne.speed.comparison import compare, number_of_cases
    from bne.speed.records import append, circumstances, record

    shared = circumstances(settings, datetime.now(UTC).isoformat(timespec="seconds"))
    records = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Timing", total=number_of_cases(settings, parts))
        for measurements in compare(settings, parts, lambda _: progress.advance(task)):
            found = [record(measurement, shared) for measurement in measurements]
            if out is not None:
                append(found, out)
            records += found
    return records


def _show(records: list["Record"]) -> None:
    from rich.console import Console
    from rich.table import Table

    from bne.speed.table import COLUMNS, by_part, cells, title

    console = Console(markup=False, highlight=False, width=10_000)  # whole, even in a pipe
    for group in by_part(records):
        table = Table(*COLUMNS, title=title(group[0]))
        for line in group:
            table.add_row(*cells(line))
        console.print(table)
