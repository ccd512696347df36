"""Runs that `bne benchmark` and `bne tune` plan: options, checks, and carrying them out."""

import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common
from bne.cli.progress import Phase, progress
from bne.words import counted, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from bne.benchmark.execute import Job, Outcome
    from bne.benchmark.plan import Item
    from bne.benchmark.ray import Cluster
    from bne.benchmark.records import Record
    from bne.data.images import ImageSet
    from bne.recipes.inputs import Inputs


class Engine(StrEnum):
    """What carries the runs out."""

    LOCAL = "local"
    RAY = "ray"


CARRIED_OUT = "How they are carried out"
Parallel = Annotated[
    int,
    typer.Option(
        min=1, help="How many runs share the device at a time.", rich_help_panel=CARRIED_OUT
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        help="Of the Ray cluster: host:port, or auto for the one this machine is part of.",
        show_default="a local one, started for these runs",
        rich_help_panel=CARRIED_OUT,
        metavar="ADDRESS",
    ),
]
GpusPerRun = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=1,
        help="On Ray, the share of a GPU that a run takes: 0.25 for four on one.",
        show_default="1",
        rich_help_panel=CARRIED_OUT,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1, help="Run at most so many now.", show_default=False, rich_help_panel="Which runs"
    ),
]


def choose_cluster(
    on_ray: bool, address: str | None, gpus_per_run: float | None, parallel: int
) -> "Cluster | None":
    """The Ray cluster, if one is wanted."""
    from bne.errors import DataError

    if not on_ray:
        given = {"--ray-address": address, "--gpus-per-run": gpus_per_run}
        for name, value in given.items():
            if value is not None:
                raise DataError(f"{name} is for Ray; add --engine ray, or leave it out.")
        return None
    if parallel > 1:
        raise DataError("--parallel is for --engine local; Ray goes by --gpus-per-run instead.")
    from bne.benchmark.ray import Cluster

    return Cluster(address, gpus_per_run or 1.0)


def summary(items: "Sequence[Item]", left: "Sequence[Item]", seconds: float | None) -> str:
    """How much there is to do, in a sentence.

    Args:
        items: of the whole plan.
        left: those to run now.
        seconds: that they may take, if it is known.
    """
    count = counted(len(items), "run")
    if not left:
        return f"{count}, nothing to do."
    time = "for how long is not known yet" if seconds is None else f"about {duration(seconds)}"
    return f"{count}, {len(left)} to do, {time}."


def show_plan(
    items: "Sequence[Item]", left: "Sequence[Item]", seconds: float | None, as_json: bool
) -> None:
    """Prints every run that is to do."""
    if as_json:
        runs = [
            {"row": i.row, "target": i.target, "seed": i.recipe.seed, "digest": i.digest}
            for i in left
        ]
        typer.echo(json.dumps({"runs": len(items), "to_do": runs, "seconds": seconds}, indent=2))
        return
    for item in left:
        typer.echo(item)
    typer.echo(summary(items, left, seconds))


def show_outcome(console: "Console", outcome: "Outcome") -> None:
    """Prints how a run ended."""
    from bne.benchmark.tables import accuracy

    if outcome.record is None:
        console.print(f"{outcome.item} failed: {outcome.problem}", style="red", soft_wrap=True)
        return
    record = outcome.record
    tested = record.accuracy["last"]  # nothing, if no domain is held out
    percent = f"{accuracy(record, 'last'):.1f} %" if tested else "done"
    console.print(f"{outcome.item}: {percent} in {duration(record.seconds)}", soft_wrap=True)


