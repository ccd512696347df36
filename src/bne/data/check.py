"""Whether a copy of a dataset is whole and sound: what is there, missing, damaged or repeated."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bne.data.decoding import usable_cores
from bne.data.images import decode
from bne.errors import DataError
from bne.words import readable_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bne.data.benchmarks import Benchmark
    from bne.data.images import ImageFile, ImageSet


@dataclass(frozen=True)
class Report:
    """What `check` found; the data is sound when there are no errors.

    Attributes:
        counts: Images by class, then by domain, zeros included.
        errors: What must be mended, one sentence each; unreadable images are among them.
        notes: What one should know, one sentence each.
        unreadable: Names of the images that cannot be read.
        duplicates: Groups of names of images with identical pixels.
    """

    counts: dict[str, dict[str, int]]
    errors: tuple[str, ...]
    notes: tuple[str, ...]
    unreadable: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]


def check(
    images: ImageSet,
    benchmark: Benchmark | None = None,
    advance: Callable[[], object] = lambda: None,
) -> Report:
    """Reads and decodes every image and compares what there is with `benchmark`.

    Identical images within a class of a domain are worth a note: the benchmarks themselves have
    some. Identical images in two domains leak the target into training, and in two classes one
    label is wrong: both are errors.

    Args:
        images: What to check.
        benchmark: What it should hold, if known.
        advance: Called after each image, for a progress bar.
    """
    groups: dict[bytes, list[ImageFile]] = defaultdict(list)
    unreadable: dict[str, str] = {}
    pool = ThreadPoolExecutor(usable_cores())  # decoders release the interpreter lock
    try:
        for file, seen in zip(images.files, pool.map(_look, images.files), strict=True):
            if isinstance(seen, DataError):
                unreadable[file.name] = str(seen)
            else:
                groups[seen].append(file)
            advance()
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt must not wait for what is left
    duplicates = [group for group in groups.values() if len(group) > 1]
    counts = _count(images)
    errors = [
        *_compare_domains(images, counts),
        *(_compare_declaration(images, counts, benchmark) if benchmark else ()),
        *unreadable.values(),
        *_misleading(duplicates),
    ]
    names = tuple(tuple(file.name for file in group) for group in duplicates)
    return Report(counts, tuple(errors), tuple(_harmless(duplicates)), tuple(unreadable), names)


def _look(file: ImageFile) -> bytes | DataError:
    """The digest of an image's pixels, or why it has none."""
    try:
        picture = decode(file.read(), file.name)
    except DataError as error:
        return error
    return hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).digest()


def _count(images: ImageSet) -> dict[str, dict[str, int]]:
    found = Counter((file.label, file.domain) for file in images.files)
    return {
        name: {domain: found[label, i] for i, domain in enumerate(images.domains)}
        for label, name in enumerate(images.classes)
    }


def _compare_domains(images: ImageSet, counts: dict[str, dict[str, int]]) -> Iterator[str]:
    if len(images.domains) < 2:
        yield f"There is one domain only, {images.domains[0]}; add at least one to generalise to."
    if len(images.classes) < 2:
        yield f"There is one class only, {images.classes[0]}; add at least one to tell it from."
    for domain in images.domains:
        absent = [name for name, by_domain in counts.items() if not by_domain[domain]]
        if absent:
            yield f"{domain}: without images of {readable_list(absent)}, which other domains have."


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
        detail = f" ({readable_list(differences, '; ')})" if differences else ""
        yield f"{domain}: {total} images; {benchmark.title} has {expected}{detail}."


def _harmless(duplicates: list[list[ImageFile]]) -> Iterator[str]:
    alike = [group for group in duplicates if len({(f.label, f.domain) for f in group}) == 1]
    copies = sum(len(group) - 1 for group in alike)
    if copies:
        images = "1 image repeats" if copies == 1 else f"{copies} images repeat"
        yield f"{images} another of the same domain and class, pixel by pixel."


def _misleading(duplicates: list[list[ImageFile]]) -> Iterator[str]:
    for group in duplicates:
        names = readable_list([file.name for file in group], " and ")
        if len({file.label for file in group}) > 1:
            yield f"{names} are the same image in different classes; remove the wrong one."
        elif len({file.domain for file in group}) > 1:
            yield f"{names} are the same image in different domains; keep one."
