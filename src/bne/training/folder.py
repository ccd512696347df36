"""The folder of a run: what lies where, and whose it is."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from filelock import FileLock, Timeout

from bne.errors import TrainingError
from bne.recipes.files import dump, parse
from bne.training import checkpoints
from bne.training.events import Epoch, Scores, scores_from_dict
from bne.training.files import named, plain, write_json, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bne.data.images import ImageSet
    from bne.data.splits import Split
    from bne.recipes.schema import Recipe


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


@dataclass(frozen=True)
class Result:
    """Everything a run has found, kept in `result.json`.

    Attributes:
        recipe: every setting, as `Recipe.to_dict` gives them.
        environment: in which it ran.
        epochs: all records, in order.
        accuracy: scores of every target domain, by rule, see `bne.training.scores.RULES`.
        precision: that was really used, "bf16" or "float32".
        target_images: what training knew of the target's images: "unseen", or "unlabelled" if they
            joined without their labels.
        analysis: what the caller's own analysis of the trained network gave.
        seconds: that the run took, evaluation included.
    """

    recipe: dict[str, Any]
    environment: dict[str, Any]
    epochs: list[Epoch]
    accuracy: dict[str, Scores]
    precision: str
    target_images: Literal["unseen", "unlabelled"]
    analysis: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Result:
        """What `to_dict` gave."""
        epochs = [Epoch.from_dict(epoch) for epoch in fields["epochs"]]
        accuracy = {rule: scores_from_dict(scores) for rule, scores in fields["accuracy"].items()}
        return cls(**{**fields, "epochs": epochs, "accuracy": accuracy})


class RunFolder:
    """Where a run writes.

    Attributes:
        path: the folder.
        checkpoints: the folder of checkpoints.
        model: the folder of the final model.
        best: the folder of the model that was best on the held-out images of the sources.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.model = path / "model"
        self.best = path / "best"
        self._recipe = path / "recipe.yaml"
        self._materials = path / "materials.json"
        self._metrics = path / "metrics.jsonl"
        self._result = path / "result.json"

    def check(self, recipe: Recipe, *, resume: bool) -> None:
        """Refuses a folder that is another run's; nothing is written.

        Raises:
            TrainingError: The folder holds a run of another recipe, or an unfinished one that is
                not to be resumed.
        """
        if not self._recipe.exists():
            return
        try:
            theirs = parse(self._recipe.read_bytes())
        except ValueError:
            theirs = None
        if not isinstance(theirs, dict):
            raise TrainingError(f"{self._recipe} is damaged; choose another folder.")
        if found := difference(theirs, plain(recipe.to_dict())):
            raise TrainingError(
                f"{self.path} holds a run of another recipe ({found}); choose another folder."
            )
        if not resume and not self._result.exists() and checkpoints.all_of(self.checkpoints):
            raise TrainingError(
                f"{self.path} holds an unfinished run of this recipe; go on with it by --resume "
                "(resume=True), or choose another folder."
            )

    def check_materials(self, materials: Mapping[str, Any]) -> None:
        """Refuses a folder whose run is made of other things, as far as these are known.

        Raises:
            TrainingError: It is, or what it is of cannot be read.
        """
        if not (self._result.exists() or checkpoints.all_of(self.checkpoints)):
            return
        try:
            theirs = dict(json.loads(self._materials.read_text()))
        except (OSError, ValueError, TypeError):
            raise TrainingError(
                f"{self._materials} is damaged, or missing as in runs of earlier versions, so that "
                "nobody can tell what the run is of; choose another folder."
            ) from None
        known = {key: ours for key, ours in materials.items() if ours is not None}
        if found := difference({key: theirs.get(key) for key in known}, known):
            raise TrainingError(f"{self.path} holds another run ({found}); choose another folder.")

    def finished(self) -> Result | None:
        """The result, if the run is finished.

        Raises:
            TrainingError: It cannot be read.
        """
        if not self._result.exists():
            return None
        try:
            return Result.from_dict(json.loads(self._result.read_text()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TrainingError(
                f"{self._result} cannot be read ({error!r}); remove it and resume the run."
            ) from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A context in which no other process may train here; it ends with this one.

        Raises:
            TrainingError: Another process does.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(self.path / ".lock").acquire(timeout=0)
        except Timeout:
            raise TrainingError(
                f"Another process trains in {self.path}; wait for it, or choose another folder."
            ) from None
        with lock:
            yield

    def begin(
        self,
        recipe: Recipe,
        materials: Mapping[str, Any],
        environment: Mapping[str, Any],
        known: Sequence[Epoch],
    ) -> None:
        """Writes what is known before training.

        Args:
            recipe: of the run.
            materials: it is made of.
            environment: it runs in.
            known: the epochs that were finished before; others that were recorded are forgotten.
        """
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(self._materials, materials)
        write_text(self._recipe, dump(plain(recipe.to_dict())))
        write_json(self.path / "environment.json", environment)
        write_text(self._metrics, "".join(_line(epoch) for epoch in known))

    def record(self, epoch: Epoch) -> None:
        """Adds an epoch to the metrics."""
        with named(self._metrics), self._metrics.open("a") as file:
            file.write(_line(epoch))

    def finish(self, result: Result) -> None:
        """Writes the result, with which the run is finished."""
        write_json(self._result, result.to_dict())


def difference(theirs: Any, ours: Any, key: str = "") -> str:
    """The first setting that differs, in words; empty if none does."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            place = f"{key}.{name}" if key else str(name)
            if found := difference(theirs.get(name), ours.get(name), place):
                return found
        return ""
    return "" if theirs == ours else f"{key} is {theirs!r} there and {ours!r} here"


def _line(epoch: Epoch) -> str:
    return json.dumps(epoch.to_dict()) + "\n"
