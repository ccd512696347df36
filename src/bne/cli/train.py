"""`bne train`: train a network on some domains, test it on another, or train one to use."""

import json
import os
from pathlib import Path
from shlex import quote
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common, screen

if TYPE_CHECKING:
    from bne.api import TrainedRun
    from bne.recipes.schema import Recipe
    from bne.training.events import Listener
    from bne.training.folder import Result

MANY_DOMAINS = 8  # beyond these the table has the worst alone; the run's page has all


def show_methods(as_json: bool) -> None:
    """Prints all methods, a line each; as JSON with their options."""
    from bne.methods import entries

    methods = {
        entry.name: {"options": entry.options, "sentence": entry.sentence} for entry in entries()
    }
    if as_json:
        typer.echo(json.dumps(methods, indent=2, default=str))
        return
    width = max(map(len, methods))
    for entry in entries():
        left = screen.width() - width - 2
        typer.echo(f"{entry.name:{width}}  {shorten(entry.summary, left, placeholder=' …')}")
    screen.show_text("Options, and what the paper says: bne train --list-methods --json.")


def show_recipes(as_json: bool) -> None:
    """Prints the recipes that come with the package."""
    from bne.recipes.files import load_experiment, names

    titles = {name: load_experiment(name).title for name in names()}
    if as_json:
        typer.echo(json.dumps(titles, indent=2))
        return
    width = max(map(len, titles))
    for name, title in titles.items():
        typer.echo(f"{name:{width}}  {title}")


def show_recipe(recipe: "Recipe") -> None:
    """Prints a recipe as a file that gives the same again."""
    from bne.recipes.files import dump
    from bne.training.files import plain

    typer.echo(dump(plain(recipe.to_dict())), nl=False)


def show_run(run: "TrainedRun", data: Path, as_json: bool) -> None:
    """Prints the accuracies under every rule, where the network is, if it is, and what to do next.

    They are those on the target or, without one, on held-out images of the domains trained on.
    """
    from bne.training.events import ACCURACY, BALANCED, LEADS
    from bne.training.model_folder import TENSORS
    from bne.training.scores import LABELS, RULES, UNTESTED, choose, leading, pooled, sentence
    from bne.words import duration, listed

    result, model = run.result, run.folder / "model"
    there = (model / TENSORS).is_file()
    if as_json:
        about = {"model": str(model) if there else None}
        if result.target_images == "none":
            about["note"] = UNTESTED
        typer.echo(json.dumps({**about, **result.to_dict()}, indent=2))
        return
    from rich.console import Console
    from rich.table import Column, Table

    tested = "the target" if result.target_images != "none" else "held-out images"
    found = choose(result.epochs)
    rules = [rule for rule in RULES if rule in found]
    tests = found["last"].target or found["last"].validation
    both = ["together"] if len(tests) > 1 else []
    first = leading(tests.values())
    measures = sorted((ACCURACY, BALANCED), key=lambda measure: measure != first)
    many = len(tests) > MANY_DOMAINS
    columns = ["worst domain"] if many else list(tests)
    heads = [Column(name, overflow="fold") for name in ("epoch", "measure", *columns, *both)]
    table = Table(*heads, title=f"Accuracy on {tested}, in percent")
    for rule in rules:
        scores = found[rule].target or found[rule].validation
        shown = [*scores.values(), *([pooled(scores.values())] if both else [])]
        for measure in measures:
            figures = [score.by(measure) for score in shown]
            known = [figure for figure in figures if figure is not None]
            if not known:  # runs of earlier versions have no balanced accuracy
                continue
            texts = [f"{figure:.1f}" for figure in known]
            if many:
                least, worst = min(zip(known, scores, strict=False))
                texts[:-1] = [f"{least:.1f}, {worst}"]
            name = LABELS[rule] if measure == measures[0] else ""
            table.add_row(name, "accuracy" if measure == ACCURACY else "balanced", *texts)
    console = Console(markup=False, highlight=False)
    console.print(table)
    console.print(" ".join(map(sentence, rules)))
    if first == BALANCED:
        uneven = [domain for domain, score in tests.items() if score.unbalanced]
        console.print(LEADS.format(listed(uneven)), soft_wrap=True)
    if result.leaning:
        console.print(_leaning(result))
    if result.target_images == "none":
        console.print(UNTESTED, soft_wrap=True)
    if result.target_images == "unlabelled":
        console.print("The target's images were part of training, without their labels.")
    if there:
        console.print(f"The network of the last epoch is in {model}", soft_wrap=True)
        folder, images = quote(str(run.folder)), quote(str(data))
        recipe = quote(str(run.folder / "recipe.yaml"))
        methods = ",".join(dict.fromkeys(["deepall", result.recipe["method"]]))
        untested = result.target_images == "none"
        lines = [
            f"Finished in {duration(result.seconds)}. Next:",
            *([f"bne benchmark --data {images} --recipe {recipe} --methods {methods}"] * untested),
            f"bne analyze {folder} --data {images}",
            f"bne predict {folder} IMAGES",
        ]
        console.print("\n  ".join(lines), soft_wrap=True)
    else:
        console.print(
            f"The network is no longer in {model}; to have it again, remove "
            f"{run.folder / 'result.json'} and resume the run (--resume).",
            soft_wrap=True,
        )


