"""The figures the paper prints, as data.

They are kept as printed, slips included. Three cannot come from the cells beside them: MetaReg's
average 81.7 (its cells give 79.9), and Δ% of MASF 1.01 (2.27) and of DNet 0.08 (0.76).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

AVERAGE, AVERAGE_DEEPALL, GAIN = "average", "average-deepall", "gain-percent"
AVERAGE_DOMAIN, AVERAGE_CLASS = "average-domain", "average-class"
SUMMARIES = (AVERAGE, AVERAGE_DEEPALL, GAIN, AVERAGE_DOMAIN, AVERAGE_CLASS)


@dataclass(frozen=True)
class PaperRow:
    """A row of a table of the paper.

    Attributes:
        method: as the paper names it, or in tables without methods what the row stands for.
        variant: of the method; empty where there is one only.
        cells: the accuracy on each target, two domains joined by a +, in the order of print.
        summaries: of the columns that follow from others, by the names in `SUMMARIES`.
    """

    method: str
    variant: str
    cells: Mapping[str, float]
    summaries: Mapping[str, float]

    @property
    def name(self) -> str:
        """Method and variant, as `bne.recipes.files` names rows."""
        return f"{self.method} ({self.variant})" if self.variant else self.method


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        name: as given on the command line.
        backbone: "resnet18" or "alexnet".
        benchmark: whose targets it has, see `bne.data.benchmarks`.
        rows: in the order of print.
    """

    name: str
    backbone: str
    benchmark: str
    rows: tuple[PaperRow, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns, in the order of print."""
        return tuple(dict.fromkeys(target for row in self.rows for target in row.cells))

    def row(self, name: str) -> PaperRow | None:
        """The row of that name, if the paper has it."""
        return next((row for row in self.rows if row.name == name), None)


@cache
def tables() -> dict[str, PaperTable]:
    """All tables, by name."""
    text = (files("bne.benchmark") / "reference.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    found: dict[str, PaperTable] = {}
    for name in dict.fromkeys(line["table"] for line in lines):
        own = [line for line in lines if line["table"] == name]
        names = dict.fromkeys((line["method"], line["variant"]) for line in own)
        rows = tuple(_row(method, variant, own) for method, variant in names)
        found[name] = PaperTable(name, own[0]["backbone"], own[0]["dataset"], rows)
    return found


def find_table(name: str) -> PaperTable:
    """The table of that name.

    Raises:
        DataError: The paper has none; the message names the nearest.
    """
    if name not in tables():
        near = get_close_matches(name, tables(), n=1, cutoff=0)[0]
        raise DataError(f"The paper has no table {name!r}; the nearest is {near!r}.")
    return tables()[name]


def _row(method: str, variant: str, lines: list[dict[str, str]]) -> PaperRow:
    values = {
        line["target"]: float(line["value"])
        for line in lines
        if (line["method"], line["variant"]) == (method, variant)
    }
    cells = {target: value for target, value in values.items() if target not in SUMMARIES}
    return PaperRow(method, variant, cells, {k: v for k, v in values.items() if k in SUMMARIES})
