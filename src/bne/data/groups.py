"""Which images belong together, of one patient or one video: no split may part them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bne.errors import DataError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bne.data.images import ImageSet

Groups = tuple[str, ...]
"""The group of every image, in the order of `ImageSet.files`; empty if images have none."""


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
            f"group is {pattern!r}, but the table has a column group; leave one of them out."
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
            f"group {pattern!r} matches {part}, not that of {missed[0]}; change the pattern."
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
            f"group is {pattern!r}, which is no regular expression ({error}); "
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
    first: dict[str, tuple[int, int]] = {}
    for place, numbers in enumerate(sides if groups else ()):
        for number in numbers:
            there, other = first.setdefault(groups[number], (place, number))
            if there != place:
                raise DataError(
                    f"The group {groups[number]} is on both sides of the split, with "
                    f"{images.files[other].name} and {images.files[number].name}; move or remove "
                    "its images on one side."
                )


def _check_telling(images: ImageSet, pattern: str, found: Sequence[str]) -> None:
    count = len(set(found))
    if count == len(found):
        raise SettingsError(
            f"group {pattern!r} puts every image into a group of its own; match only what images "
            "of one group share, or leave it out."
        )
    if count == len({file.domain for file in images.files}):
        raise SettingsError(
            f"group {pattern!r} puts all images of a domain into one group; put parentheses around "
            r"what tells groups apart, as in patient(\d+)."
        )
