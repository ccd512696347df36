"""What `bne train` prints."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from bne.engine.recipe import Recipe
    from bne.engine.result import Result

RULES = {
    "last": "last epoch",
    "validation": "best on source validation",
    "oracle": "oracle: chosen on the target",
}


def show_methods(as_json: bool) -> None:
    """Prints all methods, with their options and what they implement."""
    from bne.methods import entries

    methods = {
        entry.name: {"options": entry.options, "sentence": entry.sentence} for entry in entries()
    }
    if as_json:
        typer.echo(json.dumps(methods, indent=2, default=str))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("method", "options", "in the paper's words", show_lines=True)
    for entry in entries():
        options = "\n".join(f"{name}={value}" for name, value in entry.options.items())
        table.add_row(entry.name, options, entry.sentence)
    Console(markup=False, highlight=False).print(table)


def show_recipes(as_json: bool) -> None:
    """Prints the recipes that come with the package."""
    from bne.engine.recipe_files import load_experiment, names

    titles = {name: load_experiment(name).title for name in names()}
    if as_json:
        typer.echo(json.dumps(titles, indent=2))
        return
    width = max(map(len, titles))
    for name, title in titles.items():
        typer.echo(f"{name:{width}}  {title}")


def show_recipe(recipe: "Recipe") -> None:
    """Prints a recipe as a file that gives the same again."""
    from bne.engine.files import plain
    from bne.engine.yaml_text import dump

    typer.echo(dump(plain(recipe.to_dict())), nl=False)


def show_result(result: "Result", folder: Path, as_json: bool) -> None:
    """Prints the accuracy on the target under every rule, and where the network lies."""
    model = folder / "model"
    if as_json:
        typer.echo(json.dumps({"model": str(model), **result.to_dict()}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    from bne.engine.selection import pooled

    targets = list(result.accuracy["last"])
    both = ["together"] if len(targets) > 1 else []
    table = Table("network of", *targets, *both, title="Accuracy on the target, in percent")
    for rule, scores in result.accuracy.items():
        shown = [*scores.values(), *([pooled(scores.values())] if both else [])]
        table.add_row(RULES[rule], *(f"{score.accuracy:.1f}" for score in shown))
    console = Console(markup=False, highlight=False)
    console.print(table)
    if result.target_images == "unlabelled":
        console.print("The target's images were part of training, without their labels.")
    console.print(f"The network of the last epoch is in {model}", soft_wrap=True)
