"""All that a model file says of its model besides the tensors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bne.data.images import Way
from bne.deploy.answers import Calibration
from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT = 2
"""The latest; a file that needs nothing of it is written as 1, which earlier versions read."""
KEY = "bne"
"""The manifest's name among the metadata of a file."""


@dataclass(frozen=True)
class Manifest:
    """A trained model in plain texts and numbers.

    Attributes:
        backbone: name of the network.
        classes: names of the classes, in the order of the logits.
        domains: names of the domains that the model was trained on.
        branches: names of the domains that it has branches for and weighs; empty if it has none.
        method: name of the method that trained it.
        options: of the method.
        distance: name of the distance from images to domains; None if it measures none.
        mix: what is mixed, see `bne.convert`; None if the model weighs no branches.
        lean: share by which normalization leans on each image, one for all layers or by layer.
        transform: from images to the network's input, as `EvalTransform.to_dict` gives it.
        weights: the source or file that training started from; None for random weights.
        recipe: every setting of the run; empty if the run is not known.
        accuracy: scores of the epoch that the model is of: `rule` says which that is, `lean` at
            which share they were measured, a number or "learned"; `target` and `validation` have
            a `bne.training.events.Score` per domain. `target` is empty if no unseen domain was
            tested.
        calibration: measured on held-out source images.
        expected: what to expect at a new domain, as `bne.benchmark.expectation` tells it from runs
            that left each domain out, if that is known.
        map: points of images and domains in the plane, if wanted.
        enrolled: domains that were added without training, by name: `images`, how many; `at`, the
            time; `central`, whether the domain counts in the centre.
        bne: version that trained the model.
    """

    backbone: str
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    branches: tuple[str, ...]
    method: str
    options: Mapping[str, Any]
    distance: str | None
    mix: str | None
    lean: float | Mapping[str, float]
    transform: Mapping[str, Any]
    weights: str | None
    bne: str
    recipe: Mapping[str, Any] = field(default_factory=dict)
    accuracy: Mapping[str, Any] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    map: Mapping[str, Any] | None = field(default=None, repr=False)
    expected: Mapping[str, Any] | None = None
    enrolled: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def central(self) -> int:
        """How many of the branches, the first ones, make up the domains' centre."""
        told = [self.enrolled.get(name, {"central": True}) for name in self.branches]
        return sum(own["central"] for own in told) or len(self.branches)

    @property
    def format(self) -> int:
        """The earliest format that can hold it."""
        return FORMAT if self.enrolled or self.calibration.reference else 1

    @property
    def way(self) -> Way:
        """How images are prepared for the model, as `EvalTransform.way` says it without torch."""
        window = self.transform.get("window")
        return Way(
            int(self.transform["resize"]),
            self.transform.get("fit", "squash"),
            (float(window[0]), float(window[1])) if window else None,
            len(self.transform["preprocessing"]["mean"]),
        )

    def to_json(self) -> str:
        """One line that is the same for the same content."""
        content = asdict(self)
        for name in ("expected", "enrolled"):  # so that files from before keep their checksum
            if not content[name]:
                del content[name]
        if self.calibration.reference is None:
            del content["calibration"]["reference"]
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Manifest:
        """What `to_json` wrote.

        Raises:
            ValueError: A field is missing, unknown or of another kind.
        """
        try:
            names = {key: tuple(fields[key]) for key in ("classes", "domains", "branches")}
            calibration = Calibration.from_dict(fields["calibration"])
            for key in ("backbone", "method"):
                if not isinstance(fields[key], str):
                    raise TypeError(f"{key} is {fields[key]!r}")
            return cls(**{**fields, **names, "calibration": calibration})
        except (KeyError, TypeError) as error:
            raise ValueError(f"its description is not as it must be: {error}") from error


def envelope(manifest: Manifest, checksum: str, **more: Any) -> str:
    """The text that a file keeps under `KEY`: format, checksum and manifest."""
    return json.dumps(
        {"format": manifest.format, "sha256": checksum, **more, "model": manifest.to_json()}
    )


def opened(text: str | None, path: Path) -> tuple[Manifest, dict[str, Any]]:
    """The manifest in what a file keeps under `KEY`, and what stands beside it.

    Raises:
        DataError: There is none, it is damaged, or it is of a later version.
    """
    if text is None:
        raise DataError(f"{path} is no model of BNE; make one with bne bundle or bne export.")
    try:
        beside = json.loads(text)
        form = beside["format"]
        if isinstance(form, int) and form > FORMAT:
            raise DataError(
                f"{path} was written by a later version of BNE (format {form}, this one reads "
                f"{FORMAT}); update with pip install --upgrade bne."
            )
        if form not in range(1, FORMAT + 1):
            raise ValueError(f"its format is {form!r}")
        return Manifest.from_dict(json.loads(beside.pop("model"))), beside
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); copy or make it again.") from error