def _leaning(result: "Result") -> str:
    """What the network has at its learned shares or the one chosen, and how it is kept."""
    from bne.methods import find
    from bne.training.scores import SHARE_RULE, choose_leaning, pooled

    found = choose_leaning(result.leaning, find(result.recipe["method"]).method.most_lean)
    share = "learned shares" if found.share == "learned" else f"{found.share:g} ({SHARE_RULE})"
    score = pooled((found.target or found.validation).values())
    balanced = "" if score.balanced is None else f" (balanced {score.balanced:.1f})"
    kept = "without"
    if result.lean:
        by = f"{result.lean:g}" if isinstance(result.lean, float | int) else "these"
        kept = f"leaning by {by}"
    return (
        f"Last, leaning on each image's own statistics by {share}: {score.accuracy:.1f}{balanced}. "
        f"It is kept {kept}."
    )


EPILOG = (
    "Example: bne train --data data/pacs --recipe pacs-resnet18-standard --target sketch"
    " --weights resnet18.safetensors"
)


def train(
    data: Annotated[
        Path | None,
        typer.Option(
            help=common.SOURCES,
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="One of --list-recipes, or a .yaml file.")
    ] = "default",
    method: Annotated[
        str | None, typer.Option(help="One of --list-methods.", show_default="the recipe's")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="The domains held out, joined by commas. Without any, all are trained on.",
            show_default="the recipe's",
            metavar="NAMES",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Of all that is random.",
            show_default="the recipe's",
            rich_help_panel="Settings",
        ),
    ] = None,
    weights: common.Weights = None,
    group: common.Group = None,
    lean: Annotated[
        str | None,
        typer.Option(
            help="How far images lean on their own statistics in use, 0 to 1, or auto.",
            show_default="the recipe's",
            rich_help_panel="Settings",
            metavar="SHARE",
        ),
    ] = None,
    settings: common.Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's folder.", show_default="runs/recipe-method-target-seed"),
    ] = None,
    device: common.Device = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run in the folder.")
    ] = False,
    cache: common.Cache = None,
    skip_bad: common.SkipBad = False,
    allow_gaps: common.AllowGaps = False,
    tensorboard: Annotated[
        bool,
        typer.Option(
            help="Write metrics for TensorBoard into the run's folder.", rich_help_panel="Watching"
        ),
    ] = True,
    wandb: Annotated[
        bool,
        typer.Option("--wandb", help="Report to Weights & Biases.", rich_help_panel="Watching"),
    ] = False,
    mlflow: Annotated[
        bool, typer.Option("--mlflow", help="Report to MLflow.", rich_help_panel="Watching")
    ] = False,
    as_json: common.Json = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the recipe with every setting, and stop.",
            rich_help_panel=common.STOPPING,
        ),
    ] = False,
    list_methods: Annotated[
        bool,
        typer.Option(
            "--list-methods", help="Print the methods, and stop.", rich_help_panel=common.STOPPING
        ),
    ] = False,
    list_recipes: Annotated[
        bool,
        typer.Option(
            "--list-recipes", help="Print the recipes, and stop.", rich_help_panel=common.STOPPING
        ),
    ] = False,
) -> None:
    """Train a network on some domains and test it on one it has never seen.

    Without --target it is trained on all domains, for use, and tested on held-out images of each.
    The images are decoded once, the first time. Everything is written to the run's folder. With
    torchrun --nproc-per-node 2 -m bne train ... two processes train together.
    """
    if list_methods or list_recipes:
        show = show_methods if list_methods else show_recipes
        show(as_json)
        return

    from bne import api
    from bne.recipes.files import load
    from bne.recipes.schema import checked, nested

    flags = {"method": method, "seed": seed, "weights": weights, "group": group}
    given = {key: value for key, value in flags.items() if value is not None}
    leaning = [] if lean is None else [f"lean={lean}"]
    chosen = {**common.parse_settings([*(settings or []), *leaning]), **given}
    own = chosen.pop("target", None)
    held_out = target or own
    for key, value in chosen.items():
        checked(nested(key, value))  # or it might be taken for another argument of `api.train`
    if data is None:
        names = {"target": api.parse_names(held_out)} if held_out else {}
        alone = load(recipe, {**chosen, **names})
        if not dry_run:
            raise typer.BadParameter("say where the images are.", param_hint="--data")
        show_recipe(alone)
    elif dry_run:
        inputs = api.resolve(data, held_out, recipe, chosen, allow_gaps=allow_gaps)
        api.show_notes([inputs])
        show_recipe(inputs.recipe)
    else:
        first = os.environ.get("RANK", "0") == "0"
        run = api.train(
            data,
            held_out,
            recipe=recipe,
            out=out,
            device=device,
            resume=resume,
            cache=cache,
            skip_bad=skip_bad,
            allow_gaps=allow_gaps,
            progress=True,
            listeners=_listeners(tensorboard, wandb, mlflow) if first else (),
            **chosen,
        )
        if first:
            show_run(run, data, as_json)


def _listeners(tensorboard: bool, wandb: bool, mlflow: bool) -> list["Listener"]:
    from bne.training.listeners import MLflow, TensorBoard, WeightsAndBiases

    kinds = {TensorBoard: tensorboard, WeightsAndBiases: wandb, MLflow: mlflow}
    return [kind() for kind, wanted in kinds.items() if wanted]
