"""The folder of a run: what lies where, and whose it is."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bne.engine import checkpoints
from bne.engine.errors import TrainingError
from bne.engine.files import plain, write_json, write_text
from bne.engine.result import Result
from bne.engine.yaml_text import dump, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bne.engine.events import Epoch
    from bne.engine.recipe import Recipe


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
        """A context in which no other process may train here; it ends with this one (POSIX only).

        Raises:
            TrainingError: Another process does.
        """
        import fcntl

        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TrainingError(
                    f"Another process trains in {self.path}; wait for it, or choose another folder."
                ) from None
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
        with self._metrics.open("a") as file:
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