def carry_out(
    items: "Sequence[Item]",
    inputs: "list[Inputs]",
    images: "ImageSet",
    split_file: Path | None,
    job: "Job",
    cluster: "Cluster | None",
    known: "Sequence[Record]",
) -> "list[Outcome]":
    """Carries out the runs; returns those that failed. Known records tell how long they take."""
    from rich.console import Console

    from bne.benchmark.execute import execute
    from bne.benchmark.plan import check_runs
    from bne.benchmark.ray import execute_on_ray
    from bne.training.listeners import ShareDone

    if not items:
        return []
    console = Console(stderr=True, markup=False, highlight=False)
    readable = images
    if cluster is None or cluster.address is None:  # the machines of a cluster do it themselves
        for way in dict.fromkeys(one.way for one in inputs):
            prepared = common.prepare(
                images, job.data, job.cache, way, skip_bad=job.skip_bad, show=True
            )
            readable = prepared.images
    if len(readable) < len(images):
        inputs = check_runs(items, readable, split_file, allow_gaps=job.allow_gaps)
    common.show_notes(inputs)
    for held_out in dict.fromkeys(one.split_by for one in inputs):
        typer.echo(f"Held out for validation: source images, {held_out}.", err=True)
    failed = []
    # Ray prints on stdout when a worker dies, and that is for the table.
    with (
        redirect_stdout(sys.stderr),
        progress(*phases(items, known, job.parallel), console=console) as advance,
    ):
        share = 0.0  # of a run that is carried out here, told already

        def listener(item: "Item") -> ShareDone:
            def tell(more: float) -> None:
                nonlocal share
                share += more
                advance(item.row, more)

            return ShareDone(tell)

        here = not cluster and job.parallel == 1
        outcomes = (
            execute_on_ray(items, job, cluster)
            if cluster
            else execute(items, job, listener if here else None)
        )
        for outcome in outcomes:
            advance(outcome.item.row, 1 - share)
            share = 0.0
            show_outcome(console, outcome)
            if outcome.record is None:
                failed.append(outcome)
    return failed


def time_for(
    left: "Sequence[Item]", known: "Sequence[Record]", parallel: int, cluster: "Cluster | None"
) -> float | None:
    """Seconds that runs may take together, if that is known; who knows how large a cluster is."""
    from bne.benchmark.plan import estimate

    seconds = None if cluster else estimate(left, known)
    return None if seconds is None else seconds / min(parallel, len(left) or 1)


def phases(items: "Sequence[Item]", known: "Sequence[Record]", parallel: int) -> "list[Phase]":
    """One per row of the table, with how long a run may take: as records say, or its passes."""
    from bne.benchmark.plan import estimate
    from bne.training.pace import run_cost

    rows: dict[str, list[Item]] = {}
    for item in items:
        rows.setdefault(item.row, []).append(item)
    targets = {domain for item in items for domain in item.recipe.target}
    found = []
    for row, own in rows.items():
        seconds = estimate(own, known)
        recipe = own[0].recipe
        domains = len(recipe.sources) or max(1, len(targets) - len(recipe.target))
        each = None if seconds is None else seconds / len(own) / parallel
        found.append(Phase(row, len(own), "runs", each, run_cost(recipe, domains)))
    return found


def carry_out_plan(
    file: Path,
    job: "Job",
    cluster: "Cluster | None",
    weights: str | None,
    limit: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Carries out the runs of a file, as far as they are not recorded."""
    from bne.benchmark.execute import open_without
    from bne.benchmark.plan import check_runs
    from bne.benchmark.plan_file import for_this_machine, read_plan
    from bne.benchmark.records import read
    from bne.benchmark.tables import find_records
    from bne.data.splits import official_split

    planned, without = read_plan(file)
    images, split_file = open_without(job.data, without), official_split(job.data)
    items, known = for_this_machine(planned, images, weights), read(job.records)
    left = [item for item, record in find_records(items, known) if record is None][:limit]
    seconds = time_for(left, known, job.parallel, cluster)
    inputs = check_runs(left, images, split_file, allow_gaps=job.allow_gaps)
    if dry_run:
        return show_plan(items, left, seconds, as_json)
    common.check_folder(job.out, job.data)
    common.check_writable(job.records, "--records")
    typer.echo(summary(items, left, seconds), err=True)
    job = replace(job, without=without)
    failed = carry_out(left, inputs, images, split_file, job, cluster, known)
    if as_json:
        problems = [{"run": str(outcome.item), "problem": outcome.problem} for outcome in failed]
        typer.echo(json.dumps({"runs": len(items), "failed": problems}, indent=2))
    else:
        typer.echo(f"{job.records}: {len(left) - len(failed)} of {len(left)} runs added.")
    if failed:
        raise typer.Exit(1)
    return None
