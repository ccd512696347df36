"""`bne benchmark`: train and test every method on every target, and print the table."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common, runs, screen
from bne.errors import SettingsError
from bne.training.scores import RULES, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.execute import Outcome
    from bne.benchmark.plan import Item
    from bne.benchmark.records import Record
    from bne.benchmark.tables import Found
    from bne.recipes.files import Experiment
    from bne.training.scores import Rule as OneRule


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
    texts = {k: own if isinstance(own, str) else json.dumps(own) for k, own in unlike.items()}
    options = [
        f"--weights {text}" if key == "weights" and unlike[key] else f"--set {key}={text}"
        for key, text in texts.items()
        if key != "statistics"  # of an earlier version, which no setting brings back
    ]
    many = ", or another --recipe" if len(options) > 1 else ""
    add = f"; add {' '.join(options)}{many}" if options else ""
    return f"{start}; {len(near)} of them differ in {listed(unlike)} alone{add}."


def write_report(
    file: Path, experiment: "Experiment", found: "Found", failed: "Sequence[Outcome]"
) -> None:
    """Writes the page, and says so."""
    from bne.report.benchmark_page import benchmark_page
    from bne.training.files import write_text

    write_text(file.resolve(), benchmark_page(experiment, found, failed))  # a link stays one
    typer.echo(f"{file}: the report.", err=True)


EPILOG = (
    "Example: bne benchmark --data data/pacs --table ablation-pacs-resnet18 --seeds 3"
    " --recipe pacs-resnet18-standard --weights resnet18.safetensors --report pacs.html"
)


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
    parallel: runs.Parallel = 1,
    engine: Annotated[
        runs.Engine,
        typer.Option(
            help="Run on this machine, or on a Ray cluster.",
            rich_help_panel=runs.CARRIED_OUT,
            metavar="ENGINE",
        ),
    ] = runs.Engine.LOCAL,
    ray_address: runs.RayAddress = None,
    gpus_per_run: runs.GpusPerRun = None,
    limit: runs.Limit = None,
    analyse: Annotated[
        bool,
        typer.Option(
            "--analyze/--no-analyze",
            "--analyse/--no-analyse",
            help="Record what trained networks do inside.",
            rich_help_panel=runs.CARRIED_OUT,
        ),
    ] = True,
    keep_models: Annotated[
        bool,
        typer.Option(help="Keep trained networks in --out.", rich_help_panel=runs.CARRIED_OUT),
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
    as_json: common.Json = False,
) -> None:
    """Train and test methods on every target of a benchmark, and print the table.

    Finished runs are recorded and never repeated: the same command goes on where it was stopped,
    and the table, and the page of --report, always show what is recorded. Exits with 1 when a run
    failed.
    """
    from bne.benchmark.execute import Job
    from bne.benchmark.plan import check_runs, choose, plan
    from bne.benchmark.records import how_many_undone, outdated, read
    from bne.benchmark.tables import find_records
    from bne.data.sources import open_images
    from bne.data.splits import check_rows, official_split
    from bne.words import counted

    cluster = runs.choose_cluster(engine is runs.Engine.RAY, ray_address, gpus_per_run, parallel)
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
        return runs.carry_out_plan(plan_file, job, cluster, weights, limit, dry_run, as_json)
    images = open_images(data) if data else None
    split_file = official_split(data) if data else None
    recorded = dict.fromkeys(tuple(record.settings["target"]) for record in known)
    recorded.pop((), None)  # bne tune trains without a target too
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
        split_file=split_file,
        records=known,
    )
    left = [item for item, record in find_records(items, known) if record is None][:limit]
    if old := outdated(known, left):
        typer.echo(
            f"{len(old)} of the runs to do are recorded with statistics or averages made by an "
            "earlier version: these records are old and are not shown.",
            err=True,
        )
    seconds = runs.time_for(left, known, parallel, cluster)
    inputs = check_runs(left, images, split_file, allow_gaps=allow_gaps) if images else []
    if images and split_file and any(one.recipe.validation == "official" for one in inputs):
        check_rows(images, split_file)
    if dry_run:
        return runs.show_plan(items, left, seconds, as_json)
    if report:
        common.check_file(report, "--report")
    if data and left:
        common.check_folder(out, data)
        common.check_writable(file, "--records")
    failed: list[Outcome] = []
    if data and images:
        typer.echo(runs.summary(items, left, seconds), err=True)
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
        failed = runs.carry_out(left, inputs, images, split_file, job, cluster, known)
    rules = [one for one in RULES if rule in (Rule.ALL, one)]
    found = find_records(items, read(file))
    if known and not (data or any(record for _, record in found)):
        raise SettingsError(explain_absence(file, known, items))
    shown = {record.materials.get("images") for _, record in found if record}
    others = [one for one in known if one.materials.get("images") not in (*shown, None)]
    if others := [one for one in others if any(i.identity.may_be(one.identity) for i in items)]:
        typer.echo(
            f"{counted(len(others), 'recorded run')} of other images left out: accuracies on "
            "different images are not mixed. --data says which are meant.",
            err=True,
        )
    show_table(experiment, found, rules, output.value, as_json, failed)
    made = [record for _, record in found if record]
    if images and (note := how_many_undone(made, len(images.classes))):
        typer.echo(f"Note: {note}", err=True)
    if report:
        write_report(report, experiment, found, failed)
    if failed:
        raise typer.Exit(1)
    return None
