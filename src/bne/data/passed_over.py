"""Files among the images that are passed over, since by their extension they are none."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from bne.data.entries import is_hidden, is_image, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePath


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
