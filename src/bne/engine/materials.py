"""What a run is made of, so that it is not taken for another."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from bne.engine.files import plain

if TYPE_CHECKING:
    from bne.engine.setting import Members, Setting


def materials(setting: Setting, weights: str | None) -> dict[str, Any]:
    """Recipe, classes, images by their names, initial weights; plain, for JSON.

    The recipe is here although `recipe.yaml` has it too: people may change that file.

    Args:
        setting: of the run.
        weights: SHA-256 of the file of initial weights, if they come from one.
    """
    found: dict[str, Any] = plain(
        {
            "recipe": setting.recipe.to_dict(),
            "classes": setting.prepared.images.classes,
            "training images": _digests(setting, setting.train),
            "held-out images": _digests(setting, setting.validation),
            "target images": _digests(setting, setting.target),
            "initial weights": weights,
        }
    )
    return found


def _digests(setting: Setting, members: Members) -> dict[str, str]:
    files = setting.prepared.images.files
    return {
        domain: _digest([files[number].name for number in numbers])
        for domain, numbers in members.items()
    }


def _digest(names: list[str]) -> str:
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return f"{len(names)} of digest {digest[:16]}"
