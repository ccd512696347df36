"""Images to predict: files, folders, globs, archives, columns of tables, lists of names."""

from __future__ import annotations

import glob
import os
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from bne.data.archives import members
from bne.data.entries import (
    MAX_BYTES,
    head_of,
    is_hidden,
    is_image,
    printable,
    read_file,
    stamp_of,
)
from bne.data.images import KINDS
from bne.data.sources import COMPRESSED
from bne.data.tables import read_rows
from bne.errors import DataError, require
from bne.words import readable_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ARCHIVES = (".tar", ".zip")
MAX_GROUP = 4 * MAX_BYTES  # of a table's rows, which are read together
READING = Lock()  # or every thread would read the same rows
NAMES = "-"
"""What stands for names on standard input, one per line."""


class Picture(NamedTuple):
    """One image to predict.

    Attributes:
        name: how it is called in the answer: its path, an archive's followed by the member's, or
            that of a table that has the image itself, followed by the number of its row.
        read: returns the encoded bytes, or raises `DataError`; safe from any thread.
    """

    name: str
    read: Callable[[], bytes]


def find_pictures(
    given: Iterable[str | os.PathLike[str]], names: Iterable[str] = (), column: str = "path"
) -> list[Picture]:
    """Lists images; none is read yet.

    Args:
        given: files; folders, of which all images and archives at any depth are taken; globs;
            .tar and .zip archives; .csv and .parquet tables, whose paths are relative to the table;
            `NAMES`.
        names: lines that `NAMES` stands for, a path each.
        column: of tables, that has the paths or, in .parquet, encoded images themselves.

    Raises:
        DataError: Something is not there, is no archive or table, or there are no images.
    """
    found: list[Picture] = []
    for path in given:
        one = os.fspath(path)
        own = list(_listed(names) if one == NAMES else _found(one, column))
        if not own:
            raise DataError(f"{one}: holds no {KINDS} images.")
        found += own
    if not found:
        raise DataError("There are no images to predict; name files or folders.")
    return found


def _found(given: str, column: str) -> Iterator[Picture]:
    path = Path(given)
    if path.is_dir():
        yield from _in_folder(path)
    elif path.exists():
        yield from _in_file(path, column)
    elif matches := sorted(glob.glob(given, recursive=True)):  # noqa: PTH207 - has ** of its own
        for match in matches:
            place = Path(match)
            if place.is_dir():
                continue  # of `**` too; its files match by themselves or are not wanted
            yield from _in_file(place, column)
    else:
        raise DataError(f"{given}: there is no such file or folder.")


def _in_folder(folder: Path) -> Iterator[Picture]:
    seen: set[str] = set()  # links may lead back
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not is_hidden(Path(name)))
        for name in sorted(files):
            path = Path(place, name)
            if is_image(Path(name), partial(head_of, str(path))):
                yield _file(path)
            elif path.suffix.lower() in ARCHIVES and not is_hidden(Path(name)):
                yield from _in_archive_or_none(path)


def _in_file(path: Path, column: str) -> Iterator[Picture]:
    suffix = path.suffix.lower()
    if suffix in ARCHIVES:
        yield from _in_archive(path)
    elif suffix == ".csv":
        for _, row in read_rows(path, [column]):
            yield _file(path.parent / row[column])
    elif suffix == ".parquet":
        yield from _in_parquet(path, column)
    elif path.name.lower().endswith(COMPRESSED):
        raise DataError(f"{path}: cannot be read in place; use a plain .tar or a .zip.")
    else:
        yield _file(path)


def _in_archive_or_none(archive: Path) -> list[Picture]:
    """The images of an archive; of a damaged one, a single picture that cannot be read."""
    try:
        return list(_in_archive(archive))
    except DataError as error:
        return [Picture(printable(str(archive)), partial(_refuse, error))]


def _refuse(error: DataError) -> bytes:
    raise error


def _in_archive(archive: Path) -> Iterator[Picture]:
    for path, read, _ in members(archive):
        yield Picture(printable(f"{archive}/{path}"), read)


def _in_parquet(table: Path, column: str) -> Iterator[Picture]:
    with _as_parquet(table):
        file = require("pyarrow.parquet", "parquet").ParquetFile(table)
        found = {field.name: field.type for field in file.schema_arrow}
    if column not in found:
        raise DataError(f"{table}: needs the columns {column}; found {', '.join(found)}.")
    holds, stamp, row = _content(found[column]), stamp_of(table), 0
    if not holds:
        raise DataError(
            f"{table}: {column!r} has neither paths nor encoded images, but {found[column]}."
        )
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        if about.total_byte_size > MAX_GROUP:
            limit = readable_size(MAX_GROUP)
            raise DataError(f"{table}: row groups of more than {limit}; write smaller ones.")
        whole = partial(_group, str(table), stamp, column, group)
        paths = whole().to_pylist() if holds == "paths" else ()
        for place in range(about.num_rows):
            if holds == "images":
                name = printable(f"{table}/{row}")
                yield Picture(name, partial(_read_cell, whole, place, name, table.parent))
            elif paths[place]:
                yield _file(table.parent / paths[place])
            else:
                raise DataError(f"{table}, row {row}: {column!r} is empty; fill it in.")
            row += 1


def _content(kind: Any) -> str:
    """What a column of a type has: "paths"; "images", also as Hugging Face keeps them; or ""."""
    kinds = require("pyarrow.types", "parquet")
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return "paths"
    inside = kinds.is_struct(kind) and kind.get_field_index("bytes") >= 0
    return "images" if inside or kinds.is_binary(kind) or kinds.is_large_binary(kind) else ""


def _read_cell(whole: Callable[[], Any], place: int, name: str, folder: Path) -> bytes:
    with READING:
        found = whole()[place].as_py()
    if isinstance(found, dict):
        inside, path = found["bytes"], found.get("path")
        found = read_file(str(folder / path)) if path and not inside else inside
    if not isinstance(found, bytes):
        raise DataError(f"{name}: there is no image in this row; fill it in.")
    return found


@lru_cache(maxsize=2)  # images are read in their order
def _group(table: str, stamp: str, column: str, group: int) -> Any:
    """The rows of a table that lie together; its stamp tells whether it is another now."""
    with _as_parquet(table):
        file = require("pyarrow.parquet", "parquet").ParquetFile(table)
        return file.read_row_group(group, columns=[column]).column(0)


@contextmanager
def _as_parquet(table: Path | str) -> Iterator[None]:
    """A context in which a damaged table is named."""
    try:
        yield
    except (OSError, ValueError) as error:  # of pyarrow
        reason = " ".join(str(error).split()).removesuffix(".")
        raise DataError(
            f"{printable(str(table))}: cannot be read as a parquet file ({reason}); write it anew."
        ) from error


def _listed(names: Iterable[str]) -> Iterator[Picture]:
    for line in names:
        if name := line.rstrip("\r\n"):
            yield _file(Path(name))


def _file(path: Path) -> Picture:
    return Picture(printable(str(path)), partial(read_file, str(path)))
