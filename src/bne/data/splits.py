"""Which images of the source domains train and which validate; target domains are in neither."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bne.data.images import DataError
from bne.data.tables import read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.data.images import ImageSet

HELD_OUT = 0.1
"""The share of every class that is held out unless another is asked for."""

PARTS = {"train": True, "crossval": False}


@dataclass(frozen=True)
class Split:
    """The images of one source domain, as ascending indices into `ImageSet.files`."""

    train: tuple[int, ...]
    validation: tuple[int, ...]


def hold_out(
    images: ImageSet, sources: Sequence[str], fraction: float = HELD_OUT, seed: int = 0
) -> dict[str, Split]:
    """Holds out `fraction` of every class of every source domain for validation.

    An image's place depends on `seed` and its name alone: not on the machine, the order of the
    files or the other domains. The share of a class is rounded to whole images, and at least one
    stays in train.

    Args:
        images: All images, targets included.
        sources: The domains to train on.
        fraction: Of each class, between 0 and 1; 0 holds nothing out.
        seed: Another seed holds out others.

    Returns:
        The split of every source domain, by name.

    Raises:
        DataError: A source is unknown or too small for a single validation image, or `fraction`
            is not between 0 and 1.
    """
    if not 0 <= fraction < 1:
        raise DataError(f"The validation fraction is {fraction}; it must be at least 0, below 1.")
    splits = {}
    for source in _at_least_one(sources):
        by_class = defaultdict(list)
        for index in images.indices_of([source]):
            by_class[images.files[index].label].append(index)
        validation = set[int]()
        for indices in by_class.values():
            drawn = sorted(indices, key=lambda i: _draw(images.files[i].name, seed))
            validation.update(drawn[: min(round(fraction * len(drawn)), len(drawn) - 1)])
        if fraction > 0 and not validation:
            raise DataError(
                f"{source}: {fraction:.0%} of its classes is not one image to validate on; hold out"
                " more, with validation=0.3 for instance."
            )
        splits[source] = _split(images, source, validation)
    return splits


def official(images: ImageSet, sources: Sequence[str], table: Path | str) -> dict[str, Split]:
    """Splits as the benchmark's own table says: `train` trains, `crossval` validates.

    Args:
        images: All images, targets included.
        sources: The domains to train on.
        table: A CSV with the columns domain, file (`class/image`) and split.

    Returns:
        The split of every source domain, by name.

    Raises:
        DataError: A source is unknown; or the table lacks one of its images, leaves none of them
            to train on, or is malformed.
    """
    trains = _read_parts(Path(table))
    splits = {}
    for source in _at_least_one(sources):
        names = {index: images.files[index].name for index in images.indices_of([source])}
        absent = [name for name in names.values() if name not in trains]
        if absent:
            raise DataError(
                f"{table}: {len(absent)} images are not in it, the first {absent[0]}; mend the"
                " table."
            )
        validation = {index for index, name in names.items() if not trains[name]}
        if len(validation) == len(names):
            raise DataError(f"{table}: no image of {source} is in train; mend the table.")
        splits[source] = _split(images, source, validation)
    return splits


def _read_parts(table: Path) -> dict[str, bool]:
    """Whether each image, by name, is to train on."""
    trains: dict[str, bool] = {}
    lines: dict[str, int] = {}
    for line, row in read_rows(table, ("domain", "file", "split")):
        if row["split"] not in PARTS:
            raise DataError(
                f"{table}, line {line}: the split {row['split']!r} is neither train nor crossval."
            )
        name = f"{row['domain']}/{row['file']}"
        part, first = PARTS[row["split"]], lines.setdefault(name, line)
        if trains.setdefault(name, part) != part:
            raise DataError(
                f"{table}, lines {first} and {line}: {name} is in train and in crossval; remove"
                " one of the lines."
            )
    return trains


def _at_least_one(sources: Sequence[str]) -> Sequence[str]:
    if not sources:
        raise DataError("There is no source domain to train on; hold out fewer targets.")
    return sources


def _draw(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}/{name}".encode()).digest()


def _split(images: ImageSet, source: str, validation: set[int]) -> Split:
    train = tuple(index for index in images.indices_of([source]) if index not in validation)
    return Split(train, tuple(sorted(validation)))
