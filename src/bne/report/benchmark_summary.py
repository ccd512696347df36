"""What came out of a benchmark, in sentences for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.evaluation.cells import Cell, signed
from bne.evaluation.reference import AVERAGE, SUMMARIES
from bne.report.words import counted, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bne.evaluation.tables import Found, Table

CLEAR = 2  # standard errors
FEW = 2  # seeds, whose standard error is itself mostly chance


def progress(found: Found) -> str:
    """How many of the runs there are."""
    seeds = len({item.recipe.seed for item, _ in found})
    rows = len({item.row for item, _ in found})
    targets = len({item.target for item, _ in found})
    finished = sum(record is not None for _, record in found)
    plan = (
        f"{counted(rows, 'method')}, {counted(targets, 'target')} and {counted(seeds, 'seed')} "
        f"make {counted(len(found), 'run')}"
    )
    if finished == len(found):
        return f"{plan}, all of them finished."
    return f"{plan}; {finished} of them are finished, so everything below is provisional."


def verdict(table: Table, baseline: str | None) -> list[str]:
    """Which method is best on average, by how much, and how sure that is.

    Args:
        table: of accuracy, under one rule.
        baseline: the row to compare the best with besides the second best, if there is one.
    """
    averages = {row.name: row.cells[AVERAGE] for row in table.rows if AVERAGE in row.cells}
    known = {name: cell for name, cell in averages.items() if cell.mean is not None}
    ranked = sorted(known, key=lambda name: known[name].mean or 0.0, reverse=True)
    absent = [name for name in averages if name not in known]
    if not ranked:
        return ["No method has been run on every target with the same seed: there is no average."]
    targets = len([column for column in table.columns if column not in SUMMARIES])
    best = ranked[0]
    over = "on the only target" if targets == 1 else f"on average over {targets} targets"
    leads = "has" if len(ranked) == 1 else "is best:"
    sentences = [f"{best} {leads} {_figure(known[best])} {over}."]
    others = dict.fromkeys([*ranked[1:2], *([baseline] if baseline in known else [])])
    sentences += [_lead(best, other, known) for other in others if other != best]
    if absent:
        sentences.append(f"There is no average yet of {listed(absent)}.")
    return sentences


def _figure(cell: Cell) -> str:
    seeds = counted(len(cell.values), "seed")
    if cell.error is None:
        return f"{cell.mean:.1f} % ({seeds})"
    return f"{cell.mean:.1f} ± {cell.error:.1f} % (mean ± standard error over {seeds})"


def _lead(best: str, other: str, known: Mapping[str, Cell]) -> str:
    """By how much one is better than another, over the seeds that both have."""
    ours, theirs = known[best].values, known[other].values
    common = sorted(ours.keys() & theirs.keys())
    name = f"{other} ({known[other].mean:.1f} %)"
    if not common:
        return f"It has no seed in common with {name}, so the two cannot be compared."
    difference = Cell({seed: ours[seed] - theirs[seed] for seed in common}, len(common))
    assert difference.mean is not None
    points = signed(difference.mean, 1)
    if difference.error is None:
        return (
            f"Against {name} that is {points} points in the one seed that both have: how much of "
            "it is chance cannot be told from one seed."
        )
    start = (
        f"Against {name} that is {points} ± {difference.error:.1f} points, seed by seed over "
        f"{len(common)} seeds"
    )
    if difference.mean > CLEAR * difference.error:
        end = ", but two seeds tell little of that" if len(common) <= FEW else ""
        return f"{start}: more than twice its standard error{end}."
    return f"{start}: within twice its standard error, so the two cannot be told apart."
