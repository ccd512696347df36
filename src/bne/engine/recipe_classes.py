"""Classes that some of the domains lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.data.images import DataError
from bne.data.wording import readable_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.data.images import ImageSet
    from bne.data.splits import Split


def taught_classes(images: ImageSet, splits: Mapping[str, Split]) -> dict[str, set[int]]:
    """The labels of every source domain's training images, by domain."""
    return {
        source: {images.files[number].label for number in split.train}
        for source, split in splits.items()
    }


def missing_classes(images: ImageSet, splits: Mapping[str, Split]) -> dict[str, list[str]]:
    """The classes that a source domain has no training images of though another has.

    Args:
        images: all there are.
        splits: of the source domains, by name.

    Returns:
        Their names, by domain; domains that lack none are absent.
    """
    taught = taught_classes(images, splits)
    of_any = sorted(set().union(*taught.values()))
    missing = {
        source: [images.classes[label] for label in of_any if label not in labels]
        for source, labels in taught.items()
    }
    return {source: classes for source, classes in missing.items() if classes}


def check_classes(images: ImageSet, splits: Mapping[str, Split]) -> None:
    """Refuses source domains that lack classes which others have.

    Raises:
        DataError: One does; the message names all that do and how to train all the same.
    """
    missing = missing_classes(images, splits)
    if missing:
        gaps = [f"{d} has no images of {readable_list(names)}" for d, names in missing.items()]
        raise DataError(
            f"{readable_list(gaps, '; ')} to train on, though other source domains have; add "
            "some, or train with such gaps by allow_gaps=True (--allow-gaps)."
        )


def check_target(images: ImageSet, splits: Mapping[str, Split], target: Sequence[str]) -> None:
    """Refuses target domains without images, and classes of theirs that no source domain has.

    Raises:
        DataError: There is one; the message names it.
    """
    taught = set().union(*taught_classes(images, splits).values())
    for domain in target:
        numbers = images.indices_of([domain])
        if not numbers:
            raise DataError(f"The target {domain!r} has no images; hold out another.")
        for number in numbers:
            label = images.files[number].label
            if label not in taught:
                raise DataError(
                    f"target {domain} has the class {images.classes[label]!r}, of which no source "
                    "domain has an image to train on; remove the class, or add images to a source."
                )
