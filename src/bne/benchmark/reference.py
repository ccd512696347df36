"""The figures the paper prints, as data.

They are kept as printed, slips included. Three cannot come from the cells beside them: MetaReg's
average 81.7 (its cells give 79.9), and Δ% of MASF 1.01 (2.27) and of DNet 0.08 (0.76).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from bne.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

AVERAGE, AVERAGE_DEEPALL, GAIN = "average", "average-deepall", "gain-percent"
AVERAGE_DOMAIN, AVERAGE_CLASS = "average-domain", "average-class"
SUMMARIES = (AVERAGE, AVERAGE_DEEPALL, GAIN, AVERAGE_DOMAIN, AVERAGE_CLASS)


@dataclass(frozen=True)
class PaperRow:
    """A row of a table of the paper.

    Attributes:
        method: the paper's name for it, or in tables without methods what the row stands for.
        variant: variant of the method; empty where there is one only.
        cells: accuracy on each target, two domains joined by a +, in the order of print.
        summaries: figures that follow from others, by the names in `SUMMARIES`.
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
        name: name on the command line.
        backbone: "resnet18" or "alexnet".
        benchmark: benchmark whose targets it has, see `bne.data.benchmarks`.
        rows: rows in the order of print.
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
    printed: dict[tuple[str, str, str], dict[tuple[str, str], dict[str, float]]] = {}
    for line in csv.DictReader(text.splitlines()):
        rows = printed.setdefault((line["table"], line["backbone"], line["dataset"]), {})
        row = rows.setdefault((line["method"], line["variant"]), {})
        row[line["target"]] = float(line["value"])
    return {
        about[0]: PaperTable(*about, tuple(_row(*names, own) for names, own in rows.items()))
        for about, rows in printed.items()
    }


def find_table(name: str) -> PaperTable:
    """The table of that name.

    Raises:
        SettingsError: The paper has none; the message names the nearest.
    """
    if name not in tables():
        raise SettingsError(f"The paper has no table {name!r}; {did_you_mean(name, tables())}.")
    return tables()[name]


def _row(method: str, variant: str, values: dict[str, float]) -> PaperRow:
    cells = {target: value for target, value in values.items() if target not in SUMMARIES}
    return PaperRow(method, variant, cells, {k: v for k, v in values.items() if k in SUMMARIES})
