"""What a run is made of, so that it is not taken for another."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from bne.engine.files import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.data.images import ImageSet
    from bne.data.splits import Split
    from bne.engine.recipe import Recipe


def materials(
    recipe: Recipe, images: ImageSet, splits: Mapping[str, Split], weights: str | None
) -> dict[str, Any]:
    """Recipe, classes, images by their names, initial weights; plain, for JSON.

    The recipe is here although `recipe.yaml` has it too: people may change that file.

    Args:
        recipe: of the run.
        images: all there are.
        splits: of the source domains, by name.
        weights: SHA-256 of the file of initial weights, if they come from one.
    """

    def digest(numbers: Sequence[int]) -> str:
        names = "\n".join(images.files[number].name for number in numbers)
        return f"{len(numbers)} of digest {hashlib.sha256(names.encode()).hexdigest()[:16]}"

    found: dict[str, Any] = plain(
        {
            "recipe": recipe.to_dict(),
            "classes": images.classes,
            "training images": {d: digest(split.train) for d, split in splits.items()},
            "held-out images": {d: digest(split.validation) for d, split in splits.items()},
            "target images": {d: digest(images.indices_of([d])) for d in recipe.target},
            "initial weights": weights,
            "statistics": recipe.statistics,
        }
    )
    return found
