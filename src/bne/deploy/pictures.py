"""Images to predict: files, folders, globs, archives, columns of tables, lists of names."""

from __future__ import annotations

import glob
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bne.data.archives import members
from bne.data.entries import head_of, is_hidden, is_image, printable, read_file
from bne.data.images import KINDS
from bne.data.sources import COMPRESSED
from bne.data.tables import read_rows
from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ARCHIVES = (".tar", ".zip")
NAMES = "-"
"""What stands for names on standard input, one per line."""


class Picture(NamedTuple):
    """One image to predict.

    Attributes:
        name: how it is called in the answer: its path, an archive's followed by the member's.
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
            .tar and .zip archives; .csv tables, whose paths are relative to the table; `NAMES`.
        names: lines that `NAMES` stands for, a path each.
        column: of tables, that has the paths.

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
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not is_hidden(Path(name)))
        for name in sorted(files):
            path = Path(place, name)
            if is_image(Path(name), partial(head_of, str(path))):
                yield _file(path)
            elif path.suffix.lower() in ARCHIVES and not is_hidden(Path(name)):
                yield from _in_archive(path)


def _in_file(path: Path, column: str) -> Iterator[Picture]:
    suffix = path.suffix.lower()
    if suffix in ARCHIVES:
        yield from _in_archive(path)
    elif suffix == ".csv":
        for _, row in read_rows(path, [column]):
            yield _file(path.parent / row[column])
    elif path.name.lower().endswith(COMPRESSED):
        raise DataError(f"{path}: cannot be read in place; use a plain .tar or a .zip.")
    else:
        yield _file(path)


def _in_archive(archive: Path) -> Iterator[Picture]:
    for path, read, _ in members(archive):
        yield Picture(printable(f"{archive}/{path}"), read)


def _listed(names: Iterable[str]) -> Iterator[Picture]:
    for line in names:
        if name := line.rstrip("\r\n"):
            yield _file(Path(name))


def _file(path: Path) -> Picture:
    return Picture(printable(str(path)), partial(read_file, str(path)))
