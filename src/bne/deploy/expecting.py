"""What a model says of new domains: what leaving each of its domains out in turn has found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bne.benchmark.expectation import expected_of
from bne.benchmark.records import read
from bne.errors import DataError
from bne.recipes.schema import checked, to_recipe
from bne.training.identity import settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from bne.benchmark.expectation import Expectation
    from bne.deploy.manifest import Manifest


def expecting(info: Manifest, records: Path) -> Manifest:
    """What is known of a model, with what to expect of it at a new domain.

    Args:
        info: what is known of it.
        records: file of runs with the same settings, each without one of its domains.

    Raises:
        DataError: There is no such file, or it lacks such runs, or has them on different images.
    """
    if not records.exists():
        raise DataError(
            f"{records}: there is no such file of records; bne benchmark and bne.compare write it."
        )
    found: list[Expectation] = []
    if info.recipe.get("lean") in ("auto", 0):  # at which shares runs are recorded
        settings = settings_of(to_recipe(checked(info.recipe)))
        found = expected_of(settings, info.domains, read(records), leans=bool(info.lean))
    if not found:
        raise DataError(
            f"{records} has no runs of the model's settings that leave out each of its domains; "
            "make them with bne benchmark or bne.compare, by the same recipe and settings."
        )
    if len(found) > 1:
        raise DataError(
            f"{records} has such runs on {len(found)} sets of images; keep those on the images of "
            "the model's run in a file of their own."
        )
    return replace(info, expected=found[0].to_dict())
