"""Plans and records with figures that are easy to compute by hand."""

from collections.abc import Mapping
from typing import Any

from bne.benchmark.plan import Item
from bne.benchmark.records import Record
from bne.recipes.schema import Recipe


def item(method: str, target: str, seed: int = 0, row: str = "", **changes: Any) -> Item:
    changes = {"weights": None, "exact_statistics": False, **changes}
    recipe = Recipe(method=method, target=tuple(target.split("+")), seed=seed, **changes)
    return Item("a table", row or method, recipe)


def record(of: Item, correct: Mapping[str, int] | int, images: int = 1000, **fields: Any) -> Record:
    """The same score under every rule unless `accuracy` is given; one score, or one a domain."""
    counts = correct if isinstance(correct, Mapping) else {of.recipe.target[0]: correct}
    scores = {domain: {"correct": count, "images": images} for domain, count in counts.items()}
    accuracy = dict.fromkeys(("last", "validation", "oracle"), scores)
    start = {"experiment": of.experiment, "row": of.row, "settings": of.settings}
    return Record(**{**start, "accuracy": accuracy, "seconds": 60.0, **fields})
