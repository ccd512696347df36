"""Which rows and targets are wanted: a table of the paper, or methods on a benchmark."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from bne.data.benchmarks import find_benchmark
from bne.data.images import DataError
from bne.engine.recipe_files import Row, load_experiment
from bne.evaluation.reference import find_table

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bne.engine.recipe_files import Experiment

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
            known_targets[_known(target, known_targets, "target")]
            for target in dict.fromkeys(targets or known_targets)
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


def _known(name: str, known: Collection[str], what: str) -> str:
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0)[0]
        raise DataError(f"There is no {what} {name!r}; the nearest is {near!r}.")
    return name
