"""`bne benchmark`: train and test every method on every target, and print the table."""

import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import benchmark_output, common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.data.images import ImageSet
    from bne.evaluation.plan import Item
    from bne.evaluation.ray_engine import Cluster
    from bne.evaluation.runs import Job, Outcome

EPILOG = (
    "Example: bne benchmark --data data/pacs --table ablation-pacs-resnet18 --seeds 3"
    " --recipe pacs-resnet18-standard --weights resnet18.safetensors"
)


class Engine(StrEnum):
    """What carries the runs out."""

    LOCAL = "local"
    RAY = "ray"


class Rule(StrEnum):
    """Which epoch's network is shown."""

    LAST = "last"
    VALIDATION = "validation"
    ORACLE = "oracle"
    ALL = "all"


class Format(StrEnum):
    """How the table is printed."""

    TERMINAL = "terminal"
    MD = "md"
    LATEX = "latex"
    CSV = "csv"
    HTML = "html"


def benchmark(
    data: Annotated[
        Path | None,
        typer.Option(
            help=f"{common.SOURCES} Without it nothing is run: the table shows what is recorded.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="A table of the paper, to run and to show beside ours."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Settings: one of bne train --list-recipes, or a .yaml file.",
            show_default="the table's own, or default",
        ),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(
            help="Whose targets are held out: pacs, office31, office_caltech, ...",
            show_default="the table's or recipe's, or each domain of the data",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Joined by commas.", show_default="deepall,bne, or the table's rows"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method on each target.")] = 1,
    rows: Annotated[
        list[str] | None,
        typer.Option("--row", help="Only this row; may be repeated.", show_default=False),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            help="Only these, joined by commas; domains held out together joined by a +.",
            show_default=False,
        ),
    ] = None,
    weights: common.Weights = None,
    settings: common.Settings = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs' own folders.")] = Path(
        "runs/benchmark"
    ),
    records: Annotated[
        Path | None,
        typer.Option(
            help="The file that finished runs are added to.", show_default="records.jsonl in --out"
        ),
    ] = None,
    device: common.Device = "auto",
    parallel: Annotated[
        int, typer.Option(min=1, help="How many runs share the device at a time.")
    ] = 1,
    engine: Annotated[
        Engine, typer.Option(help="Run on this machine, or on a Ray cluster.")
    ] = Engine.LOCAL,
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Of the Ray cluster: host:port, or auto for the one this machine is part of.",
            show_default="a local one, started for these runs",
        ),
    ] = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1,
            help="On Ray, the share of a GPU that a run takes: 0.25 for four on one.",
            show_default="1",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Run at most so many now.", show_default=False)
    ] = None,
    analyse: Annotated[bool, typer.Option(help="Record what trained networks do inside.")] = True,
    keep_models: Annotated[bool, typer.Option(help="Keep trained networks in --out.")] = False,
    cache: common.Cache = None,
    rule: Annotated[
        Rule,
        typer.Option(help="Which epoch's network is shown; the oracle is chosen on the target."),
    ] = Rule.ALL,
    output: Annotated[Format, typer.Option("--format", help="Of the table.")] = Format.TERMINAL,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train and test methods on every target of a benchmark, and print the table.

    Finished runs are recorded and never repeated: the same command goes on where it was stopped,
    and the table always shows what is recorded. Exits with 1 when a run failed.
    """
    from bne.data.sources import open_images
    from bne.evaluation.experiments import choose
    from bne.evaluation.plan import estimate, plan
    from bne.evaluation.records import read
    from bne.evaluation.runs import Job
    from bne.evaluation.tables import RULES, find_records

    cluster = _cluster(engine, ray_address, gpus_per_run, parallel)
    images = open_images(data) if data else None
    experiment = choose(
        table=table,
        recipe=recipe,
        benchmark=benchmark,
        methods=methods.split(",") if methods else (),
        rows=rows or (),
        targets=targets.split(",") if targets else (),
        domains=images.domains if images else (),
    )
    items = plan(
        experiment, seeds, common.parse_settings(settings or []), weights=weights, images=images
    )
    file = records or out / "records.jsonl"
    known = read(file)
    left = [item for item, record in find_records(items, known) if record is None][:limit]
    seconds = None if cluster else estimate(left, known)  # who knows how large a cluster is
    seconds = None if seconds is None else seconds / min(parallel, len(left) or 1)
    if dry_run:
        return benchmark_output.show_plan(items, left, seconds, as_json)
    failed: list[Outcome] = []
    if data and images:
        typer.echo(benchmark_output.summary(items, left, seconds), err=True)
        _check(left, images, data)
        # What auto is, a cluster says itself.
        place = device if cluster else common.choose_device(device)
        job = Job(data, cache, out, file, place, parallel, analyse, keep_models)
        failed = _run(left, images, job, cluster)
    rules = [one for one in RULES if rule in (Rule.ALL, one)]
    found = find_records(items, read(file))
    benchmark_output.show_table(experiment, found, rules, output.value, as_json, failed)
    if failed:
        raise typer.Exit(1)
    return None


def _cluster(
    engine: Engine, address: str | None, gpus_per_run: float | None, parallel: int
) -> "Cluster | None":
    """The Ray cluster, if one is wanted."""
    from bne.data.images import DataError

    if engine is Engine.LOCAL:
        given = {"--ray-address": address, "--gpus-per-run": gpus_per_run}
        for name, value in given.items():
            if value is not None:
                raise DataError(f"{name} is for Ray; add --engine ray, or leave it out.")
        return None
    if parallel > 1:
        raise DataError("--parallel is for --engine local; Ray goes by --gpus-per-run instead.")
    from bne.evaluation.ray_engine import Cluster

    return Cluster(address, gpus_per_run or 1.0)


def _check(items: "Sequence[Item]", images: "ImageSet", data: Path) -> None:
    """Finds what is wrong with any of the runs before the first one starts."""
    from bne.engine.recipe_checks import check_data, check_settings, official_split

    split_file = official_split(images, data)
    for row in {item.row: item for item in items}.values():
        check_settings(row.recipe)
    for item in {(item.row, item.target): item for item in items}.values():
        check_data(item.recipe, images, split_file)


def _run(
    items: "Sequence[Item]", images: "ImageSet", job: "Job", cluster: "Cluster | None"
) -> "list[Outcome]":
    """Carries out the runs; returns those that failed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from bne.evaluation.benchmark import execute
    from bne.evaluation.ray_engine import execute_on_ray

    console = Console(stderr=True, markup=False, highlight=False)
    if cluster is None or cluster.address is None:  # the machines of a cluster do it themselves
        for size in {item.recipe.resize for item in items}:
            common.prepare(images, job.cache, size, skip_bad=False, show=True)
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
