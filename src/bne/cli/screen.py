"""Tables on the screen: they fit the terminal, and are whole in a pipe."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

WHOLE = 10_000  # columns
GAP = 2


def width() -> int:
    """Columns of the terminal; a pipe has as many as COLUMNS says, or enough for anything."""
    from rich.console import Console

    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return Console().width
    return WHOLE


def say(line: str, *, err: bool = False) -> None:
    """Prints a line, above the bar if `bne.cli.progress` shows one on the same screen."""
    import typer

    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        print(line, file=stream)
    else:
        typer.echo(line, err=err)  # which does not wait for more


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Prints a table, in several parts one below another if it is too wide.

    Every part begins with the first column. No figure is broken; names and titles are, between
    words, if they must.

    Args:
        head: titles of the columns.
        rows: texts, the first of which names the row.
        title: title above it.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    screen = width()
    console = Console(highlight=False, width=screen)
    columns = [list(map(Text, column)) for column in zip(head, *rows, strict=True)]
    if title:
        console.print(Text(title, style="bold"))
    for part in parts(columns, screen):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for place, wide in part.items():
            justify: Literal["left", "right"] = "right" if place else "left"
            table.add_column(columns[place][0], justify=justify, width=wide)
        for line in zip(*([*columns[place][1:]] for place in part), strict=True):
            table.add_row(*line)
        console.print(table)
        console.print()


def parts(columns: Sequence[Sequence[Text]], screen: int) -> Iterator[dict[int, int]]:
    """The columns of each part of a table, with their widths; the first column is in all."""
    full = [max(cell.cell_len for cell in column) for column in columns]
    if sum(full) + GAP * (len(full) - 1) <= screen:
        yield dict(enumerate(full))
        return
    least = [
        max(_longest_word(column[0]), *(cell.cell_len for cell in column[1:]), 1)
        for column in columns
    ]
    least[0] = min(full[0], max(map(_longest_word, columns[0])))
    first = min(full[0], max(least[0], screen - GAP - max(least[1:], default=0)))
    part = {0: first}
    for place in range(1, len(columns)):
        taken = sum(part.values()) + GAP * len(part)
        if len(part) > 1 and taken + least[place] > screen:
            yield part
            part = {0: first}
        part[place] = least[place]
    yield part


def _longest_word(text: Text) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.plain.split()), default=1)


def show_text(*sentences: object) -> None:
    """Prints sentences, broken between words if the screen is narrow."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, width=width())
    for one in sentences:
        console.print(Text(str(one)))
