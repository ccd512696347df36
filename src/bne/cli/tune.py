"""`bne tune`: choose settings for an unseen domain by leaving known ones out in turn."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common, screen
from bne.cli.runs import Engine, GpusPerRun, Limit, Parallel, RayAddress, choose_cluster
from bne.words import counted, duration, listed

if TYPE_CHECKING:
    from bne.api import TunedRun
    from bne.tuning.setup import Setup

SHOWN = 10  # settings in the table

EPILOG = "Example: bne tune --data data/pacs --target sketch --recipe pacs-resnet18-standard"


def summary(setup: "Setup") -> str:
    """How much there will be to do, in sentences."""
    runs, seconds = setup.expected()
    time = "for how long is not known yet: --limit 1 measures it"
    if seconds is not None:
        time = f"about {duration(seconds)} in all"
    budget = setup.start.budget
    return (
        f"{counted(budget.settings, 'setting')}, about {counted(runs, 'run')} less those that are "
        f"recorded, {time}."
    )


def show_dry(setup: "Setup", as_json: bool) -> None:
    """Prints what would be searched, and how."""
    folds = {one.name: [fold.domain for fold in one.folds] for one in setup.questions}
    if as_json:
        runs, seconds = setup.expected()
        space = {k: own.to_plain() for k, own in setup.start.space.dimensions.items()}
        shares = list(setup.start.space.shares)
        about = {"runs": runs, "seconds": seconds, "left_out": folds}
        typer.echo(json.dumps({**about, "space": {**space, "lean": shares}}, indent=2))
        return
    typer.echo(str(setup.start.space))
    for one in setup.questions:
        how = "held-out images of" if one.by_validation else "left out in turn:"
        typer.echo(f"For {one.name}: {how} {', '.join(folds[one.name])}. {one.note}".rstrip())
    typer.echo(summary(setup))


def show(run: "TunedRun", as_json: bool) -> None:
    """Prints the settings with their standard errors, and how sure the choice is."""
    if as_json:
        typer.echo(json.dumps([one.to_dict() for one in run.found], indent=2, ensure_ascii=False))
        return
    from bne.report.tune_page import grid

    for one in run.found:
        if one.choice is not None:
            head, rows = grid(one)
            title = f"Settings for {one.question.name}, accuracy in percent by domain"
            screen.show_table(head, rows[:SHOWN], title)
        screen.show_text(one.how_sure)
        for settings, problem in one.problems.items():
            typer.echo(f"{settings} failed: {problem}", err=True)


def write_plan(setup: "Setup", file: Path) -> None:
    """Writes the runs that the search waits for, and says what to do with them."""
    from bne.benchmark import plan_file

    common.check_file(file, "--plan")
    left = setup.planned()
    plan_file.write_plan(file, left, setup.job.without)
    if left:
        typer.echo(
            f"{file}: {counted(len(left), 'run')}. Carry them out by bne benchmark --plan {file} "
            f"--data … --records …, then give this command again with these --records."
        )
    else:
        typer.echo(f"{file}: no run is left; the same command without --plan shows the outcome.")


def tune(
    data: common.Data,
    target: Annotated[
        str | None,
        typer.Option(
            help="Domain set aside, of which no image is opened; several joined by commas.",
            show_default="none: settings for a domain that nobody has",
        ),
    ] = None,
    every_target: Annotated[
        bool,
        typer.Option("--every-target", help="Set each domain aside in turn, as in a benchmark."),
    ] = False,
    recipe: Annotated[
        str,
        typer.Option(help="Settings to start from: one of bne train --list-recipes, or a file."),
    ] = "default",
    space: Annotated[
        Path | None,
        typer.Option(
            help="Lists and ranges of settings, or a list of whole settings, FILE.yaml.",
            show_default="one around the recipe",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="How many settings are tried, unless --space lists them.")
    ] = 16,
    lengths: Annotated[
        int,
        typer.Option(
            min=1,
            max=5,
            help="2 trains all settings for a third of the epochs and about every third in full; "
            "1 trains all in full.",
        ),
    ] = 2,
    finalists: Annotated[
        int, typer.Option(min=1, help="How many of the best settings get more seeds.")
    ] = 3,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Seeds of finalists.")] = 3,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="Optuna's: tpe, gp or random.", show_default="tpe, or random with --every-target"
        ),
    ] = None,
    weights: common.Weights = None,
    group: common.Group = None,
    settings: common.Settings = None,
    out: Annotated[
        Path, typer.Option(help="Folder of study, runs, recipe.yaml and report.html.")
    ] = Path("runs/tune"),
    records: Annotated[
        Path | None,
        typer.Option(
            help="The file that finished runs are added to.", show_default="records.jsonl in --out"
        ),
    ] = None,
    device: common.Device = "auto",
    parallel: Parallel = 1,
    engine: Annotated[
        Engine, typer.Option(help="Run on this machine, or on a Ray cluster.")
    ] = Engine.LOCAL,
    ray_address: RayAddress = None,
    gpus_per_run: GpusPerRun = None,
    limit: Limit = None,
    cache: common.Cache = None,
    skip_bad: common.SkipBad = False,
    allow_gaps: common.AllowGaps = False,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Write the runs that are wanted next to FILE.json, for bne benchmark --plan on "
            "any machine, and stop.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the space and the time it takes, and stop.")
    ] = False,
    as_json: common.Json = False,
) -> None:
    """Choose settings for an unseen domain by leaving known domains out in turn.

    Held-out images of the known domains cannot tell which settings suit a new one. So each known
    domain plays the unseen one in turn. The settings chosen are written to recipe.yaml in --out,
    which bne train --recipe takes. Runs are recorded and never repeated: the same command goes on
    where it was stopped, even by kill -9.
    """
    from bne import api
    from bne.report.tune_page import tune_page
    from bne.training.files import write_text
    from bne.tuning.search import Budget
    from bne.tuning.setup import set_up

    cluster = choose_cluster(engine is Engine.RAY, ray_address, gpus_per_run, parallel)
    flags = {"weights": weights, "group": group}
    given = {key: value for key, value in flags.items() if value is not None}
    setup = set_up(
        data,
        common.parse_names(target) if target else (),
        every_target=every_target,
        recipe=recipe,
        space=space,
        settings={**common.parse_settings(settings or []), **given},
        budget=Budget(trials, lengths, finalists, seeds, sampler),
        out=out,
        records=records,
        cache=cache,
        device=device,
        on_cluster=cluster is not None,
        parallel=parallel,
        skip_bad=skip_bad,
        allow_gaps=allow_gaps,
    )
    if dry_run:
        return show_dry(setup, as_json)
    if plan:
        return write_plan(setup, plan)
    typer.echo(summary(setup), err=True)
    for one in setup.questions:
        if one.note:
            typer.echo(f"Note: {one.note}", err=True)
    run = api.carry_out_tuning(setup, cluster=cluster, limit=limit, progress=True)
    write_text(out / "report.html", tune_page(run.found))
    show(run, as_json)
    if run.note:
        typer.echo(f"Note: {run.note}", err=True)
    written = [*(file.name for file in run.recipes), "report.html", "tune.json", "the study"]
    typer.echo(f"{out}: {listed(written)}.", err=True)
    if any(one.finished and one.choice is None for one in run.found):
        raise typer.Exit(1)
    return None
