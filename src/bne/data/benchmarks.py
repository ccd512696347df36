"""The benchmarks of the field: what each holds, which targets it tests, where it comes from."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Benchmark:
    """A declaration to check a copy of the images against, and the protocol to test on it.

    Attributes:
        name: Its name on the command line.
        title: Its name in tables.
        domains: Folder or archive names, in alphabetical order.
        classes: The classes' names, in alphabetical order; empty where only their number is
            declared.
        class_count: The number of classes.
        class_counts: For each domain, images per class, in the order of `classes`; empty where not
            declared.
        counts: Images per domain; empty where copies in use differ.
        targets: The groups of domains held out, one experiment each.
        split_file: The official split beside the images, columns domain, file and split.
        origin: The paper, and where the images are to be had.
        terms: The terms of use, as far as the source states them.
    """

    name: str
    title: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    class_count: int
    class_counts: Mapping[str, tuple[int, ...]]
    counts: Mapping[str, int]
    targets: tuple[tuple[str, ...], ...]
    split_file: str | None
    origin: str
    terms: str

    @property
    def provenance(self) -> str:
        """One sentence on where the images come from and under what terms."""
        return f"{self.title}: {self.origin} (terms: {self.terms})."


def declare(name: str, fields: Mapping[str, Any]) -> Benchmark:
    """A benchmark from what is written of it in `benchmarks.toml`; the rest follows.

    Unless written, the targets are each domain once, and counts and number of classes add up.
    """
    classes = tuple(fields.get("classes", ()))
    class_counts = {d: tuple(counts) for d, counts in fields.get("class_counts", {}).items()}
    return Benchmark(
        name=name,
        title=fields["title"],
        domains=tuple(fields["domains"]),
        classes=classes,
        class_count=fields.get("class_count", len(classes)),
        class_counts=class_counts,
        counts=fields.get("counts", {d: sum(counts) for d, counts in class_counts.items()}),
        targets=tuple(map(tuple, fields.get("targets", ([d] for d in fields["domains"])))),
        split_file=fields.get("split_file"),
        origin=fields["origin"],
        terms=fields["terms"],
    )


BENCHMARKS: Mapping[str, Benchmark] = {
    name: declare(name, fields)
    for name, fields in tomllib.loads(
        Path(__file__).with_name("benchmarks.toml").read_text(encoding="utf-8")
    ).items()
}
"""All that are declared, by name."""


def find_benchmark(name: str) -> Benchmark:
    """The declaration of that name.

    Raises:
        SettingsError: There is none; the message names the nearest.
    """
    if name not in BENCHMARKS:
        raise SettingsError(f"There is no benchmark {name!r}; {did_you_mean(name, BENCHMARKS)}.")
    return BENCHMARKS[name]
