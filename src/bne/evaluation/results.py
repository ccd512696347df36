"""The table of an experiment, as its records stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.evaluation.grid import grid
from bne.evaluation.latent_tables import latent_table
from bne.evaluation.notes import notes
from bne.evaluation.reference import tables as paper_tables
from bne.evaluation.tables import RULES, accuracy_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.engine.recipe_files import Experiment
    from bne.evaluation.grid import Grid
    from bne.evaluation.tables import Found, Rule, Table


def result_tables(
    experiment: Experiment, found: Found, rules: Sequence[Rule] = RULES
) -> list[Table]:
    """The experiment's table under each of some rules; tables of the latent space have one only.

    Args:
        experiment: that the runs are of.
        found: its runs, with their records.
        rules: by which the tested epoch is chosen.
    """
    paper = paper_tables().get(experiment.name)
    if experiment.analysis:
        assert paper is not None, "only tables of the paper show the latent space"
        return [latent_table(experiment.analysis, experiment.name, found, paper)]
    return [accuracy_table(experiment.name, found, paper, rule) for rule in rules]


def result_grid(experiment: Experiment, found: Found, rules: Sequence[Rule] = RULES) -> Grid:
    """The same in words, all rules side by side."""
    paper = paper_tables().get(experiment.name)
    tables = result_tables(experiment, found, rules)
    return grid(tables, notes(experiment, found, paper))
