"""Which runs make up a table, in which order, and how long they may take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bne.data.benchmarks import find_benchmark
from bne.data.images import DataError
from bne.evaluation.identity import Materials, digest, settings
from bne.evaluation.reference import SUMMARIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bne.data.images import ImageSet
    from bne.engine.recipe import Recipe
    from bne.engine.recipe_files import Experiment
    from bne.evaluation.records import Record


_OPTIONS = {"seed": "--seeds", "target": "--targets", "method": "--methods or --row"}


@dataclass(frozen=True)
class Item:
    """One run of a plan.

    Attributes:
        experiment: the table or recipe it is for.
        row: of the table.
        recipe: what to run.
        materials: what it starts from, as far as they are at hand.
        analysed: whether only a record with an analysis will do.
    """

    experiment: str
    row: str
    recipe: Recipe
    materials: Materials = field(default_factory=Materials)
    analysed: bool = False

    @property
    def target(self) -> str:
        """The domains held out, joined by a + as in the paper's tables."""
        return "+".join(self.recipe.target)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The whole recipe, as records have it."""
        return settings(self.recipe)

    @cached_property
    def digest(self) -> str:
        """Of the settings."""
        return digest(self.settings)

    def __str__(self) -> str:
        return f"{self.row}, {self.target}, seed {self.recipe.seed}"


def plan(
    experiment: Experiment,
    seeds: int,
    overrides: Mapping[str, Any],
    *,
    weights: str | None = None,
    images: ImageSet | None = None,
    official: bool | None = None,
) -> list[Item]:
    """All runs of an experiment, the first seed of every row before any second one.

    Args:
        experiment: its rows and targets.
        seeds: of every row and target: 0, 1, and so on.
        overrides: settings of all runs, by dotted key; none that differs from run to run.
        weights: initial weights of all runs, instead of the recipe's; a file need not be at hand,
            since a table of what is recorded can be had without it.
        images: that the runs are for, if they are at hand.
        official: whether an official split decides what `validation: auto` is; without the data
            see `official_by_records`.

    Raises:
        DataError: A setting is unknown or impossible, or a target has the name of a column that
            sums others up.
    """
    for key in overrides.keys() & _OPTIONS.keys():
        raise DataError(f"{key} differs from run to run; choose with {_OPTIONS[key]} instead.")
    for name in SUMMARIES:
        if (name,) in experiment.targets:
            raise DataError(f"A domain is named {name!r}, as a column of the table is; rename it.")
    if not experiment.rows or not experiment.targets:
        raise DataError(f"{experiment.name} has no rows or no targets: there is nothing to run.")
    official = official_by_records(experiment, ()) if official is None else official
    starts = {}
    for row in experiment.rows:
        recipe = experiment.recipe({**overrides, "target": experiment.targets[0]}, row)
        recipe = replace(recipe, weights=weights) if weights else recipe
        recipe = recipe.settle_validation(official=official)
        starts[row.title] = Item(
            experiment.name,
            row.title,
            recipe,
            Materials.of(recipe.weights, images),
            analysed=experiment.analysis is not None,
        )
    return [
        replace(start, recipe=replace(start.recipe, target=target, seed=seed))
        for seed, start, target in product(range(seeds), starts.values(), experiment.targets)
    ]


def estimate(items: Sequence[Item], records: Iterable[Record]) -> float | None:
    """Seconds that runs may take one after another; None if one has no like among the records.

    A run is expected to take as long as those that differ from it in target and seed only.
    """
    past: dict[str, list[float]] = {}
    for record in records:
        past.setdefault(_kind(record.settings), []).append(record.seconds)
    expected = [past.get(_kind(item.settings)) for item in items]
    return sum(fmean(seconds) for seconds in expected if seconds) if all(expected) else None


def official_by_records(experiment: Experiment, records: Iterable[Record]) -> bool:
    """Whether runs follow an official split: as their benchmark declares, or as recorded ones do.

    Args:
        experiment: of the runs.
        records: of runs on the same data, which tell where there is no benchmark.
    """
    if experiment.benchmark is not None:
        return find_benchmark(experiment.benchmark).split_file is not None
    return any(record.settings.get("validation") == "official" for record in records)


def _kind(settings: Mapping[str, Any]) -> str:
    return digest({**settings, "target": [], "sources": [], "seed": 0})
