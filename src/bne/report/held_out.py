"""Which images of the data a run had held out from training."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bne.data.images import DataError
from bne.engine.recipe_settings import checked, to_recipe
from bne.engine.setting import split_sources

if TYPE_CHECKING:
    from pathlib import Path

    from bne.data.images import ImageSet
    from bne.data.splits import Split
    from bne.engine.saved import ModelInfo
    from bne.report.training import Training

UNKNOWN = (
    "Which images of the seen domains were held out from training is not known: {}. All of them "
    "count as training images."
)


def held_out_images(
    training: Training | None, info: ModelInfo, images: ImageSet, split_file: Path | None
) -> tuple[frozenset[int], str]:
    """The numbers of images that were held out for validation, and what is not known of that.

    Args:
        training: of the run, if there is one.
        info: about its model.
        images: that may be those of the run, some of them, or others.
        split_file: the benchmark's own split that lies with them, if one does.

    Returns:
        The numbers, and a sentence if they cannot be told.
    """
    if training is None:
        return frozenset(), ""  # of which the page says enough
    seen = [d for d in info.domains if d in images.domains and d not in training.target]
    if not seen:
        return frozenset(), ""
    try:
        recipe = replace(to_recipe(checked(training.settings)), sources=tuple(seen))
        if recipe.validation == "official" and split_file is None:
            raise DataError("The benchmark's own split does not lie with the data.")
        splits = split_sources(recipe, images, split_file)
        _compare(training, splits)
    except DataError as error:
        reason = str(error).removesuffix(".")
        return frozenset(), UNKNOWN.format(reason[0].lower() + reason[1:])
    return frozenset(n for split in splits.values() for n in split.validation), ""


def _compare(training: Training, splits: dict[str, Split]) -> None:
    """Refuses a split of other images than the run's."""
    recorded = training.epochs[-1].validation if training.epochs else {}
    for domain, score in recorded.items():
        if domain in splits and len(splits[domain].validation) != score.images:
            raise DataError(
                f"The run held out {score.images} images of {domain}, but of this data it would "
                f"be {len(splits[domain].validation)}."
            )
