"""`bne benchmark`: train and test every method on every target, and print the table."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import benchmark_output, benchmark_runs, common

if TYPE_CHECKING:
    from bne.evaluation.runs import Outcome

EPILOG = (
    "Example: bne benchmark --data data/pacs --table ablation-pacs-resnet18 --seeds 3"
    " --recipe pacs-resnet18-standard --weights resnet18.safetensors --report pacs.html"
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
    skip_bad: common.SkipBad = False,
    allow_gaps: common.AllowGaps = False,
    rule: Annotated[
        Rule,
        typer.Option(help="Which epoch's network is shown; the oracle is chosen on the target."),
    ] = Rule.ALL,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Also write a page for people, of what is recorded: FILE.html.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="Of the table.")] = Format.TERMINAL,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train and test methods on every target of a benchmark, and print the table.

    Finished runs are recorded and never repeated: the same command goes on where it was stopped,
    and the table, and the page of --report, always show what is recorded. Exits with 1 when a run
    failed.
    """
    from bne.data.sources import open_images
    from bne.engine.recipe_checks import official_split
    from bne.evaluation.experiments import choose
    from bne.evaluation.plan import estimate, official_by_records, plan
    from bne.evaluation.records import outdated, read
    from bne.evaluation.runs import Job
    from bne.evaluation.tables import RULES, find_records

    cluster = benchmark_runs.choose_cluster(
        engine is Engine.RAY, ray_address, gpus_per_run, parallel
    )
    file = records or out / "records.jsonl"
    known = read(file)
    images = open_images(data) if data else None
    split_file = official_split(images, data) if data and images else None
    recorded = dict.fromkeys(tuple(record.settings["target"]) for record in known)
    experiment = choose(
        table=table,
        recipe=recipe,
        benchmark=benchmark,
        methods=common.parse_names(methods) if methods else (),
        rows=rows or (),
        targets=common.parse_names(targets, images.domains if images else ()) if targets else (),
        held_out=[(domain,) for domain in images.domains] if images else list(recorded),
    )
    items = plan(
        experiment,
        seeds,
        common.parse_settings(settings or []),
        weights=weights,
        images=images,
        official=split_file is not None if images else official_by_records(experiment, known),
    )
    left = [item for item, record in find_records(items, known) if record is None][:limit]
    if old := outdated(known, left):
        typer.echo(
            f"{len(old)} of the runs to do are recorded with statistics measured by an earlier "
            "version, on batches of one class: these records are old and are not shown.",
            err=True,
        )
    seconds = None if cluster else estimate(left, known)  # who knows how large a cluster is
    seconds = None if seconds is None else seconds / min(parallel, len(left) or 1)
    if images:
        benchmark_runs.check(left, images, split_file, allow_gaps=allow_gaps)
    if dry_run:
        return benchmark_output.show_plan(items, left, seconds, as_json)
    if report:
        benchmark_output.check_report(report)
    if data and left:
        common.check_folder(out, data)
        common.check_writable(file, "--records")
    failed: list[Outcome] = []
    if data and images:
        typer.echo(benchmark_output.summary(items, left, seconds), err=True)
        # What auto is, a cluster says itself.
        place = device if cluster else common.choose_device(device)
        job = Job(
            data,
            cache,
            out,
            file,
            place,
            parallel,
            analyse,
            keep_models,
            skip_bad=skip_bad,
            allow_gaps=allow_gaps,
        )
        failed = benchmark_runs.carry_out(left, images, split_file, job, cluster)
    rules = [one for one in RULES if rule in (Rule.ALL, one)]
    found = find_records(items, read(file))
    benchmark_output.show_table(experiment, found, rules, output.value, as_json, failed)
    if report:
        benchmark_output.write_report(report, experiment, found, failed)
    if failed:
        raise typer.Exit(1)
    return None
