"""What one should know of a recipe and its data before training, though nothing is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.data.wording import readable_list
from bne.engine.setting import split_sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bne.data.images import ImageSet
    from bne.engine.recipe import Recipe


def notes(recipe: Recipe, images: ImageSet, split_file: Path | None) -> Iterator[str]:
    """Classes that a source domain lacks, and an official split that is not followed.

    Args:
        recipe: that fits the images, see `bne.engine.recipe_checks.check_data`.
        images: all there are; none is decoded.
        split_file: of the benchmark, see `bne.engine.recipe_checks.official_split`.

    Yields:
        One sentence each.
    """
    taught = {
        source: {images.files[number].label for number in split.train}
        for source, split in split_sources(recipe, images, split_file).items()
    }
    of_any = sorted(set().union(*taught.values()))
    for source, labels in taught.items():
        absent = [images.classes[label] for label in of_any if label not in labels]
        if absent:
            yield f"{source} has no images of {readable_list(absent)} to train on; others have."
    if split_file and recipe.validation != "official":
        yield (
            f"{split_file} is an official split, which validation={recipe.validation} does not "
            "follow; --set validation=official does."
        )
