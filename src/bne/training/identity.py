"""What tells a run from others: in its folder, in records, and for whoever would resume it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.methods.method import find
from bne.recipes.schema import flat
from bne.training.files import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.data.images import ImageSet
    from bne.recipes.inputs import Inputs
    from bne.recipes.schema import Recipe

_OPTIMISER = {"name": "adam", "learning_rate": 1e-4, "momentum": 0.0, "weight_decay": 0.0}
_PHASE = {
    "optimiser": {**_OPTIMISER, "head_factor": 1.0, "clip": None},
    "schedule": {"name": "constant", "decay": 0.95},
}
# What settings were when the first records were written: a digest tells what differs from it. It
# never changes, whatever defaults become; a setting that comes later joins it, at the value that
# leaves runs as they were.
FIRST: dict[str, Any] = {
    "sources": [],
    "backbone": "resnet18",
    "weights": None,
    "calibrate": False,
    "seed": 0,
    "per_domain": 16,
    "domains_per_step": None,
    "accumulate": 1,
    "epoch": "largest",
    "validation": "auto",
    "group": None,
    "balance": "none",
    "augmentation": "paper",
    "strong": {"area": 0.5, "jitter": 0.3, "hue": 0.3, "gray": 0.1},
    "amplitudes": {"name": None, "chance": 0.5},
    "flip": True,
    "size": None,
    "resize": 256,
    "fit": "squash",
    "range": "full",
    "channels": 3,
    "precision": "bf16",
    "head": {"epochs": 20, **_PHASE},
    "train": {"epochs": 60, "warm_up": 20, **_PHASE},
    "label_smoothing": 0.0,
    "averaging": {"name": None, "decay": 0.999, "tail": 0.25},
    "exact_statistics": False,
    "shrinkage": 0.0,
    "patience": None,
}


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """The whole recipe, ready for JSON, with every option of the method.

    Weights from a file appear under its name alone: it lies elsewhere on another machine. Where
    statistics are measured or weights averaged, `statistics` tells by which version; records
    without it have version 1.
    """
    return _settings(recipe.to_dict(), recipe.statistics)


def _settings(recipe: Mapping[str, Any], statistics: int | None) -> dict[str, Any]:
    options = {**find(recipe["method"]).options, **recipe["options"]}
    weights = Path(recipe["weights"]).name if recipe["weights"] else None
    also = {} if statistics is None else {"statistics": statistics}
    settings: dict[str, Any] = plain({**recipe, "options": options, "weights": weights, **also})
    return settings


@dataclass(frozen=True)
class Identity:
    """What tells a run from others, in its folder and in records; None where it is not known.

    Attributes:
        settings: of the recipe, as `settings_of` gives them; keys that recipes no longer know
            count for nothing.
        weights: SHA-256 of the file of initial weights.
        images: SHA-256 of the names of all images.
        split: the classes, and what images of which names train, validate and test.
        contents: SHA-256 of the names and contents of all images.
    """

    settings: Mapping[str, Any]
    weights: str | None = None
    images: str | None = None
    split: Mapping[str, Any] | None = None
    contents: str | None = None

    @classmethod
    def of(cls, inputs: Inputs, weights: str | None, digests: Sequence[str] = ()) -> Identity:
        """Of a run.

        Args:
            inputs: recipe, images and split.
            weights: SHA-256 of its initial weights, if they come from a file.
            digests: SHA-256 of the content of each image, if known.
        """

        def told(numbers: Sequence[int]) -> str:
            names = "\n".join(inputs.images.files[number].name for number in numbers)
            return f"{len(numbers)} of digest {hashlib.sha256(names.encode()).hexdigest()[:16]}"

        split = {
            "classes": list(inputs.images.classes),
            "training images": {d: told(split.train) for d, split in inputs.splits.items()},
            "held-out images": {d: told(split.validation) for d, split in inputs.splits.items()},
            "target images": {d: told(numbers) for d, numbers in inputs.target.items()},
        }
        names = [file.name for file in inputs.images.files]
        contents = _sha256(sorted(zip(names, digests, strict=True))) if digests else None
        named = images_digest(inputs.images)
        return cls(settings_of(inputs.recipe), weights, named, split, contents)

    @classmethod
    def recorded(cls, settings: Mapping[str, Any], materials: Mapping[str, str | None]) -> Identity:
        """As records have it: settings, and the checksums of weights and images."""
        return cls(settings, materials.get("weights"), materials.get("images"))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Identity:
        """What `asdict` gave, or what the version before wrote instead."""
        if "recipe" not in fields:
            return cls(**fields)
        settings = _settings(fields["recipe"], fields.get("statistics"))
        others = ("recipe", "statistics", "initial weights")
        split = {key: value for key, value in fields.items() if key not in others}
        return cls(settings, fields.get("initial weights"), None, split)

    @cached_property
    def digest(self) -> str:
        """The same for settings that mean the same.

        Only what differs from `FIRST` and from the defaults of the method's options counts: a
        setting or option that came later was at that value before.
        """
        return _sha256(_differing(self._complete(), self._first()))[:16]

    def may_be(self, other: Identity) -> bool:
        """Whether nothing that is known of both differs."""
        return self.digest == other.digest and not self.difference(other)

    def unlike(self, other: Identity, *but: str) -> dict[str, Any]:
        """Settings in which another differs, by dotted key and as they are there, but for some."""
        theirs, ours = (
            {key: value for key, value in flat(one._complete()).items() if key not in but}
            for one in (other, self)
        )
        keys = dict.fromkeys([*ours, *theirs])
        return {key: theirs.get(key) for key in keys if theirs.get(key) != ours.get(key)}

    def difference(self, other: Identity) -> str:
        """The first thing known of both that differs, as it is `there` and here; empty if none."""
        pairs: list[tuple[Mapping[str, Any], ...]] = [(other._complete(), self._complete())]
        if other.weights and self.weights:
            pairs.append(({"initial weights": other.weights}, {"initial weights": self.weights}))
        if other.split and self.split:  # which says more than the names of all images
            pairs.append((other.split, self.split))
        elif other.images and self.images:
            pairs.append(({"images": other.images}, {"images": self.images}))
        if other.contents and self.contents:
            known, own = other.contents, self.contents
            pairs.append(({"the images' content": known}, {"the images' content": own}))
        for theirs, ours in (map(flat, pair) for pair in pairs):
            for key in {**ours, **theirs}:
                there, here = theirs.get(key), ours.get(key)
                if there != here:
                    return f"{key} is {there!r} there and {here!r} here"
        return ""

    def _first(self) -> dict[str, Any]:
        return {**FIRST, "options": plain(find(str(self.settings["method"])).options)}

    def _complete(self) -> dict[str, Any]:
        """Every setting that recipes know."""
        also = ("method", "target", "statistics")
        own = {key: self.settings[key] for key in also if key in self.settings}
        return {**own, **_filled(self._first(), self.settings)}


def images_digest(images: ImageSet) -> str:
    """Of the names of all images, in whatever order, and of the groups that they come with."""
    named = (f"{i.name}\n{i.group}" if i.group else i.name for i in images.files)
    return _sha256(sorted(named))


def _filled(first: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _like(default, values.get(key, default)) for key, default in first.items()}


def _like(default: Any, value: Any) -> Any:
    """A value as its default is: a group with every key; an option without a point is 1.0 too."""
    if isinstance(default, dict):
        return _filled(default, value)
    return float(value) if isinstance(default, float) and isinstance(value, int) else value


def _differing(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    differing = {}
    for key, value in values.items():
        default = defaults.get(key)
        if isinstance(value, dict) and isinstance(default, dict):
            value, default = _differing(value, default), {}
        if key not in defaults or value != default:
            differing[key] = value
    return differing


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
