"""Whether a copy of a dataset is whole and sound: what is there, missing, damaged or repeated."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bne.data.archives import every_member
from bne.data.benchmarks import Benchmark, find_benchmark
from bne.data.decoding import in_threads
from bne.data.entries import head_of, is_hidden, is_image, printable
from bne.data.images import ImageFile, ImageSet, as_rgb, read
from bne.data.layouts import APART, TRAIN
from bne.data.likeness import Sketch, alike, sketch
from bne.data.sources import find_layout, is_saved, open_images
from bne.data.splits import (
    Groups,
    check_rows,
    groups_of,
    hold_out,
    official,
    official_split,
    published,
    single,
)
from bne.data.values import Tally, Values
from bne.errors import DataError
from bne.words import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import PurePath

    from bne.data.values import Window


@dataclass(frozen=True)
class Report:
    """What was found; the data is sound when there are no errors.

    Attributes:
        counts: Images by class, then by domain, zeros included.
        errors: One sentence for each thing to be mended; unreadable images are among them.
        notes: One sentence for each thing worth knowing.
        unreadable: Names of the images that cannot be read.
        duplicates: Groups of names of images with identical pixels.
        near_duplicates: Groups of names of images that are nearly the same, by a perceptual hash.
        held_out: Those of all these that validate: by the official split, or by the one that
            `bne train` makes with seed 0.
    """

    counts: dict[str, dict[str, int]]
    errors: tuple[str, ...]
    notes: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    duplicates: tuple[tuple[str, ...], ...] = ()
    near_duplicates: tuple[tuple[str, ...], ...] = ()
    held_out: tuple[str, ...] = ()


def check_path(
    path: Path,
    benchmark: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    window: Window | None = None,
    group: str | None = None,
) -> Report:
    """Opens images and checks them with what lies beside them: the official split, other files.

    Args:
        path: A folder or a table that `bne.data.open_images` takes.
        benchmark: Name of the benchmark it should hold, if any.
        progress: A function to call with (images done, images in all).
        window: The values of images of more than 8 bits that become black and white; by default
            their full range.
        group: A pattern on file names, see `bne.data.splits.groups_of`.

    Raises:
        DataError: There are no images there.
        SettingsError: The benchmark is unknown, or the pattern tells no groups apart.
    """
    declared = find_benchmark(benchmark) if benchmark else None
    try:
        images = open_images(path)
    except DataError as error:
        if not declared:
            raise
        raise DataError(f"{error} {declared.provenance}") from error
    table = official_split(path)
    groups = groups_of(images, group)
    report = check(images, declared, progress, window=window, split_file=table, groups=groups)
    errors, notes = list(report.errors), list(report.notes)
    errors += _compare_split(images, table, declared, groups)
    if others := count_passed_over(path):
        kinds = (f"{suffix or 'none'} {number}" for suffix, number in sorted(others.items()))
        files = counted(others.total(), "file")
        notes.append(f"Passed over as no images, by extension: {', '.join(kinds)}; {files}.")
    if declared and errors:
        notes.append(declared.provenance)
    return replace(report, errors=tuple(errors), notes=tuple(notes))


def check(
    images: ImageSet,
    benchmark: Benchmark | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    window: Window | None = None,
    split_file: Path | None = None,
    groups: Groups = (),
) -> Report:
    """Reads and decodes every image and compares what there is with `benchmark`.

    Identical images within a class of a domain are worth a note: the benchmarks themselves have
    some. Identical images in two domains leak the target into training, and in two classes one
    label is wrong: both are errors.

    Args:
        images: The images to check.
        benchmark: A declaration of what they should be, if known.
        progress: A function to call with (images done, images in all).
        window: The values that become black and white, see `check_path`.
        split_file: The official split, if there is one.
        groups: That of every image; those that the images come with if not given.
    """
    tally, seen = Tally(), dict[str, _Look]()
    same: dict[bytes, list[ImageFile]] = defaultdict(list)
    unreadable: dict[str, str] = {}
    results = zip(
        images.files, in_threads(partial(_look, window=window), images.files), strict=True
    )
    for done, (file, result) in enumerate(results, start=1):
        if isinstance(result, DataError):
            unreadable[file.name] = str(result)
        else:
            same[result.digest].append(file)
            seen[file.name] = result
            tally += result.tally
        progress(done, len(images))
    duplicates = [group for group in same.values() if len(group) > 1]
    counts = _count(images)
    clipped = []
    try:
        tally.check(window, ((name, look.tally) for name, look in seen.items()))
    except DataError as error:
        clipped.append(str(error))
    errors = [
        *clipped,
        *_compare_domains(images, counts),
        *(_compare_declaration(images, counts, benchmark) if benchmark else ()),
        *unreadable.values(),
        *_misleading(duplicates),
    ]
    readable = [file for file in images.files if file.name in seen]
    near = [
        [readable[place] for place in group]
        for group in alike([seen[file.name].sketch for file in ([] if clipped else readable)])
        if len({seen[readable[place].name].digest for place in group}) > 1
    ]
    held_out = set()
    if duplicates or near:
        held_out = _held_out(images, split_file, groups or groups_of(images))
    notes = (
        *_once(images, counts),
        *_harmless(duplicates),
        *_alike(duplicates, near, held_out),
        *tally.notes(window if not clipped else None),
    )
    return Report(
        counts,
        tuple(errors),
        notes,
        tuple(unreadable),
        _names(duplicates),
        _names(near),
        tuple(sorted(held_out & {file.name for group in (*duplicates, *near) for file in group})),
    )


def _names(groups: Iterable[list[ImageFile]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(file.name for file in group) for group in groups)


def count_passed_over(source: Path) -> Counter[str]:
    """How many files in the domains of a folder are no images, by extension; none of a table's."""
    found = Counter[str]()
    plain = source.is_dir() and not is_saved(source) and find_layout(source) is None
    for domain in sorted(source.iterdir()) if plain else ():
        for file, head in () if is_hidden(Path(domain.name)) else _list_files(domain):
            if not is_hidden(file) and not is_image(file, head):
                found[printable(file.suffix.lower())] += 1
    return found


