"""When two runs are the same run: what is asked for, and what it is asked of."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.engine.recipe import Recipe
from bne.methods.registry import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bne.data.images import ImageSet


@dataclass(frozen=True)
class Materials:
    """What a run starts from besides its recipe; None where it is not known.

    Attributes:
        weights: SHA-256 of the file of initial weights.
        images: SHA-256 of the names of all images.
    """

    weights: str | None = None
    images: str | None = None

    def may_equal(self, other: Materials) -> bool:
        """Whether nothing known of both differs."""
        pairs = ((self.weights, other.weights), (self.images, other.images))
        return all(ours == theirs for ours, theirs in pairs if ours and theirs)

    @classmethod
    def of(cls, weights: str | None, images: ImageSet | None) -> Materials:
        """Reads the weights, where they are a file at hand, and the images' names."""
        return cls(
            _checksum(Path(weights)) if weights else None,
            _digest(sorted(image.name for image in images.files)) if images else None,
        )


def settings(recipe: Recipe) -> dict[str, Any]:
    """The whole recipe, ready for JSON, with every option of the method.

    Weights from a file appear under its name alone: it lies elsewhere on another machine. Where
    statistics are measured, `statistics` tells by which version; records without it have version 1.
    """
    options = {**find(recipe.method).options, **recipe.options}
    weights = Path(recipe.weights).name if recipe.weights else None
    whole = {**recipe.to_dict(), "options": options, "weights": weights}
    if recipe.statistics is not None:
        whole["statistics"] = recipe.statistics
    plain: dict[str, Any] = json.loads(json.dumps(whole))
    return plain


def digest(settings: Mapping[str, Any]) -> str:
    """The same for settings that mean the same.

    Only what differs from today's defaults counts: a setting or option that came later had its
    default's effect before, and a default that has changed since tells old and new apart.
    """
    defaults = _default_settings() | {"options": find(str(settings["method"])).options}
    return _digest(_differing(settings, json.loads(json.dumps(defaults))))[:16]


def _default_settings() -> dict[str, Any]:
    required = {"method": "", "target": ()}
    assert required.keys() == {
        field.name
        for field in fields(Recipe)
        if field.default is MISSING and field.default_factory is MISSING
    }
    return {k: v for k, v in asdict(Recipe(method="", target=())).items() if k not in required}


def _differing(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    differing = {}
    for key, value in values.items():
        default = defaults.get(key)
        if isinstance(value, dict) and isinstance(default, dict):
            value, default = _differing(value, default), {}
        if key not in defaults or value != default:
            differing[key] = value
    return differing


def _checksum(file: Path) -> str | None:
    if not file.is_file():
        return None
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
