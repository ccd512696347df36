"""`bne benchmark`: train and test every method on every target, and print the table."""

import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common, screen
from bne.cli.progress import Phase, progress
from bne.errors import SettingsError
from bne.training.scores import RULES, sentence
from bne.words import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from bne.benchmark.execute import Job, Outcome
    from bne.benchmark.plan import Item
    from bne.benchmark.ray import Cluster
    from bne.benchmark.records import Record
    from bne.benchmark.tables import Found
    from bne.data.images import ImageSet
    from bne.recipes.files import Experiment
    from bne.recipes.inputs import Inputs
    from bne.training.scores import Rule as OneRule


def summary(items: "Sequence[Item]", left: "Sequence[Item]", seconds: float | None) -> str:
    """How much there is to do, in a sentence.

    Args:
        items: of the whole plan.
        left: those to run now.
        seconds: that they may take, if it is known.
    """
    count = "1 run" if len(items) == 1 else f"{len(items)} runs"
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


def show_table(
    experiment: "Experiment",
    found: "Found",
    rules: "Sequence[OneRule]",
    form: str,
    as_json: bool,
    failed: "Sequence[Outcome]",
) -> None:
    """Prints the table and, for people and programs, what to expect at a new domain.

    Args:
        experiment: that it is of.
        found: its runs, with their records.
        rules: by which the tested epoch is chosen.
        form: "terminal", "md", "latex", "csv" or "html".
        as_json: print JSON instead.
        failed: runs, told of in JSON.
    """
    from bne.benchmark import render
    from bne.benchmark.expectation import expectations
    from bne.benchmark.render import result_grid, result_tables

    tables = result_tables(experiment, found, rules)
    expected = [] if experiment.analysis else expectations(found, rules)
    if as_json:
        problems = [{"run": str(outcome.item), "problem": outcome.problem} for outcome in failed]
        told = [one.to_dict() for one in expected]
        report = {"figures": render.figures(tables), "expected": told, "failed": problems}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    grid = result_grid(experiment, found, rules)
    if form == "terminal":
        latent = [render.one_name(grid)] if experiment.analysis else []
        for one in latent or map(render.by_target, tables):
            screen.show_table(one.head, one.rows, one.title)
        notes = (note for note in grid.notes if experiment.analysis or note != render.BRACKETS)
        screen.show_text(" ".join(notes), *expected)
        return
    texts = {
        "md": lambda: render.markdown(grid),
        # A paper's table has one rule.
        "latex": lambda: render.latex(result_grid(experiment, found, rules[:1], brackets=False)),
        "html": lambda: render.html(grid),
        "csv": lambda: render.comma_separated(tables),
    }
    typer.echo(texts[form](), nl=False)


def explain_absence(file: Path, records: "Sequence[Record]", items: "Sequence[Item]") -> str:
    """Why none of the records is of a plan, and what to add to see the nearest.

    Args:
        file: file of the records.
        records: all of them, at least one.
        items: of the plan, none of which is among them.
    """
    from bne.benchmark.records import nearest
    from bne.words import counted, listed

    near, unlike = nearest(records, items)
    start = f"{file} has {counted(len(records), 'run')}, none with these settings"
    if not near:
        methods = listed(sorted({str(record.settings["method"]) for record in records}))
        return f"{start}: they are of {methods}; name such a method (--methods)."
    if not unlike:
        return f"{start}: {len(near)} have other targets, seeds, weights or images."
    options = {
        key: f"--weights {value}" if key == "weights" and value else f"--set {key}={_yaml(value)}"
        for key, value in unlike.items()
        if key != "statistics"  # of an earlier version, which no setting brings back
    }
    many = ", or another --recipe" if len(options) > 1 else ""
    add = f"; add {' '.join(options.values())}{many}" if options else ""
    return f"{start}; {len(near)} of them differ in {listed(unlike)} alone{add}."


def _yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def check_report(file: Path) -> None:
    """Finds what would keep the page from being written, before anything is run."""
    from bne.errors import DataError

    if file.exists() and not file.is_file():  # a device would be replaced
        kind = "a folder" if file.is_dir() else "no file"
        raise DataError(f"--report {file} is {kind}; name a file, report.html for example.")
    folder = file.resolve().parent  # where a new file takes the old one's place
    common.check_writable(folder, "--report")
    folder.mkdir(parents=True, exist_ok=True)