def _list_files(domain: Path) -> Iterator[tuple[PurePath, Callable[[], bytes]]]:
    """Paths of all files in a domain's folder or archive, relative to it; and what reads them."""
    if domain.is_dir():
        for folder, _, names in os.walk(domain, followlinks=True):
            for path in (Path(folder, name) for name in names):
                yield path.relative_to(domain), partial(head_of, str(path))
    elif domain.suffix.lower() in (".tar", ".zip"):
        yield from ((member.path, member.read) for member in every_member(domain))


class _Look(NamedTuple):
    """The digest of an image's pixels, its sketch, and what it loses of more than 8 bits."""

    digest: bytes
    sketch: Sketch
    tally: Tally


def _look(file: ImageFile, window: Window | None) -> _Look | DataError:
    """Looks at one image, or says why it cannot be read."""
    from PIL import Image

    try:
        image = read(file.read(), file.name)
        if isinstance(image, Values) and image.array.ndim == 3:
            shown = image.to_8_bits(window)
            picture = Image.fromarray(shown[..., 0])
        else:
            picture = as_rgb(image, window)
            shown = np.asarray(picture)
    except DataError as error:
        return error
    if isinstance(image, Values) and image.array.dtype != np.uint8:
        shown = image.array  # a range may make different images look the same
    pixels = np.ascontiguousarray(shown)
    digest = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()
    return _Look(digest, sketch(picture), Tally.of(image, window))


def _count(images: ImageSet) -> dict[str, dict[str, int]]:
    found = Counter((file.label, file.domain) for file in images.files)
    return {
        name: {domain: found[label, i] for i, domain in enumerate(images.domains)}
        for label, name in enumerate(images.classes)
    }


def _compare_domains(images: ImageSet, counts: dict[str, dict[str, int]]) -> Iterator[str]:
    if len(images.domains) < 2:
        yield f"There is one domain only, {images.domains[0]}; add at least one to generalize to."
    if len(images.classes) < 2:
        yield f"There is one class only, {images.classes[0]}; add at least one to tell it from."
    if found := single(images):
        yield found
    for domain in images.domains:
        absent = [name for name, by_domain in counts.items() if not by_domain[domain]]
        if absent:
            yield f"{domain}: without images of {listed(absent)}, which other domains have."


def _once(images: ImageSet, counts: dict[str, dict[str, int]]) -> Iterator[str]:
    """Classes of which a domain has one image that may train, though others have more."""
    used = tuple(file for file in images.files if file.part != APART)
    once = [
        f"{domain} has one of {name}"
        for name, by_domain in _count(replace(images, files=used)).items()
        for domain, count in by_domain.items()
        if count == 1 < sum(counts[name].values())
    ]
    if once:
        yield f"Single images train, and none validates: {listed(once)}; add images."


