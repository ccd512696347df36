"""The runs of `bne benchmark`: checked, then carried out."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bne.cli import benchmark_output, common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.data.images import ImageSet
    from bne.evaluation.plan import Item
    from bne.evaluation.ray_engine import Cluster
    from bne.evaluation.runs import Job, Outcome


def choose_cluster(
    on_ray: bool, address: str | None, gpus_per_run: float | None, parallel: int
) -> "Cluster | None":
    """The Ray cluster, if one is wanted."""
    from bne.data.images import DataError

    if not on_ray:
        given = {"--ray-address": address, "--gpus-per-run": gpus_per_run}
        for name, value in given.items():
            if value is not None:
                raise DataError(f"{name} is for Ray; add --engine ray, or leave it out.")
        return None
    if parallel > 1:
        raise DataError("--parallel is for --engine local; Ray goes by --gpus-per-run instead.")
    from bne.evaluation.ray_engine import Cluster

    return Cluster(address, gpus_per_run or 1.0)


def check(
    items: "Sequence[Item]", images: "ImageSet", split_file: Path | None, *, allow_gaps: bool
) -> None:
    """Finds what is wrong with any of the runs before the first one starts."""
    from bne.engine.recipe_checks import check_data, check_settings

    for row in {item.row: item for item in items}.values():
        check_settings(row.recipe)
    for item in {(item.row, item.target): item for item in items}.values():
        check_data(item.recipe, images, split_file, allow_gaps=allow_gaps)


def carry_out(
    items: "Sequence[Item]",
    images: "ImageSet",
    split_file: Path | None,
    job: "Job",
    cluster: "Cluster | None",
) -> "list[Outcome]":
    """Carries out the runs; returns those that failed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from bne.evaluation.benchmark import execute
    from bne.evaluation.ray_engine import execute_on_ray

    console = Console(stderr=True, markup=False, highlight=False)
    readable = images
    if cluster is None or cluster.address is None:  # the machines of a cluster do it themselves
        for size in {item.recipe.resize for item in items}:
            prepared = common.prepare(images, job.cache, size, skip_bad=job.skip_bad, show=True)
            readable = prepared.images
    if len(readable) < len(images):
        check(items, readable, split_file, allow_gaps=job.allow_gaps)
    _show_notes(items, readable, split_file)
    outcomes = execute_on_ray(items, job, cluster) if cluster else execute(items, job)
    bars = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    failed = []
    # Ray prints on stdout when a worker dies, and that is for the table.
    with redirect_stdout(sys.stderr), Progress(*bars, console=console, transient=True) as progress:
        task = progress.add_task("Training networks", total=len(items))
        for outcome in outcomes:
            benchmark_output.show_outcome(console, outcome)
            progress.advance(task)
            if outcome.record is None:
                failed.append(outcome)
    return failed


def _show_notes(items: "Sequence[Item]", images: "ImageSet", split_file: Path | None) -> None:
    """Says what one should know of the runs, and how images are held out."""
    from bne.engine.recipe_notes import held_out_way

    recipes = {(item.row, item.target): item.recipe for item in items}.values()
    common.show_notes(recipes, images, split_file)
    for way in dict.fromkeys(held_out_way(recipe, split_file) for recipe in recipes):
        typer.echo(f"Held out for validation: source images, {way}.", err=True)
