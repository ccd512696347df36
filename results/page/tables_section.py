"""The section of tables: ours beside the paper's, and what is missing in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from bne.benchmark.render import markdown, result_grid
from page.campaign import WEIGHTS, WEIGHTS_NAME
from page.words import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record
    from bne.benchmark.tables import Found
    from page.campaign import Wanted


def tables_section(wanted: Sequence[Wanted], records: Sequence[Record]) -> str:
    """Every table that has a run of ours; rows without one show the paper's figures alone."""
    texts = [_table(one, started) for one in wanted if (started := _started(one.found(records)))]
    return "\n".join(texts).strip() or "No run is recorded."


def missing_section(wanted: Sequence[Wanted], records: Sequence[Record], file: str) -> str:
    """What each table still lacks, and the command that fills it."""
    rows = []
    commands = []
    for one in wanted:
        found = one.found(records)
        lacking = Counter(item.row for item, record in found if record is None)
        there = len(found) - lacking.total()
        what = "; ".join(f"{row}: {count}" for row, count in lacking.items())
        rows.append([one.title, what or "nothing", f"{there} of {len(found)}"])
        commands += [f"# {one.title}", one.command(file)]
    head = ["table", "runs missing, by row", "recorded"]
    text = "\n".join(commands)
    note = "<!-- not run: needs PACS and a GPU -->"
    return f"{table(head, rows, texts=2)}\n\n{note}\n```bash\n{text}\n```"


def _started(found: Found) -> Found:
    """The rows of which something is recorded; none if that is the baseline alone."""
    rows = {item.row: item.recipe.method for item, record in found if record is not None}
    if set(rows.values()) == {"deepall"} and any(i.recipe.method != "deepall" for i, _ in found):
        return []
    return [(item, record) for item, record in found if item.row in rows]


def _table(wanted: Wanted, found: Found) -> str:
    grid = result_grid(wanted.experiment, found)
    notes = " ".join(grid.notes).replace(WEIGHTS, f"`{WEIGHTS_NAME}`")
    title = f"{wanted.title} (`{wanted.table}`)"
    return markdown(replace(grid, title=title, notes=(notes,)))