def _compare_declaration(
    images: ImageSet, counts: dict[str, dict[str, int]], benchmark: Benchmark
) -> Iterator[str]:
    pairs = [("domain", images.domains, benchmark.domains)]
    if benchmark.classes:
        pairs.append(("class", images.classes, benchmark.classes))
    elif len(images.classes) != benchmark.class_count:
        yield f"{len(images.classes)} classes; {benchmark.title} has {benchmark.class_count}."
    for kind, found, expected in pairs:
        for name in sorted(set(expected) - set(found)):
            yield f"The {kind} {name} of {benchmark.title} is missing."
        for name in sorted(set(found) - set(expected)):
            yield f"The {kind} {name} is no {kind} of {benchmark.title}."
    for domain in benchmark.counts:
        if domain in images.domains:
            yield from _compare_counts(domain, counts, benchmark)


def _compare_counts(
    domain: str, counts: dict[str, dict[str, int]], benchmark: Benchmark
) -> Iterator[str]:
    found = {name: by_domain[domain] for name, by_domain in counts.items()}
    declared = zip(benchmark.classes, benchmark.class_counts.get(domain, ()), strict=False)
    differences = [
        f"{name} {found[name]}, not {expected}"
        for name, expected in declared
        if found.get(name) not in (None, 0, expected)  # absent classes are named elsewhere
    ]
    total, expected = sum(found.values()), benchmark.counts[domain]
    if differences or total != expected:
        detail = f" ({listed(differences, '; ', '; ')})" if differences else ""
        yield f"{domain}: {total} images; {benchmark.title} has {expected}{detail}."


def _compare_split(
    images: ImageSet, table: Path | None, benchmark: Benchmark | None, groups: Groups
) -> Iterator[str]:
    """What is wrong with the official split, if there is or should be one."""
    if table is None:
        if benchmark and benchmark.split_file:
            yield (
                f"The official split of {benchmark.title}, {benchmark.split_file}, is missing; make"
                f" it from the lists that {benchmark.title} is distributed with, see docs/data.md, "
                "or hold out a share with validation=0.1."
            )
        return
    try:
        official(images, images.domains, table, groups)
        check_rows(images, table)
    except DataError as error:
        yield str(error)


def _held_out(images: ImageSet, table: Path | None, groups: Groups) -> set[str]:
    """The names of images that validate: by the official split, or as `bne train` chooses."""
    try:
        if table is None and images.is_split:
            taught = {file.domain for file in images.files if file.part == TRAIN}
            splits = published(images, [images.domains[number] for number in sorted(taught)])
        elif table is None:
            splits = hold_out(images, images.domains, groups=groups)
        else:
            splits = official(images, images.domains, table, groups)
    except DataError:
        return set()
    return {images.files[number].name for one in splits.values() for number in one.validation}


def _alike(
    duplicates: Iterable[list[ImageFile]], near: Sequence[list[ImageFile]], held_out: set[str]
) -> Iterator[str]:
    """What images that are the same, or nearly, mean for splits."""
    if near:
        wide = [group for group in near if len({file.domain for file in group}) > 1]
        apart = f", {len(wide)} of them in several domains" if wide else ""
        count = counted(len(near), "group")
        yield f"Nearly the same, by a perceptual hash: {count} of images{apart}."
    leaks = [
        group
        for group in (*duplicates, *near)
        if {True, False} <= {file.name in held_out for file in group if file.part != APART}
    ]
    if leaks:
        names = listed(file.name for file in leaks[0])
        yield (
            f"Images that train have a copy, or nearly, among those that validate: "
            f"{counted(len(leaks), 'group')}, the first {names}; keep one, or say which belong "
            "together (group)."
        )


def _harmless(duplicates: Iterable[list[ImageFile]]) -> Iterator[str]:
    alike = [group for group in duplicates if len({(f.label, f.domain) for f in group}) == 1]
    copies = sum(len(group) - 1 for group in alike)
    if copies:
        yield f"Repeated within a class of a domain, pixel by pixel: {counted(copies, 'image')}."


def _misleading(duplicates: Iterable[list[ImageFile]]) -> Iterator[str]:
    for group in duplicates:
        names = listed(file.name for file in group)
        if len({file.label for file in group}) > 1:
            yield f"{names} are the same image in different classes; remove the wrong one."
        elif len({file.domain for file in group}) > 1:
            yield f"{names} are the same image in different domains; keep one."
