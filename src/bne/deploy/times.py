"""When images were taken: by a column of a table, their EXIF data, or the file's own time."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bne.data.decoding import in_threads
from bne.data.tables import read_rows
from bne.errors import DataError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.deploy.pictures import Picture

FILE, EXIF = "mtime", "exif"
TAKEN, CHANGED, DETAILS = 36867, 306, 0x8769  # of the EXIF standard


def sort_by_time(
    pictures: Sequence[Picture], given: Sequence[str], kind: str
) -> list[tuple[Picture, datetime]]:
    """Images with their times, the earliest first; times with a zone are told in UTC.

    Args:
        pictures: that `bne.deploy.pictures.find_pictures` found.
        given: where it found them.
        kind: `FILE`, `EXIF`, or a column of the tables given.

    Raises:
        DataError: A time is not there, or is none.
        SettingsError: The column is of no table.
    """
    if kind == FILE:
        times = [_of_file(picture) for picture in pictures]
    elif kind == EXIF:
        times = list(in_threads(_of_exif, pictures))
    else:
        times = [time for place in given for time in _of_table(Path(place), kind)]
    return sorted(zip(pictures, times, strict=True), key=lambda one: one[1])


def _of_file(picture: Picture) -> datetime:
    try:
        return _plain(datetime.fromtimestamp(os.stat(picture.name).st_mtime, UTC))  # noqa: PTH116
    except OSError as error:
        raise DataError(
            f"{picture.name}: has no time of its own ({error.strerror}); --time mtime is for files."
        ) from error


def _of_exif(picture: Picture) -> datetime:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(picture.read())) as image:
            exif = image.getexif()
        told = exif.get_ifd(DETAILS).get(TAKEN) or exif.get(CHANGED)
        return datetime.strptime(str(told), "%Y:%m:%d %H:%M:%S")
    except (OSError, ValueError) as error:
        raise DataError(
            f"{picture.name}: its EXIF data tell no time; choose --time mtime or a column."
        ) from error


def _of_table(table: Path, column: str) -> list[datetime]:
    if table.suffix.lower() != ".csv":
        raise SettingsError(f"--time {column}: {table} is no .csv; write mtime, exif or a column.")
    found = []
    for line, row in read_rows(table, [column]):
        try:
            found.append(_plain(datetime.fromisoformat(row[column])))
        except ValueError as error:
            raise DataError(
                f"{table}, line {line}: {row[column]!r} is no time like 2026-05-31T12:00."
            ) from error
    return found


def _plain(time: datetime) -> datetime:
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
