"""A grid of text in the formats people read, and a table's figures for programs."""

from __future__ import annotations

import csv
import io
from html import escape
from itertools import product
from typing import TYPE_CHECKING, Literal

from bne.evaluation.cells import Cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table as RichTable

    from bne.evaluation.grid import Grid
    from bne.evaluation.tables import Table

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "Δ": r"$\Delta$",
    "…": r"\dots{}",
    "[": "{[}",  # which would be an argument after a line's end
}
_STYLE = """
:root { color-scheme: light dark; --line: #8884 }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse } .wide { overflow-x: auto }
th, td { padding: .3rem .8rem; text-align: right; white-space: nowrap }
tr { border-bottom: 1px solid var(--line) }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left }
"""


def markdown(grids: Iterable[Grid]) -> str:
    """One heading, its notes and a pipe table each."""
    return "\n".join(map(_markdown, grids))


def latex(grids: Iterable[Grid]) -> str:
    """One `table` environment each; needs no package."""
    return "\n".join(map(_latex, grids))


def html(grids: Sequence[Grid]) -> str:
    """One page that needs nothing else."""
    tables = "\n".join(map(_html, grids))
    title = escape(grids[0].title)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body>
{tables}
</body></html>
"""


def terminal(grid: Grid) -> RichTable:
    """For `rich.console.Console.print`."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(grid.title), caption=Text("\n".join(grid.notes)))
    for number, head in enumerate(grid.head):
        justify: Literal["left", "right"] = "right" if number > 1 else "left"
        table.add_column(Text(head), justify=justify, no_wrap=number < 2)
    for row in grid.rows:
        table.add_row(*map(Text, row))
    return table


def figures(tables: Iterable[Table]) -> list[dict[str, str | float | None]]:
    """One entry a figure, unrounded, for programs."""
    found: list[dict[str, str | float | None]] = []
    for table in tables:
        for row, column in product(table.rows, table.columns):
            cell, paper = row.cells.get(column, Cell({}, 0)), row.paper.get(column)
            mean = cell.mean
            found.append(
                {
                    "table": table.name,
                    "row": row.name,
                    "rule": table.rule,
                    "column": column,
                    "mean": mean,
                    "standard_error": cell.error,
                    "seeds": len(cell.values),
                    "planned": cell.planned,
                    "paper": paper,
                    "difference": None if mean is None or paper is None else mean - paper,
                }
            )
    return found


def comma_separated(tables: Iterable[Table]) -> str:
    """The same as CSV."""
    lines = figures(tables)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _markdown(grid: Grid) -> str:
    lines = [
        f"### {_piped(grid.title)}",
        "",
        *(f"{_piped(note)}\n" for note in grid.notes),
        _pipes(grid.head),
        _pipes(["---", "---", *["---:"] * (len(grid.head) - 2)]),
        *map(_pipes, grid.rows),
    ]
    return "\n".join(lines) + "\n"


def _pipes(texts: Sequence[str]) -> str:
    return f"| {' | '.join(map(_piped, texts))} |"


def _piped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _latex(grid: Grid) -> str:
    rows = "".join(f"{' & '.join(map(_escaped, row))} \\\\\n" for row in grid.rows)
    caption = " ".join(map(_escaped, (f"{grid.title}.", *grid.notes)))
    return (
        "\\begin{table}\n\\centering\n"
        f"\\caption{{{caption}}}\n"
        f"\\begin{{tabular}}{{ll{'r' * (len(grid.head) - 2)}}}\n\\hline\n"
        f"{' & '.join(map(_escaped, grid.head))} \\\\\n\\hline\n{rows}\\hline\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _html(grid: Grid) -> str:
    notes = "".join(f"<p>{escape(note)}</p>\n" for note in grid.notes)
    head = "".join(f"<th>{escape(text)}</th>" for text in grid.head)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>\n" for row in grid.rows
    )
    return (
        f'<h2>{escape(grid.title)}</h2>\n{notes}<div class="wide"><table>\n'
        f"<tr>{head}</tr>\n{rows}</table></div>"
    )
