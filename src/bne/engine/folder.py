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
        self._metrics = path / "metrics.jsonl"
        self._result = path / "result.json"

    def check(self, recipe: Recipe, *, resume: bool) -> Result | None:
        """Refuses a folder that is another run's; nothing is written.

        Returns:
            The result, if this very run is finished.

        Raises:
            TrainingError: The folder holds a run of another recipe, or an unfinished one that is
                not to be resumed.
        """
        if not self._recipe.exists():
            return None
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
        if self._result.exists():
            return self._finished()
        if not resume and checkpoints.all_of(self.checkpoints):
            raise TrainingError(
                f"{self.path} holds an unfinished run of this recipe; go on with it by --resume "
                "(resume=True), or choose another folder."
            )
        return None

    def _finished(self) -> Result:
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

    def begin(self, recipe: Recipe, environment: Mapping[str, Any], known: Sequence[Epoch]) -> None:
        """Writes what is known before training.

        Args:
            recipe: of the run.
            environment: it runs in.
            known: the epochs that were finished before; others that were recorded are forgotten.
        """
        self.checkpoints.mkdir(parents=True, exist_ok=True)
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
