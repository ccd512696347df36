"""Which runs make up a table, in which order, and how long they may take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bne.benchmark.records import newest
from bne.benchmark.reference import SUMMARIES, find_table
from bne.data.benchmarks import find_benchmark
from bne.errors import SettingsError, did_you_mean
from bne.recipes.checks import check_settings
from bne.recipes.files import Row, load_experiment
from bne.recipes.inputs import Inputs, settled
from bne.training.environment import weights_sha256
from bne.training.identity import Identity, images_digest, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeVar

    from bne.benchmark.records import Record
    from bne.data.images import ImageSet
    from bne.recipes.files import Experiment
    from bne.recipes.schema import Recipe

    Thing = TypeVar("Thing")

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
        SettingsError: Something is unknown, or two of these do not go together.
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
            raise SettingsError(
                f"{chosen.name} has no targets of its own, and nothing is recorded; name a "
                "--benchmark, or the --data to run."
            )
        chosen = replace(chosen, targets=tuple(held_out))
    known_rows = {row.title: row for row in chosen.rows}
    known_targets = {"+".join(target): target for target in chosen.targets}
    return replace(
        chosen,
        rows=_some(rows, known_rows, "row"),
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
        raise SettingsError(f"{name} has rows of its own; choose from them with --row.")
    if benchmark not in (None, paper.benchmark):
        raise SettingsError(f"{name} is a table of {paper.benchmark}, not of {benchmark}.")
    own = load_experiment(name)
    settings = own.settings if chosen.name == own.name else chosen.settings
    return replace(own, settings=settings)


def _some(names: Sequence[str], known: Mapping[str, Thing], what: str) -> tuple[Thing, ...]:
    """The named ones, each once; all if none is named."""
    for name in names:
        if name not in known:
            raise SettingsError(f"There is no {what} {name!r}; {did_you_mean(name, known)}.")
    return tuple(known[name] for name in dict.fromkeys(names or known))


def _target(name: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The target of that name, or known domains joined by a +, in the order they are known in."""
    if name in known or "+" not in name:
        return _some([name], known, "target")[0]
    domains = {domain: domain for target in known.values() for domain in target}
    wanted = _some([domain.strip() for domain in name.split("+")], domains, "domain")
    return tuple(domain for domain in domains if domain in wanted)


_OPTIONS = {"seed": "--seeds", "target": "--targets", "method": "--methods or --row"}


@dataclass(frozen=True)
class Item:
    """One planned run.

    Attributes:
        experiment: the table or recipe it is for.
        row: of the table.
        recipe: what to run.
        materials: checksums of the `weights` and `images` it starts from, as far as at hand.
        analysed: whether only a record with an analysis will do.
    """

    experiment: str
    row: str
    recipe: Recipe
    materials: Mapping[str, str | None] = field(default_factory=dict)
    analysed: bool = False

    @property
    def target(self) -> str:
        """The domains held out, joined by a + as in the paper's tables."""
        return "+".join(self.recipe.target)

    @cached_property
    def identity(self) -> Identity:
        """What tells the run from others."""
        return Identity.recorded(settings_of(self.recipe), self.materials)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The whole recipe, as records have it."""
        return self.identity.settings

    @property
    def digest(self) -> str:
        """Of the settings."""
        return self.identity.digest

    def __str__(self) -> str:
        return f"{self.row}, {self.target}, seed {self.recipe.seed}"


def plan(
    experiment: Experiment,
    seeds: int,
    overrides: Mapping[str, Any],
    *,
    weights: str | None = None,
    images: ImageSet | None = None,
    split_file: Path | None = None,
    records: Iterable[Record] = (),
) -> list[Item]:
    """All runs of an experiment, the first seed of every row before any second one.

    Args:
        experiment: its rows and targets.
        seeds: of every row and target: 0, 1, and so on.
        overrides: settings of all runs, by dotted key; none that differs from run to run.
        weights: initial weights of all runs, instead of the recipe's; a file need not be at hand,
            since a table of what is recorded can be had without it.
        images: that the runs are for, if they are at hand.
        split_file: the official split that lies with them, if one does.
        records: of other runs, which tell without images what `validation: auto` is.

    Raises:
        SettingsError: A setting is unknown or impossible, or a target has the name of a column
            that sums others up.
    """
    for key in overrides.keys() & _OPTIONS.keys():
        raise SettingsError(f"{key} differs from run to run; choose with {_OPTIONS[key]} instead.")
    for name in SUMMARIES:
        if (name,) in experiment.targets:
            raise SettingsError(
                f"A domain is named {name!r}, as a column of the table is; rename it."
            )
    if not experiment.rows or not experiment.targets:
        raise SettingsError(f"{experiment.name} has no rows or no targets: nothing is to be run.")
    if images is None:
        official = _official_by_records(experiment, records)
    else:
        official = split_file is not None or images.is_split
    names, checksum = images_digest(images) if images else None, cache(weights_sha256)
    starts = []
    for row in experiment.rows:
        recipe = experiment.recipe({**overrides, "target": experiment.targets[0]}, row)
        recipe = settled(replace(recipe, weights=weights or recipe.weights), official=official)
        materials = {"weights": checksum(recipe.weights), "images": names}
        analysed = experiment.analysis is not None
        starts.append(Item(experiment.name, row.title, recipe, materials, analysed))
    return [
        replace(start, recipe=replace(start.recipe, target=target, seed=seed))
        for seed, start, target in product(range(seeds), starts, experiment.targets)
    ]


def check_runs(
    items: Sequence[Item], images: ImageSet, split_file: Path | None, *, allow_gaps: bool
) -> list[Inputs]:
    """Finds what is wrong with any of the runs before the first one starts.

    Args:
        items: the runs.
        images: that they are for.
        split_file: the official split, if there is one.
        allow_gaps: whether source domains may lack classes that others have.

    Raises:
        SettingsError: A setting is impossible, or does not fit the images.
        DataError: The images cannot be trained on.
    """
    for row in {item.row: item for item in items}.values():
        check_settings(row.recipe)
    return [
        Inputs.of(item.recipe, images, split_file, allow_gaps=allow_gaps)
        for item in {(item.row, item.target): item for item in items}.values()
    ]


def estimate(items: Sequence[Item], records: Iterable[Record]) -> float | None:
    """Seconds that runs may take one after another; None if one has no like among the records.

    A run is expected to take as long as the newest of those that differ from it in target and
    seed only.
    """
    past: dict[str, list[Record]] = {}
    for record in records:
        past.setdefault(kind(record.settings), []).append(record)
    means = {key: fmean(record.seconds for record in newest(own)) for key, own in past.items()}
    expected = [means.get(kind(item.settings)) for item in items]
    return None if None in expected else sum(filter(None, expected))


def _official_by_records(experiment: Experiment, records: Iterable[Record]) -> bool:
    """Whether runs follow an official split, as their benchmark declares or recorded ones do."""
    if experiment.benchmark is not None:
        return find_benchmark(experiment.benchmark).split_file is not None
    return any(record.settings.get("validation") == "official" for record in records)


def kind(settings: Mapping[str, Any]) -> str:
    """The digest of settings, but for the target, the sources and the seed."""
    return Identity({**settings, "target": [], "sources": [], "seed": 0}).digest
