"""Searches whose runs are not trained: their accuracy follows from the settings, by a formula."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log10
from pathlib import Path
from typing import Any

from optuna.storages import InMemoryStorage

from bne.benchmark.execute import Job, Outcome
from bne.benchmark.plan import Item
from bne.benchmark.records import Record, append
from bne.recipes.schema import Recipe
from bne.tuning.objective import questions
from bne.tuning.search import Budget, Start, study_file
from bne.tuning.space import to_space, with_changes
from bne.tuning.tuning import Tuning

DOMAINS = ("art", "cartoon", "photo", "sketch")
HARD = {"art": 10, "cartoon": 15, "photo": 0, "sketch": 25}
SETTINGS = {"backbone": "small_cnn", "weights": None, "resize": 32, "exact_statistics": False}
RECIPE = with_changes(Recipe(lean=0.0), {**SETTINGS, "validation": 0.2, "epochs": 9, "warm_up": 3})
SPACE = {"method": ["deepall", "bne"], "lr": {"low": 1e-4, "high": 1e-1, "log": True}}
SPACE |= {"augmentation": ["paper", "strong"], "lean": [0, 0.1]}


def accuracy(item: Item, domain: str, share: float) -> float:
    """Best with strong augmentation, a rate of 0.01 and a share of 0.1; longer is better."""
    recipe = item.recipe
    value = 80 - HARD[domain] + 3 * (recipe.augmentation == "strong") + 20 * share
    value -= 5 * abs(log10(recipe.train.optimiser.learning_rate) + 2)
    noise = ((item.recipe.seed * 7 + len(domain)) % 3 - 1) / 10
    return value - 9 / recipe.train.epochs + noise


def record(item: Item) -> Record:
    """What the run of a plan might have given."""

    def scores(share: float) -> dict[str, Any]:
        return {
            domain: {"correct": round(100 * accuracy(item, domain, share)), "images": 10_000}
            for domain in item.recipe.target
        }

    leaning = tuple(
        {"share": share, "validation": {}, "target": scores(share), "gained": 0, "lost": 0}
        for share in (0.0, 0.1)
    )
    found = dict.fromkeys(("last", "oracle"), scores(0.0))
    about = (item.experiment, item.row, item.settings, found, 2.0, item.materials)
    return Record(*about, leaning=leaning)


class Pretending:
    """Stands for `bne.benchmark.execute.execute`; some runs may fail."""

    def __init__(self, bad: str = "") -> None:
        self.done: list[Item] = []
        self.batches: list[int] = []
        self.bad = bad

    def __call__(self, items: Sequence[Item], job: Job) -> Iterator[Outcome]:
        self.batches.append(len(items))
        for item in items:
            self.done.append(item)
            if self.bad and item.recipe.augmentation == self.bad:
                yield Outcome(item, problem="no luck")
                continue
            one = record(item)
            append(job.records, one)
            yield Outcome(item, one)


def tuning(folder: Path, target: Sequence[str] = ("sketch",), **how: Any) -> tuple[Tuning, Job]:
    """A search among pretended runs; `kept` ones are in a file, and can be gone on with."""
    storage = study_file(folder / "study.db") if how.pop("kept", False) else InMemoryStorage()
    every, space = how.pop("every", False), how.pop("space", SPACE)
    recipe = replace(how.pop("recipe", RECIPE), sources=how.pop("sources", ()))
    start = Start("mine", recipe, to_space(space, recipe), Budget(**{"settings": 9, **how}))
    asked = questions(recipe.sources or DOMAINS, () if every else target, every=every)
    job = Job(folder, None, folder, folder / "records.jsonl")
    return Tuning(asked, start, storage), job
