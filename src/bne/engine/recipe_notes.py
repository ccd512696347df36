"""What one should know of a recipe and its data before training, though nothing is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.data.wording import readable_list
from bne.engine.recipe_classes import missing_classes, taught_classes
from bne.engine.setting import split_sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bne.data.images import ImageSet
    from bne.engine.recipe import Recipe


def notes(recipe: Recipe, images: ImageSet, split_file: Path | None) -> Iterator[str]:
    """Classes that a domain lacks, and an official split that is not followed.

    Args:
        recipe: that fits the images, see `bne.engine.recipe_checks.check_data`.
        images: all there are; none is decoded.
        split_file: of the benchmark, see `bne.engine.recipe_checks.official_split`.

    Yields:
        One sentence each.
    """
    splits = split_sources(recipe, images, split_file)
    for source, classes in missing_classes(images, splits).items():
        yield f"{source} has no images of {readable_list(classes)} to train on; others have."
    taught = set().union(*taught_classes(images, splits).values())
    for target in recipe.target:
        there = {images.files[number].label for number in images.indices_of([target])}
        absent = [images.classes[label] for label in sorted(taught - there)]
        if absent:
            yield (
                f"{target}, a target, has no images of {readable_list(absent)}; its accuracy is "
                "that on the other classes."
            )
    if split_file and recipe.validation not in ("auto", "official"):
        yield (
            f"{split_file} is an official split, which validation={recipe.validation} does not "
            "follow; --set validation=official does."
        )


def held_out(recipe: Recipe, images: ImageSet, split_file: Path | None) -> str:
    """How many source images are held out, and by which split, in a sentence.

    Args:
        recipe: that fits the images.
        images: all there are; none is decoded.
        split_file: of the benchmark.
    """
    splits = split_sources(recipe, images, split_file).values()
    count = sum(len(split.validation) for split in splits)
    total = count + sum(len(split.train) for split in splits)
    way = held_out_way(recipe, split_file)
    return f"Held out for validation: {count} of {total} source images, {way}."


def held_out_way(recipe: Recipe, split_file: Path | None) -> str:
    """By which split images are held out: `10 % of every class`."""
    share = recipe.settle_validation(official=split_file is not None).validation
    if share == "official":
        return f"by the official split {split_file}"
    return f"{100 * float(share):g} % of every class"
