"""One way in: whatever holds labeled images of several domains becomes an `ImageSet`."""

from __future__ import annotations

import csv
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bne.data import layouts
from bne.data.archives import list_archive
from bne.data.datasets import from_dataset, from_saved
from bne.data.entries import (
    Entry,
    folders,
    gather,
    head_of,
    inner_path,
    is_hidden,
    is_image,
    of_file,
    printable,
)
from bne.data.images import KINDS
from bne.data.tables import read_rows
from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bne.data.images import ImageSet

    Listing = Callable[[Path], Iterable[Entry]]

COLUMNS = ("path", "class", "domain")
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar")


def open_images(source: object) -> ImageSet:
    """Lists the images of `source`; they are read and decoded later, one by one.

    Args:
        source: One of

            - a folder `root/domain/class/image`, in which a domain may also be one `.tar` or
              `.zip` with members `class/image`;
            - a folder of WILDS, Dassl or Hugging Face, see `bne.data.layouts`, or one that
              `datasets` has saved;
            - a `.csv` file with the columns path, class and domain, paths relative to it; a
              column group says which images belong together, see `bne.data.splits`;
            - a torch `Dataset` of `(image, label, domain)`, or a Hugging Face dataset with columns
              of these names; see `bne.data.datasets`.

    Hidden files and files that are not images by their extension are passed over.

    Raises:
        DataError: `source` is none of these, or holds no images.
    """
    if not isinstance(source, str | os.PathLike):
        return from_dataset(source)
    path = Path(source)
    if path.is_dir():
        if is_saved(path):
            return from_saved(path)
        listing = find_layout(path) or _list_root
        return gather(listing(path), str(path))
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder.")
    if path.suffix.lower() == ".csv":
        return gather(_list_table(path), str(path))
    raise DataError(
        f"{path}: not a folder or a CSV file; give the folder that holds the domains, each a folder"
        " or an archive."
    )


def is_saved(folder: Path) -> bool:
    """Whether `datasets` has saved a dataset there, or several splits of one."""
    saved = (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    return saved or (folder / "dataset_dict.json").is_file()


def find_layout(root: Path) -> Listing | None:
    """What lists the images of a folder that is laid out so; None for `domain/class/image`."""
    if (root / "rgb_metadata.csv").is_file():
        return layouts.fmow
    columns = _columns(root / layouts.METADATA)
    for wanted, listing in (
        (layouts.CAMELYON, layouts.camelyon),
        (layouts.IWILDCAM, layouts.iwildcam),
    ):
        if set(wanted) <= columns:
            return listing
    tables = (folder / name for folder in (root, *folders(root)) for name in layouts.TABLES)
    if any("file_name" in _columns(table) for table in tables):
        return layouts.image_folder
    if (root / "images").is_dir() and any((root / "splits").glob("*_train_kfold.txt")):
        return layouts.kfold_lists
    domains = folders(root)
    if domains and all({f.name for f in folders(d)} - _BESIDE in _HALVES for d in domains):
        return layouts.halves
    return None


_HALVES = ({"train", "val"}, {"train", "crossval"})
_BESIDE = {"test", layouts.FULL}


def _columns(table: Path) -> set[str]:
    """The names of a table's columns; none if there is no such table."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            if table.suffix == ".jsonl":
                return set(json.loads(file.readline()))
            return set(next(csv.reader(file), ()))
    except (OSError, ValueError, TypeError, RecursionError, csv.Error):
        return set()


def _list_root(root: Path) -> Iterator[Entry]:
    seen = set()
    for path in sorted(root.iterdir()):
        name = path.name.lower()
        if is_hidden(Path(path.name)):
            continue
        if name.endswith(COMPRESSED):
            raise DataError(f"{path}: cannot be read in place; use a plain .tar or a .zip.")
        if path.is_dir():
            domain, entries = path.name, _list_folder(path)
        elif name.endswith((".tar", ".zip")):
            domain, entries = path.stem, list_archive(path, path.stem)
        else:
            continue
        if domain in seen:
            raise DataError(f"{path}: the domain {domain!r} is there twice; remove one.")
        seen.add(domain)
        found = list(entries)
        if not found:
            raise DataError(f"{path}: holds no {KINDS} images; fill or remove it.")
        yield from found


def _list_folder(domain: Path) -> Iterator[Entry]:
    for class_folder in _children(domain):
        if not class_folder.is_dir():
            if is_image(Path(class_folder.name), bytes):
                raise _misplaced(class_folder)
            continue
        for file in _children(class_folder):
            if file.is_dir():
                raise _misplaced(file)
            # A broken link too: it fails, by name, when it is read.
            if is_image(Path(file.name), partial(head_of, file.path)):
                yield Entry(domain.name, class_folder.name, file.name, *of_file(file.path))


def _children(folder: os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as children:
        yield from (child for child in children if not is_hidden(Path(child.name)))


def _misplaced(entry: os.DirEntry[str]) -> DataError:
    return DataError(f"{entry.path}: out of place; the images must lie as root/domain/class/image.")


def _list_table(table: Path) -> Iterator[Entry]:
    """The images listed in a CSV file; their paths are relative to it and stay below its folder."""
    lines: dict[tuple[str, str, str], int] = {}
    for line, row in read_rows(table, COLUMNS):
        path = inner_path(row["path"], f"{table}, line {line}").as_posix()
        first = lines.setdefault((row["domain"], row["class"], path), line)
        if first != line:
            name = printable(f"{row['domain']}/{row['class']}/{path}")
            raise DataError(f"{table}, lines {first} and {line}: {name} occurs twice; remove one.")
        if row.get("group") == "":
            raise DataError(f"{table}, line {line}: 'group' is empty; fill it in.")
        found = of_file(table.parent / path)
        yield Entry(row["domain"], row["class"], path, *found, row.get("group") or "")
    if not lines:
        raise DataError(f"{table}: holds no images; add a line for each below the columns' names.")
