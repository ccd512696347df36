"""A dataset listed in a CSV: one row an image, with the columns path, class and domain."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from bne.data.entries import Entry, FileBytes, inner_path, printable, stamp_at
from bne.data.images import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

COLUMNS = ("path", "class", "domain")


def list_table(table: Path) -> Iterator[Entry]:
    """The images listed in a CSV file; their paths are relative to it and stay below its folder.

    A file that is missing is listed all the same, and fails when it is read.
    """
    rows = list(read_rows(table, COLUMNS))
    if not rows:
        raise DataError(f"{table}: holds no images; add a line for each below the columns' names.")
    lines: dict[tuple[str, str, str], int] = {}
    for line, row in rows:
        path = inner_path(row["path"], f"{table}, line {line}").as_posix()
        first = lines.setdefault((row["domain"], row["class"], path), line)
        if first != line:
            name = printable(f"{row['domain']}/{row['class']}/{path}")
            raise DataError(f"{table}, lines {first} and {line}: {name} occurs twice; remove one.")
        file = table.parent / path
        yield Entry(row["domain"], row["class"], path, FileBytes(str(file)), stamp_at(file))


def read_rows(table: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields line number and row of a CSV that must have `columns`, none of them empty.

    Raises:
        DataError: The file is not such a table; the message says which columns were found.
    """
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            found = reader.fieldnames or ()
            if not found:
                raise DataError(
                    f"{table}: is empty, or its first line is; that line must name the columns"
                    f" {', '.join(columns)}."
                )
            if not set(columns) <= set(found):
                if len(found) == 1 and ";" in found[0]:
                    raise DataError(
                        f"{table}: its columns are separated by semicolons; separate them by"
                        f" commas, with {', '.join(columns)} among them."
                    )
                raise DataError(
                    f"{table}: needs the columns {', '.join(columns)}; found {', '.join(found)}."
                )
            for row in reader:
                empty = [column for column in columns if not row[column]]
                if empty:
                    raise DataError(
                        f"{table}, line {reader.line_num}: {empty[0]!r} is empty; fill it in."
                    )
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table}: cannot be read as a UTF-8 CSV file ({error}).") from error
