"""A plan of runs in a file, for a machine that carries them out and knows nothing of their aim."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from bne.benchmark.plan import Item
from bne.errors import DataError
from bne.recipes.schema import checked, to_recipe
from bne.training.environment import weights_sha256
from bne.training.files import plain, write_text
from bne.training.identity import images_digest, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bne.data.images import ImageSet


def write_plan(file: Path, items: Sequence[Item], without: Sequence[str] = ()) -> None:
    """Writes runs for `read_plan`.

    Args:
        file: to write.
        items: runs.
        without: domains of which they may see nothing.
    """
    runs = [
        {
            "experiment": item.experiment,
            "row": item.row,
            "recipe": plain(item.recipe.to_dict()),
            "materials": dict(item.materials),
        }
        for item in items
    ]
    write_text(file, json.dumps({"without": list(without), "runs": runs}, indent=1) + "\n")


def read_plan(file: Path) -> tuple[list[Item], tuple[str, ...]]:
    """The runs of a file, and the domains of which they may see nothing.

    Raises:
        DataError: It is no plan.
        SettingsError: This version does not know a setting in it.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        without = tuple(map(str, content["without"]))
        runs: list[dict[str, Any]] = content["runs"]
        parts = [(str(r["experiment"]), str(r["row"]), dict(r["recipe"])) for r in runs]
        materials = [dict(r["materials"]) for r in runs]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: no plan of runs can be read from it ({error!r}).") from None
    return [
        Item(experiment, row, to_recipe(checked(recipe, str(file))), own)
        for (experiment, row, recipe), own in zip(parts, materials, strict=True)
    ], without


def for_this_machine(
    items: Sequence[Item], images: ImageSet, weights: str | None = None
) -> list[Item]:
    """The same runs, with weights that lie elsewhere here.

    Args:
        items: runs of a plan.
        images: that they are of here, without those of domains that they may not see.
        weights: file of initial weights, instead of the path in the plan.

    Raises:
        DataError: Images or weights are not those of the plan.
    """
    names, checksum = images_digest(images), cache(weights_sha256)
    found = []
    for item in items:
        recipe = replace(item.recipe, weights=weights) if weights else item.recipe
        if item.settings["weights"] != settings_of(recipe)["weights"]:
            raise DataError(
                f"The plan's weights are {item.settings['weights']}; give a file of that name."
            )
        here = {"images": names, "weights": checksum(recipe.weights)}
        for what, known in item.materials.items():
            if known is not None and here.get(what) != known:
                raise DataError(f"The {what} are not those of the plan; give the same.")
        found.append(replace(item, recipe=recipe, materials=here))
    return found
