"""Rows of CSV files, with their lines for errors."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def read_rows(table: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields line number and row of a CSV that must have `columns`, none of them empty.

    Raises:
        DataError: The file is not such a table; the message says which columns were found.
    """
    wanted = ", ".join(columns)
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            found = reader.fieldnames or ()
            if not found:
                raise DataError(
                    f"{table}: is empty, or its first line is; it must name the columns {wanted}."
                )
            if len(found) == 1 and ";" in found[0]:
                raise DataError(
                    f"{table}: its columns are separated by semicolons; separate them by commas."
                )
            if not set(columns) <= set(found):
                raise DataError(f"{table}: needs the columns {wanted}; found {', '.join(found)}.")
            for row in reader:
                for column in columns:
                    if not row[column]:
                        raise DataError(
                            f"{table}, line {reader.line_num}: {column!r} is empty; fill it in."
                        )
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table}: cannot be read as a UTF-8 CSV file ({error}).") from error
