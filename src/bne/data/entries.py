"""An image as its source finds it: where it belongs, how its bytes are read, when it changes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from bne.data.dicom import HEAD, is_dicom
from bne.data.images import ImageFile, ImageSet
from bne.errors import DataError
from bne.words import readable_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SUFFIXES = (
    *(".bmp", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"),
    *(".dcm", ".npy"),
)
MAX_BYTES = 256_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """An image before domains and classes have numbers; the last four are an `ImageFile`'s."""

    domain: str
    class_name: str
    file: str
    read: Callable[[], bytes]
    stamp: str
    group: str = ""
    part: str = ""


def gather(entries: Iterable[Entry], where: str) -> ImageSet:
    """Numbers domains and classes in alphabetical order and sorts the images by name.

    Args:
        entries: The images found.
        where: The source's name, for errors.

    Raises:
        DataError: There are no images, or two of the same name.
    """
    found = sorted(entries, key=lambda entry: (entry.domain, entry.class_name, entry.file))
    if not found:
        raise DataError(f"{where}: holds no images; expected domain/class/image below it.")
    domains = {name: i for i, name in enumerate(sorted({entry.domain for entry in found}))}
    classes = {name: i for i, name in enumerate(sorted({entry.class_name for entry in found}))}
    files = {}
    for entry in found:
        name = printable(f"{entry.domain}/{entry.class_name}/{entry.file}")
        if name in files:
            raise DataError(f"{where}: {name} occurs twice; remove or rename one.")
        files[name] = ImageFile(
            name,
            classes[entry.class_name],
            domains[entry.domain],
            entry.read,
            entry.stamp,
            printable(entry.group),
            entry.part,
        )
    return ImageSet(
        tuple(map(printable, domains)), tuple(map(printable, classes)), tuple(files.values())
    )


def read_file(path: str) -> bytes:
    """The bytes of a file; a pipe or a device is no file, and opening one could block."""
    if not os.path.isfile(path):  # noqa: PTH113 - called once an image
        raise DataError(f"{printable(path)}: there is no such file; restore or unlist it.")
    return read_slice(path, 0, None)


def of_file(path: Path | str) -> tuple[Callable[[], bytes], str]:
    """`read` and `stamp` of an entry that is a file."""
    return partial(read_file, str(path)), stamp_of(path)


def read_slice(path: str, offset: int, size: int | None) -> bytes:
    """Reads `size` bytes of a file from `offset`, or all of it; opens it anew, so is thread-safe.

    Raises:
        DataError: The file cannot be read, ends too early, or `size` is over `MAX_BYTES`.
    """
    name = printable(path)
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - called once an image
            file.seek(offset)
            data = file.read(MAX_BYTES + 1 if size is None else min(size, MAX_BYTES + 1))
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}); mend or remove it.") from error
    if len(data) > MAX_BYTES:
        limit = readable_size(MAX_BYTES)
        raise DataError(f"{name}: an image of more than {limit}; make it smaller.")
    if size is not None and len(data) < size:
        raise DataError(f"{name}: the file ends too early; copy or download it again.")
    return data


def stamp_of(path: str | PurePath) -> str:
    """What tells whether a file has changed, short of reading it.

    Size and time of change alone would not do: archives and build systems set the time themselves.
    A file that is not there has a stamp too: it is listed, and fails when it is read.
    """
    try:
        s = os.stat(path)  # noqa: PTH116 - called once an image
    except (OSError, ValueError):
        return "missing"
    return f"{s.st_size}:{s.st_mtime_ns}:{s.st_ctime_ns}:{s.st_dev}:{s.st_ino}"


def is_image(file: PurePath, head: Callable[[], bytes]) -> bool:
    """Whether a file is one to read: an image by its extension, and not hidden.

    DICOM files often have none, or the numbers of an identifier at their end.

    Args:
        file: its name, or its path within a source.
        head: reads the file, or its first `HEAD` bytes; only called if its name does not tell.
    """
    if is_hidden(file):
        return False
    suffix = file.suffix.lower()
    if suffix in SUFFIXES or not (suffix == "" or suffix[1:].isdigit()):
        return suffix in SUFFIXES
    try:
        return is_dicom(head()[:HEAD])
    except DataError:
        return False


def head_of(path: str) -> bytes:
    """The first bytes of a file, empty if it has fewer or is none."""
    try:
        return read_slice(path, 0, HEAD) if os.path.isfile(path) else b""  # noqa: PTH113
    except DataError:
        return b""


def is_hidden(file: PurePath) -> bool:
    """Whether a system put it there: `.DS_Store`, `._photo.jpg`, `__MACOSX/...`."""
    return any(part.startswith((".", "__MACOSX")) for part in file.parts)


def inner_path(name: str, where: str) -> PurePath:
    """The relative path that `name`, from an archive or a table, stands for.

    Raises:
        DataError: It is absolute or climbs with `..`, in the manner of any system; or names a
            drive where there are drives. Elsewhere `c:d` is a folder like any other.
    """
    path = PureWindowsPath(name)  # reads both / and \ and drive letters
    if path.root or ".." in path.parts or (path.drive and os.name == "nt"):
        raise DataError(
            f"{where}: the path {name!r} leads outside; make it relative, without '..'."
        )
    return PurePosixPath(name.replace("\\", "/"))


def printable(name: str) -> str:
    """`name` with control characters and undecodable bytes escaped: names reach the terminal."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def folders(root: Path) -> list[Path]:
    """The folders in one that are not hidden, in order."""
    children = sorted(root.iterdir()) if root.is_dir() else []
    return [path for path in children if path.is_dir() and not is_hidden(Path(path.name))]
