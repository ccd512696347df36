"""Which runs make up a table, in which order, and how long they may take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bne.benchmark.records import Materials, digest, settings
from bne.benchmark.reference import SUMMARIES, find_table
from bne.data.benchmarks import find_benchmark
from bne.errors import DataError
from bne.recipes.files import Row, load_experiment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bne.benchmark.records import Record
    from bne.data.images import ImageSet
    from bne.recipes.files import Experiment
    from bne.recipes.schema import Recipe

METHODS = ("deepall", "bne")


def choose(
    *,
    table: str | None = None,
    recipe: str | None = None,
    benchmark: str | None = None,
    methods: Sequence[str] = (),
    rows: Sequence[str] = (),
    targets: Sequence[str] = (),
    held_out: Sequence[tuple[str, ...]] = (),
) -> Experiment:
    """What the user asks for, in one experiment.

    Args:
        table: of the paper, whose rows are wanted.
        recipe: a name or file: the settings, instead of the table's own.
        benchmark: whose targets are wanted, instead of the recipe's.
        methods: one row each, for all but tables of the paper.
        rows: some of the rows only.
        targets: some of the targets only, two domains held out together joined by a +.
        held_out: the targets where neither benchmark nor recipe has any.

    Raises:
        DataError: Something is unknown, or two of these do not go together.
    """
    if table:
        find_table(table)
    chosen = load_experiment(recipe or table or "default")
    if table:
        chosen = _of_table(table, chosen, benchmark, methods)
    elif methods or not chosen.rows:
        own = tuple(Row(name, "", {"method": name}) for name in methods or METHODS)
        chosen = replace(chosen, rows=own)
    if benchmark and benchmark != chosen.benchmark:
        chosen = replace(chosen, benchmark=benchmark, targets=find_benchmark(benchmark).targets)
    if not chosen.targets:
        if not held_out:
            raise DataError(
                f"{chosen.name} has no targets of its own, and nothing is recorded; name a "
                "--benchmark, or the --data to run."
            )
        chosen = replace(chosen, targets=tuple(held_out))
    known_rows = {row.title: row for row in chosen.rows}
    known_targets = {"+".join(target): target for target in chosen.targets}
    return replace(
        chosen,
        rows=tuple(
            known_rows[_known(row, known_rows, "row")] for row in dict.fromkeys(rows or known_rows)
        ),
        targets=tuple(
            dict.fromkeys(_target(target, known_targets) for target in targets or known_targets)
        ),
    )


def _of_table(
    name: str, chosen: Experiment, benchmark: str | None, methods: Sequence[str]
) -> Experiment:
    """The rows of the paper's table with the chosen settings."""
    paper = find_table(name)
    if methods:
        raise DataError(f"{name} has rows of its own; choose from them with --row.")
    if benchmark not in (None, paper.benchmark):
        raise DataError(f"{name} is a table of {paper.benchmark}, not of {benchmark}.")
    own = load_experiment(name)
    settings = own.settings if chosen.name == own.name else chosen.settings
    return replace(own, settings=settings)


def _target(name: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The target of that name, or known domains joined by a +, in the order they are known in."""
    if name in known or "+" not in name:
        return known[_known(name, known, "target")]
    domains = list(dict.fromkeys(domain for target in known.values() for domain in target))
    wanted = {_known(domain.strip(), domains, "domain") for domain in name.split("+")}
    return tuple(domain for domain in domains if domain in wanted)


def _known(name: str, known: Collection[str], what: str) -> str:
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0)[0]
        raise DataError(f"There is no {what} {name!r}; the nearest is {near!r}.")
    return name


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
