"""Which images of the source domains train and which validate; target domains are in neither.

Images of one group, of one patient or one video, stay on one side.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bne.data.layouts import TRAIN, VALIDATION
from bne.data.tables import read_rows
from bne.errors import DataError, SettingsError
from bne.words import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from bne.data.images import ImageSet

HELD_OUT = 0.1
"""The fraction of every class that is held out unless another is asked for."""

SPLIT_FILE = "split.csv"
PARTS = {"train": True, "crossval": False}

Groups = tuple[str, ...]
"""The group of every image, in the order of `ImageSet.files`; empty if images have none."""


@dataclass(frozen=True)
class Split:
    """The images of one source domain, as ascending indices into `ImageSet.files`."""

    train: tuple[int, ...]
    validation: tuple[int, ...]


def single(images: ImageSet) -> str | None:
    """What is wrong with classes of one image, which cannot be both learned and tested, if any."""
    counts = Counter(images.labels)
    alone = [file for file in images.files if counts[file.label] == 1]
    if not alone:
        return None
    names = listed(f"{images.classes[file.label]} ({file.name})" for file in alone)
    return f"There is one image only of {names}; add images, or remove the class."


def hold_out(
    images: ImageSet,
    sources: Sequence[str],
    fraction: float = HELD_OUT,
    seed: int = 0,
    groups: Groups = (),
) -> dict[str, Split]:
    """Holds out `fraction` of every class of every source domain for validation.

    An image's place depends on `seed` and its name alone: not on the machine, the order of the
    files or the other domains. The part of a class is rounded to whole images, and at least one
    stays in train.

    Images of one group stay together, in all domains: whole groups are held out, such that the
    part of every class is as near to `fraction` as they allow.

    Args:
        images: All images, targets included.
        sources: The domains to train on.
        fraction: Part of each class, between 0 and 1; 0 holds nothing out.
        seed: Number that decides which images are held out.
        groups: The group of every image, see `groups_of`.

    Returns:
        The split of every source domain, by name.

    Raises:
        DataError: A source has no images, or too few for a single validation image, or one group
            only.
        SettingsError: A source is unknown, or `fraction` is not between 0 and 1.
    """
    if not 0 <= fraction < 1:
        raise SettingsError(
            f"The validation fraction is {fraction}; it must be at least 0, below 1."
        )

    decided: dict[str, bool] = {}  # groups that an earlier domain has too

    def choose(source: str, indices: list[int]) -> set[int]:
        by_class = defaultdict(list)
        for index in indices:
            by_class[images.files[index].label].append(index)
        wanted = {k: min(round(fraction * len(own)), len(own) - 1) for k, own in by_class.items()}
        validation = set[int]()
        if groups and fraction:
            members = _members(groups, indices, seed)
            if len(members) == 1:
                raise DataError(
                    f"{source}: all its images are of the group {next(iter(members))}, which no "
                    "split may part; add images of others, or hold none out with validation=0."
                )
            labels = {index: images.files[index].label for index in indices}
            decided.update(_choose_groups(members, labels, wanted, decided))
            validation = {index for index in indices if decided[groups[index]]}
        else:
            for label, of_class in by_class.items():
                drawn = sorted(of_class, key=lambda i: _draw(images.files[i].name, seed))
                validation.update(drawn[: wanted[label]])
        if fraction > 0 and not validation:
            raise DataError(
                f"{source}: {fraction:.0%} of its classes is not one image to validate on; "
                f"{_remedy(max(map(len, by_class.values())))}."
            )
        return validation

    return _split(images, sources, choose)


def _members(groups: Groups, indices: Sequence[int], seed: int) -> dict[str, list[int]]:
    """The images of every group, the groups in the order in which they are drawn."""
    members = defaultdict(list)
    for index in indices:
        members[groups[index]].append(index)
    return {group: members[group] for group in sorted(members, key=lambda g: _draw(g, seed))}


def _choose_groups(
    members: Mapping[str, Sequence[int]],
    labels: Mapping[int, int],
    wanted: Mapping[int, int],
    decided: Mapping[str, bool],
) -> dict[str, bool]:
    """Whether each group of a domain validates.

    First those that fit into what is wanted of every class. Then one is held out, or put back, as
    long as that brings the counts nearer to those wanted; if none fits, the one that comes nearest.
    Every class keeps images to train on, as far as other domains allow.

    Args:
        members: the domain's images by group, in the order in which groups are drawn.
        labels: of its images.
        wanted: how many images of each class validate.
        decided: groups whose place is known from other domains.
    """
    counts = {group: Counter(labels[i] for i in own) for group, own in members.items()}
    total, held_out = Counter(labels.values()), Counter[int]()
    chosen = dict.fromkeys(members, False)

    def move(group: str) -> None:
        sign = -1 if chosen[group] else 1
        for label, count in counts[group].items():
            held_out[label] += sign * count
        chosen[group] = not chosen[group]

    def farther(group: str) -> int:
        """By how much moving a group makes the squared distance to the wanted counts larger."""
        sign = -1 if chosen[group] else 1
        lack = {label: wanted[label] - held_out[label] for label in counts[group]}
        return sum(count * (count - 2 * sign * lack[k]) for k, count in counts[group].items())

    def fits(group: str, most: Mapping[int, int]) -> bool:
        return all(held_out[label] + count <= most[label] for label, count in counts[group].items())

    for group in members:
        if decided.get(group):
            move(group)
    most = {label: count - 1 for label, count in total.items()}
    free = [group for group in members if group not in decided]
    for group in free:
        if fits(group, wanted):
            move(group)
    nearer = True
    while nearer:
        nearer = False
        for group in free:
            if farther(group) < 0 and (chosen[group] or fits(group, most)):
                move(group)
                nearer = True
    left = [group for group in free if fits(group, most)]
    if left and not any(chosen.values()) and any(wanted.values()):
        move(min(left, key=farther))
    return chosen


def published(images: ImageSet, sources: Sequence[str]) -> dict[str, Split]:
    """Splits as the images' own layout says, which stands even where it parts groups.

    Images that are neither to train nor to validate on are in no split.

    Args:
        images: All images, targets included, of which `ImageFile.part` says what they are for.
        sources: The domains to train on.

    Raises:
        DataError: A source has no images to train on.
        SettingsError: A source is unknown.
    """
    if not sources:
        raise _no_source()
    splits = {}
    for source in sources:
        own = images.indices_of([source])
        sides = [tuple(i for i in own if images.files[i].part == p) for p in (TRAIN, VALIDATION)]
        splits[source] = Split(*sides)
        if not splits[source].train:
            raise DataError(
                f"{source} has no images to train on in the published split; leave it out of "
                "sources, or hold out a share with validation=0.1."
            )
    return splits


def official(
    images: ImageSet, sources: Sequence[str], table: Path | str, groups: Groups = ()
) -> dict[str, Split]:
    """Splits as the table that lies with the images says: `train` trains, `crossval` validates.

    Images are found in the table by domain, class and path or, whatever folders they lie in, by
    domain, class and file name.

    Args:
        images: All images, targets included.
        sources: The domains to train on.
        table: A CSV with the columns domain, file (`class/image` or `class/path`) and split.
        groups: The group of every image, see `groups_of`.

    Returns:
        The split of every source domain, by name.

    Raises:
        DataError: A source has no images; or the table lacks one of its images, leaves none of
            them to train on, parts a group, or is malformed.
        SettingsError: A source is unknown.
    """
    rows = _read_parts(Path(table))
    lines: dict[int, int] = {}

    def choose(source: str, indices: list[int]) -> set[int]:
        found = {
            index: next((rows[name] for name in _names(images, index) if name in rows), None)
            for index in indices
        }
        absent = [images.files[index].name for index, row in found.items() if row is None]
        if absent:
            count = counted(len(absent), "image")
            raise _faulty(f"{table}: lacks {count}, the first {absent[0]}")
        lines.update({index: row.line for index, row in found.items() if row})
        validation = {index for index, row in found.items() if row and not row.trains}
        if len(validation) == len(indices):
            raise _faulty(f"{table}: no image of {source} is in train")
        return validation

    splits = _split(images, sources, choose)
    sides = zip(*((split.train, split.validation) for split in splits.values()), strict=True)
    if parted := _find_parted(groups, *(list(chain(*side)) for side in sides)):
        first, second = sorted(lines[index] for index in parted)
        raise _faulty(f"{table}, lines {first} and {second}: {_tell(groups, images, parted)}")
    return splits


def check_rows(images: ImageSet, table: Path) -> None:
    """Refuses a split that names images that are not there, in domains that are.

    Args:
        images: all there are, also those that cannot be read.
        table: as `official` takes it.

    Raises:
        DataError: It does; the message has the line.
    """
    known = {name for index in range(len(images)) for name in _names(images, index)}
    for line, row in _rows(table):
        name = f"{row['domain']}/{row['file']}"
        if row["domain"] in images.domains and name not in known:
            raise _faulty(f"{table}, line {line}: there is no image {name}")


def official_split(data: object) -> Path | None:
    """The table `split.csv` that lies with the data, if there is one: PACS's own, or yours.

    Args:
        data: what the images were opened from; only beside a folder or a table can a split lie.
    """
    if not isinstance(data, str | os.PathLike):
        return None
    folder = Path(data) if Path(data).is_dir() else Path(data).parent
    table = folder / SPLIT_FILE
    return table if table.is_file() and table != Path(data) else None


def _split(
    images: ImageSet, sources: Sequence[str], choose: Callable[[str, list[int]], set[int]]
) -> dict[str, Split]:
    """Splits every source by the function that chooses its validation images."""
    if not sources:
        raise _no_source()
    splits = {}
    for source in sorted(sources):  # so that groups of several domains fall as they always do
        indices = images.indices_of([source])
        if not indices:
            raise DataError(f"{source} has no images to train on; leave it out of sources.")
        validation = choose(source, indices)
        train = tuple(index for index in indices if index not in validation)
        splits[source] = Split(train, tuple(sorted(validation)))
    return {source: splits[source] for source in sources}


def _no_source() -> SettingsError:
    return SettingsError("There is no source domain to train on; hold out fewer targets.")


def _draw(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}/{name}".encode()).digest()


def _remedy(largest: int) -> str:
    """How to have an image to validate on, if the largest class has so many."""
    if largest < 2:
        return "add images, or hold none out with validation=0"
    return f"hold out more, with validation={math.ceil(100 / largest) / 100} for instance"


class _Row(NamedTuple):
    """Whether an image is to train on, and the line that says so."""

    trains: bool
    line: int


def _read_parts(table: Path) -> dict[str, _Row]:
    """The row of each image, by the name that it has there."""
    found: dict[str, _Row] = {}
    for line, row in _rows(table):
        if row["split"] not in PARTS:
            raise _faulty(
                f"{table}, line {line}: the split {row['split']!r} is neither train nor crossval"
            )
        name = f"{row['domain']}/{row['file']}"
        own = _Row(PARTS[row["split"]], line)
        first = found.setdefault(name, own)
        if first.trains != own.trains:
            raise _faulty(
                f"{table}, lines {first.line} and {line}: {name} is in train and in crossval"
            )
    return found


def _rows(table: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        return list(read_rows(table, ("domain", "file", "split")))
    except DataError as error:
        raise _faulty(str(error).removesuffix(".")) from error


def _names(images: ImageSet, index: int) -> tuple[str, str]:
    """What a table may call an image: by its path, which a CSV has, or by its file name alone."""
    file = images.files[index]
    name = file.name.rpartition("/")[2]
    return file.name, f"{images.domains[file.domain]}/{images.classes[file.label]}/{name}"


def _faulty(problem: str) -> DataError:
    return DataError(f"{problem}; mend the table, or hold out a share with validation=0.1.")


def groups_of(images: ImageSet, pattern: str | None = None) -> Groups:
    """The groups by a pattern on file names or, without one, those that the images come with.

    Groups that the images come with are the same in all domains. A pattern's are within their
    domain, since each may number its own from 1.

    Args:
        images: all there are.
        pattern: a regular expression, searched in a file's name without domain and class. What its
            parentheses match names the group; without any, the whole match does.

    Raises:
        SettingsError: The pattern is none, misses a file's name, or tells no groups apart; or the
            images come with groups as well.
    """
    if pattern is None:
        named = tuple(file.group for file in images.files)
        return named if any(named) else ()
    if any(file.group for file in images.files):
        raise SettingsError(
            f"group is '{pattern}', but the table has a column group; leave one of them out."
        )
    expression, found, missed = compiled(pattern), [], []
    for file in images.files:
        domain, _, name = file.name.split("/", 2)
        match = expression.search(name)
        if match is None:
            missed.append(file.name)
        else:
            parts = (part or "" for part in match.groups())
            found.append(f"{domain}/{'/'.join(parts) if match.re.groups else match[0]}")
    if missed:
        part = "no file name" if not found else f"{len(found)} of {len(images)} file names"
        raise SettingsError(
            f"group '{pattern}' matches {part}, not that of {missed[0]}; change the pattern."
        )
    _check_telling(images, pattern, found)
    return tuple(found)


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern that can be searched for.

    Raises:
        SettingsError: It is no regular expression.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise SettingsError(
            f"group is '{pattern}', which is no regular expression ({error}); "
            r"write patient(\d+) for example."
        ) from None


def check_apart(groups: Groups, images: ImageSet, *sides: Collection[int]) -> None:
    """Refuses images of one group on two sides of a split.

    Args:
        groups: of all images.
        images: all images.
        sides: numbers of images, one collection for each side.

    Raises:
        DataError: A group is on two sides; the message names it and an image of each.
    """
    if parted := _find_parted(groups, *sides):
        told = _tell(groups, images, parted)
        raise DataError(f"The {told.removeprefix('the ')}; move or remove its images on one side.")


def _find_parted(groups: Groups, *sides: Collection[int]) -> tuple[int, int] | None:
    """Two images of one group on two sides, if there are any."""
    first: dict[str, tuple[int, int]] = {}
    for place, numbers in enumerate(sides if groups else ()):
        for number in numbers:
            there, other = first.setdefault(groups[number], (place, number))
            if there != place:
                return other, number
    return None


def _tell(groups: Groups, images: ImageSet, parted: tuple[int, int]) -> str:
    names = " and ".join(images.files[number].name for number in parted)
    return f"the group {groups[parted[0]]} is on both sides of the split, with {names}"


def _check_telling(images: ImageSet, pattern: str, found: Sequence[str]) -> None:
    count = len(set(found))
    if count == len(found):
        raise SettingsError(
            f"group '{pattern}' puts every image into a group of its own; match only what images "
            "of one group share, or leave it out."
        )
    if count == len({file.domain for file in images.files}):
        raise SettingsError(
            f"group '{pattern}' puts all images of {images.domains[images.files[0].domain]} into "
            "one group, as it does in every domain; put parentheses around what tells groups "
            r"apart, as in patient(\d+)."
        )