def write_report(
    file: Path, experiment: "Experiment", found: "Found", failed: "Sequence[Outcome]"
) -> None:
    """Writes the page, and says so."""
    from bne.report.benchmark_page import benchmark_page
    from bne.training.files import write_text

    write_text(file.resolve(), benchmark_page(experiment, found, failed))  # a link stays one
    typer.echo(f"{file}: the report.", err=True)


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


def check(
    items: "Sequence[Item]", images: "ImageSet", split_file: Path | None, *, allow_gaps: bool
) -> "list[Inputs]":
    """Finds what is wrong with any of the runs before the first one starts."""
    from bne.recipes.checks import check_settings
    from bne.recipes.inputs import Inputs

    for row in {item.row: item for item in items}.values():
        check_settings(row.recipe)
    return [
        Inputs.of(item.recipe, images, split_file, allow_gaps=allow_gaps)
        for item in {(item.row, item.target): item for item in items}.values()
    ]


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
    from bne.benchmark.ray import execute_on_ray
    from bne.training.listeners import ShareDone

    console = Console(stderr=True, markup=False, highlight=False)
    readable = images
    if cluster is None or cluster.address is None:  # the machines of a cluster do it themselves
        for way in dict.fromkeys(one.way for one in inputs):
            prepared = common.prepare(
                images, job.data, job.cache, way, skip_bad=job.skip_bad, show=True
            )
            readable = prepared.images
    if len(readable) < len(images):
        inputs = check(items, readable, split_file, allow_gaps=job.allow_gaps)
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
    from bne.benchmark.plan import estimate
    from bne.benchmark.plan_file import for_this_machine, read_plan
    from bne.benchmark.records import read
    from bne.benchmark.tables import find_records
    from bne.data.sources import open_images
    from bne.data.splits import official_split

    planned, without = read_plan(file)
    images, split_file = open_images(job.data).without(without), official_split(job.data)
    items, known = for_this_machine(planned, images, weights), read(job.records)
    left = [item for item, record in find_records(items, known) if record is None][:limit]
    seconds = estimate(left, known)
    inputs = check(left, images, split_file, allow_gaps=job.allow_gaps)
    if dry_run:
        return show_plan(items, left, seconds, as_json)
    common.check_folder(job.out, job.data)
    common.check_writable(job.records, "--records")
    typer.echo(summary(items, left, seconds), err=True)
    job = replace(job, without=without)
    failed = carry_out(left, inputs, images, split_file, job, cluster, known) if left else []
    if as_json:
        problems = [{"run": str(outcome.item), "problem": outcome.problem} for outcome in failed]
        typer.echo(json.dumps({"runs": len(items), "failed": problems}, indent=2))
    else:
        typer.echo(f"{job.records}: {len(left) - len(failed)} of {len(left)} runs added.")
    if failed:
        raise typer.Exit(1)
    return None


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
        typer.Option(
            help="Joined by commas.",
            show_default="deepall,bne, or the table's rows",
            metavar="NAMES",
        ),
    ] = None,
    seeds: common.Seeds = 1,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--row",
            help="Only this row; may be repeated.",
            show_default=False,
            rich_help_panel="Which runs",
            metavar="ROW",
        ),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            help="Only these, joined by commas; domains held out together joined by a +.",
            show_default=False,
            metavar="NAMES",
        ),
    ] = None,
    weights: common.Weights = None,
    group: common.Group = None,
    settings: common.Settings = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs' own folders.")] = Path(
        "runs/benchmark"
    ),
    records: Annotated[
        Path | None,
        typer.Option(
            help="The file that finished runs are added to.",
            show_default="records.jsonl in --out",
            rich_help_panel="The table",
            metavar="FILE",
        ),
    ] = None,
    device: common.Device = "auto",
    parallel: Parallel = 1,
    engine: Annotated[
        Engine,
        typer.Option(
            help="Run on this machine, or on a Ray cluster.",
            rich_help_panel=CARRIED_OUT,
            metavar="ENGINE",
        ),
    ] = Engine.LOCAL,
    ray_address: RayAddress = None,
    gpus_per_run: GpusPerRun = None,
    limit: Limit = None,
    analyse: Annotated[
        bool,
        typer.Option(
            "--analyze/--no-analyze",
            "--analyse/--no-analyse",
            help="Record what trained networks do inside.",
            rich_help_panel=CARRIED_OUT,
        ),
    ] = True,
    keep_models: Annotated[
        bool,
        typer.Option(help="Keep trained networks in --out.", rich_help_panel=CARRIED_OUT),
    ] = False,
    cache: common.Cache = None,
    skip_bad: common.SkipBad = False,
    allow_gaps: common.AllowGaps = False,
    rule: Annotated[
        Rule,
        typer.Option(
            help=f"Rule that chooses the epoch. {' '.join(map(sentence, RULES))}",
            rich_help_panel="The table",
            metavar="RULE",
        ),
    ] = Rule.ALL,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Also write a page for people, of what is recorded: FILE.html.",
            show_default=False,
            rich_help_panel="The table",
            metavar="FILE",
        ),
    ] = None,
    output: Annotated[
        Format,
        typer.Option(
            "--format", help="Of the table.", rich_help_panel="The table", metavar="FORMAT"
        ),
    ] = Format.TERMINAL,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            help="Carry out the runs that bne tune --plan wrote, and print no table.",
            show_default=False,
            rich_help_panel="Which runs",
            metavar="FILE",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print the plan, and stop.", rich_help_panel=common.STOPPING
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train and test methods on every target of a benchmark, and print the table.

    Finished runs are recorded and never repeated: the same command goes on where it was stopped,
    and the table, and the page of --report, always show what is recorded. Exits with 1 when a run
    failed.
    """
    from bne.benchmark.execute import Job
    from bne.benchmark.plan import choose, estimate, official_by_records, plan
    from bne.benchmark.records import outdated, read
    from bne.benchmark.tables import find_records
    from bne.data.sources import open_images
    from bne.data.splits import check_rows, official_split

    cluster = choose_cluster(engine is Engine.RAY, ray_address, gpus_per_run, parallel)
    file = records or out / "records.jsonl"
    known = read(file)
    if plan_file:
        if table or recipe or benchmark or methods or rows or targets or group or settings:
            raise SettingsError("--plan has runs with all their settings; leave other ones out.")
        if data is None:
            raise typer.BadParameter("say where the images are.", param_hint="--data")
        place = device if cluster else common.choose_device(device)
        how = (analyse, keep_models, skip_bad, allow_gaps)
        job = Job(data, cache, out, file, place, parallel, *how)
        return carry_out_plan(plan_file, job, cluster, weights, limit, dry_run, as_json)
    images = open_images(data) if data else None
    split_file = official_split(data) if data else None
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
        {**common.parse_settings(settings or []), **({"group": group} if group else {})},
        weights=weights,
        images=images,
        official=(split_file is not None or images.is_split)
        if images
        else official_by_records(experiment, known),
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
    inputs = check(left, images, split_file, allow_gaps=allow_gaps) if images else []
    if images and split_file and any(one.recipe.validation == "official" for one in inputs):
        check_rows(images, split_file)
    if dry_run:
        return show_plan(items, left, seconds, as_json)
    if report:
        check_report(report)
    if data and left:
        common.check_folder(out, data)
        common.check_writable(file, "--records")
    failed: list[Outcome] = []
    if data and images:
        typer.echo(summary(items, left, seconds), err=True)
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
        failed = carry_out(left, inputs, images, split_file, job, cluster, known) if left else []
    rules = [one for one in RULES if rule in (Rule.ALL, one)]
    found = find_records(items, read(file))
    if known and not (data or any(record for _, record in found)):
        raise SettingsError(explain_absence(file, known, items))
    show_table(experiment, found, rules, output.value, as_json, failed)
    if report:
        write_report(report, experiment, found, failed)
    if failed:
        raise typer.Exit(1)
    return None
