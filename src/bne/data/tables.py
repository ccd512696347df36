"""Rows of CSV files and of JSON lines, with their lines for errors."""

from __future__ import annotations

import csv
import json
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


def read_json_rows(table: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields line number and row of JSON lines, an object each, that must have `columns`.

    Values become text, as they would be in a CSV; null is empty.

    Raises:
        DataError: The file is not such a table.
    """
    try:
        with table.open(encoding="utf-8-sig") as file:
            for line, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                found = json.loads(text)
                if not isinstance(found, dict):
                    raise DataError(f"{table}, line {line}: no JSON object; write one per line.")
                row = {key: "" if value is None else str(value) for key, value in found.items()}
                for column in columns:
                    if not row.get(column):
                        raise DataError(
                            f"{table}, line {line}: {column!r} is missing or empty; fill it in."
                        )
                yield line, row
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{table}: cannot be read as UTF-8 JSON lines ({error}).") from error
