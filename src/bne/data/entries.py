"""Files among the images that are passed over, since by their extension they are none."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from bne.data.images import MAX_BYTES, ImageFile, ImageSet
from bne.errors import DataError
from bne.words import readable_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import PurePath

SUFFIXES = frozenset({".bmp", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True, slots=True)
class Entry:
    """An image as its source found it, before domains and classes have numbers."""

    domain: str
    class_name: str
    file: str
    read: Callable[[], bytes]
    stamp: str


@dataclass(frozen=True, slots=True)
class FileBytes:
    """Reads one file."""

    path: str

    def __call__(self) -> bytes:
        """The bytes of the file; a pipe or a device is no file, and opening one could block."""
        if not os.path.isfile(self.path):  # noqa: PTH113 - called once an image
            raise DataError(f"{printable(self.path)}: there is no such file; restore or unlist it.")
        return read_slice(self.path, 0, None)


def stamp_of(status: os.stat_result) -> str:
    """What tells whether a file has changed, short of reading it.

    Size and time of change alone would not do: archives and build systems set the time themselves.
    """
    s = status
    return f"{s.st_size}:{s.st_mtime_ns}:{s.st_ctime_ns}:{s.st_dev}:{s.st_ino}"


def stamp_at(path: str | PurePath) -> str:
    """The stamp of a file that may not be there: it is listed, and fails when it is read."""
    try:
        return stamp_of(os.stat(path))  # noqa: PTH116 - called once an image
    except (OSError, ValueError):
        return "missing"


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


def is_image(file: PurePath) -> bool:
    """Whether a file is one to read: an image by its extension, and not hidden."""
    return file.suffix.lower() in SUFFIXES and not is_hidden(file)


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


def gather(entries: Iterable[Entry], where: str) -> ImageSet:
    """Numbers domains and classes in alphabetical order and sorts the images by name.

    Args:
        entries: The images found.
        where: What to call the source in an error.

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
            name, classes[entry.class_name], domains[entry.domain], entry.read, entry.stamp
        )
    return ImageSet(
        tuple(map(printable, domains)), tuple(map(printable, classes)), tuple(files.values())
    )


def printable(name: str) -> str:
    """`name` with control characters and undecodable bytes escaped: names reach the terminal."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def count_passed_over(source: Path) -> Counter[str]:
    """How many files in the domains of a folder are no images, by extension; none of a table's.

    Args:
        source: A folder that `bne.data.open_images` takes, or a table.
    """
    found = Counter[str]()
    for domain in sorted(source.iterdir()) if source.is_dir() else ():
        for file in () if is_hidden(Path(domain.name)) else _list_files(domain):
            if not is_hidden(file) and not is_image(file):
                found[printable(file.suffix.lower())] += 1
    return found


def describe(found: Counter[str]) -> str:
    """One sentence on files that are passed over: how many there are of each extension."""
    count = found.total()
    kinds = ", ".join(f"{suffix or 'none'} {number}" for suffix, number in sorted(found.items()))
    files = "1 file is" if count == 1 else f"{count} files are"
    return f"{files} passed over, by extension: {kinds}."


def _list_files(domain: Path) -> Iterator[PurePath]:
    """Paths of all files in a domain's folder or archive, relative to it."""
    if domain.is_dir():
        for folder, _, names in os.walk(domain, followlinks=True):
            yield from (Path(folder, name).relative_to(domain) for name in names)
    elif domain.suffix.lower() == ".tar":
        with tarfile.open(domain, "r:") as tar:
            yield from (PurePosixPath(member.name) for member in tar if member.isfile())
    elif domain.suffix.lower() == ".zip":
        with zipfile.ZipFile(domain) as archive:
            files = (member for member in archive.infolist() if not member.is_dir())
            yield from (PurePosixPath(file.filename.replace("\\", "/")) for file in files)
