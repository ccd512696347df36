"""Folders as other projects lay them out, read in place: WILDS, Dassl, Hugging Face.

A layout says of every image which part of its published split it is of (`PARTS`). Domains without
training images are kept apart: WILDS holds whole domains out to validate and test on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bne.data.entries import Entry, folders, inner_path, is_image, of_file
from bne.data.tables import read_json_rows, read_rows
from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAIN, VALIDATION, APART = "train", "validation", "apart"
PARTS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "id_val", "crossval"), VALIDATION),
    **dict.fromkeys(("test", "testing", "id_test"), APART),
}
METADATA = "metadata.csv"
TABLES = (METADATA, "metadata.jsonl")  # of an ImageFolder
FULL = "full"

CAMELYON = ("patient", "node", "x_coord", "y_coord", "tumor", "center", "split")
CAMELYON_APART = ("1", "2")  # centers to validate and to test on
IWILDCAM = ("filename", "location_remapped", "y", "split")
FMOW = ("split", "category", "timestamp")
FMOW_APART = ((2016, "test"), (2013, "val"))  # years from then on, and their rows that count


def camelyon(root: Path) -> Iterator[Entry]:
    """Camelyon17 of WILDS: a domain per center, groups by patient."""
    for line, row in read_rows(root / METADATA, CAMELYON):
        node = f"patient_{row['patient']}_node_{row['node']}"
        file = f"patches/{node}/patch_{node}_x_{row['x_coord']}_y_{row['y_coord']}.png"
        part = {"0": TRAIN, "1": VALIDATION}.get(row["split"])
        if part is None:
            raise _unknown_part(root / METADATA, line, row["split"])
        yield _entry(
            root,
            f"center{row['center']}",
            "tumor" if row["tumor"] == "1" else "normal",
            file,
            f"patient {row['patient']}",
            APART if row["center"] in CAMELYON_APART else part,
        )


def iwildcam(root: Path) -> Iterator[Entry]:
    """The camera traps of WILDS: a domain per location, groups by sequence."""
    names = {}
    if (table := root / "categories.csv").is_file():
        names = {row["y"]: row["name"] for _, row in read_rows(table, ("y", "name"))}
    parts = {**PARTS, "val": APART}  # the locations to validate on; id_val is of those that train
    for line, row in read_rows(root / METADATA, IWILDCAM):
        if row["split"] not in parts:
            raise _unknown_part(root / METADATA, line, row["split"])
        yield _entry(
            root,
            f"location{row['location_remapped']}",
            names.get(row["y"], row["y"]),
            f"train/{inner_path(row['filename'], f'{root / METADATA}, line {line}')}",
            row.get("sequence_remapped") or row.get("seq_id") or "",
            parts[row["split"]],
        )


def fmow(root: Path) -> Iterator[Entry]:
    """The satellite images of WILDS: a domain per year; rows that it leaves out are left out.

    These are the split `seq`, and in the years kept apart all splits but one: the others show
    places that earlier years train on.
    """
    table = root / "rgb_metadata.csv"
    for number, (line, row) in enumerate(read_rows(table, FMOW)):
        split, year = row["split"], row["timestamp"][:4]
        if split not in (*PARTS, "seq") or not year.isdigit():
            raise _unknown_part(table, line, f"{split} of {row['timestamp']}")
        late = next((counts for first, counts in FMOW_APART if int(year) >= first), None)
        if split == "seq" or late not in (None, split):
            continue
        part = APART if late else PARTS[split]
        yield _entry(root, year, row["category"], f"images/rgb_img_{number}.png", "", part)


def kfold_lists(root: Path) -> Iterator[Entry]:
    """PACS as Dassl has it: the images in `images`, lists of them in `splits`."""
    for kind in ("train", "crossval"):
        for table in sorted((root / "splits").glob(f"*_{kind}_kfold.txt")):
            for line, text in enumerate(table.read_text().splitlines(), 1):
                if not text.strip():
                    continue
                path = inner_path(text.split()[0], f"{table}, line {line}")
                if len(path.parts) != 3:
                    raise DataError(f"{table}, line {line}: {text!r} is not domain/class/image.")
                domain, name, file = path.parts
                place = root / "images" / path
                yield Entry(domain, name, file, *of_file(place), part=PARTS[kind])


def halves(root: Path) -> Iterator[Entry]:
    """Dassl's other folders: `domain/train/class/image`, the same in `val` or `crossval`.

    The folder `full` of VLCS has the images of the others once more.
    """
    for domain in folders(root):
        for half in folders(domain):
            if half.name == FULL:
                continue
            for folder in folders(half):
                for file in sorted(folder.iterdir()):
                    if is_image(Path(file.name), bytes):
                        name = f"{half.name}/{file.name}"
                        part = PARTS[half.name]
                        yield Entry(domain.name, folder.name, name, *of_file(file), part=part)


def image_folder(root: Path) -> Iterator[Entry]:
    """Hugging Face's ImageFolder: a table in each folder tells of the images below it.

    Columns file_name and domain; label or class, or else the images' folders are the classes;
    group if there are any. Folders named train, validation and test are the published split.
    """
    tables = [folder / name for folder in (root, *folders(root)) for name in TABLES]
    tables = [table for table in tables if table.is_file()]
    split = {TRAIN, VALIDATION} <= {PARTS.get(table.parent.name) for table in tables}
    for table in tables:
        folder = table.parent
        read = read_json_rows if table.suffix == ".jsonl" else read_rows
        for line, row in read(table, ("file_name", "domain")):
            path = inner_path(row["file_name"], f"{table}, line {line}")
            name = row.get("label") or row.get("class") or (path.parts[-2:-1] or ("",))[0]
            if not name:
                raise DataError(f"{table}, line {line}: no column label or class tells the class.")
            file = (folder / path).relative_to(root).as_posix()
            part = PARTS.get(folder.name, APART) if split else ""
            yield _entry(root, row["domain"], name, file, row.get("group") or "", part)


def _entry(root: Path, domain: str, name: str, file: str, group: str, part: str) -> Entry:
    return Entry(domain, name, file, *of_file(root / file), group, part)


def _unknown_part(table: Path, line: int, found: str) -> DataError:
    return DataError(f"{table}, line {line}: the split {found!r} is unknown; copy the table anew.")
