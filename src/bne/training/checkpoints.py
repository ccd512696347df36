"""Writes checkpoints and models while training goes on, and finds the checkpoint to resume."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from bne.errors import TrainingError
from bne.training.files import (
    plain,
    read_tensors,
    snapshot,
    whole_folder,
    write_json,
    write_tensors,
)
from bne.training.model_folder import ModelInfo, save_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from torch import Tensor

    from bne.methods import Method
    from bne.training.events import Progress
    from bne.training.folder import RunFolder
    from bne.training.runtime import Runtime

FORMAT = 1
KEPT = 2  # the newest ones
TENSORS, STATE = "tensors.safetensors", "state.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A run at one moment: plain numbers and texts, and everything else."""

    state: dict[str, Any]
    tensors: dict[str, Tensor]


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint after a number of steps lies."""
    return folder / f"step-{step:08d}"


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint; its tensors must be a snapshot."""
    with whole_folder(path) as partial:
        content = {
            "format": FORMAT,
            "tensors_sha256": write_tensors(partial / TENSORS, checkpoint.tensors),
            "state_sha256": _digest(checkpoint.state),
            "state": checkpoint.state,
        }
        write_json(partial / STATE, content)


def read(path: Path) -> Checkpoint:
    """Reads a checkpoint.

    Raises:
        TrainingError: It is damaged or of another format.
    """
    try:
        content = json.loads((path / STATE).read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"it has format {content['format']}, this version reads {FORMAT}")
        if _digest(content["state"]) != content["state_sha256"]:
            raise ValueError(f"{path / STATE} is damaged: it has another checksum than was written")
        tensors = read_tensors(path / TENSORS, content["tensors_sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"The checkpoint {path} cannot be read ({error}).") from error
    return Checkpoint(content["state"], tensors)


def all_of(folder: Path) -> list[Path]:
    """All checkpoints, the newest last."""
    return sorted(folder.glob("step-*"))


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if none was ever written.

    Raises:
        TrainingError: There are some, all of them damaged.
    """
    paths = all_of(folder)
    for path in reversed(paths):
        try:
            checkpoint = read(path)
        except TrainingError as error:
            if path == paths[0]:
                raise
            logger.warning("%s", error)
        else:
            skipped = path != paths[-1]
            logger.log(logging.WARNING if skipped else logging.INFO, "Going on from %s.", path)
            return checkpoint
    return None


def prune(folder: Path) -> None:
    """Removes all checkpoints but the newest."""
    for path in all_of(folder)[:-KEPT]:
        shutil.rmtree(path)


def _digest(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


class Keeper:
    """What a run keeps in its folder. Everything is written by one process, in order.

    Tensors are copied at once and written in the background; leaving the context waits for it.

    Attributes:
        lasting: whether the folder stays when the run is over; if not, no models are kept.
    """

    def __init__(self, folder: RunFolder, runtime: Runtime, *, lasting: bool = True) -> None:
        self.lasting = lasting
        self._folder = folder
        self._runtime = runtime
        self._writer = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self._writer.shutdown()

    def resumed(self) -> Checkpoint | None:
        """The newest whole checkpoint, the same for all processes; None if there is none.

        Raises:
            TrainingError: All are damaged.
        """
        processes = self._runtime.processes
        found = newest(self._folder.checkpoints) if processes.first else None
        step = 0 if found is None else found.state["progress"]["step"]
        step = int(processes.sum(torch.tensor(step, device=processes.device)))
        if found is None and step:
            found = read(path_of(self._folder.checkpoints, step))
        return found

    def checkpoint(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Keeps a moment of training."""
        if not self._runtime.processes.first:
            return
        self.wait()
        path = path_of(self._folder.checkpoints, progress.step)
        kept = Checkpoint(plain({"progress": progress.to_dict()}), snapshot(tensors))

        def work() -> None:
            write(path, kept)
            prune(self._folder.checkpoints)

        self._submit(work)

    def model(self, folder: Path, method: Method) -> None:
        """Keeps a method as it is now in a model folder."""
        runtime, recipe = self._runtime, self._runtime.recipe
        if not (self.lasting and runtime.processes.first):
            return
        info = ModelInfo(
            backbone=recipe.backbone,
            classes=runtime.inputs.images.classes,
            domains=runtime.domains,
            method=recipe.method,
            options=plain(recipe.options),
            transform=runtime.transform.to_dict(),
            weights=None if recipe.weights is None else Path(recipe.weights).name,
            lean=plain(method.lean),
        )
        self.wait()
        tensors = snapshot(method.state_dict())
        self._submit(lambda: save_model(folder, tensors, info))

    def advice(self) -> str:
        """What to do when training has gone wrong."""
        self.wait()
        paths = all_of(self._folder.checkpoints)
        last = f"the last good checkpoint is {paths[-1]}" if paths else "there is no checkpoint yet"
        return (
            f"{last}; train anew, in another folder, with a lower learning rate or with clipped "
            "gradients (train.optimiser.clip)."
        )

    def wait(self) -> None:
        """Returns when everything is written.

        Raises:
            TrainingError: It cannot be.
        """
        if self._writing is None:
            return
        try:
            self._writing.result()
        except OSError as error:
            raise TrainingError(
                f"{self._folder.path} cannot be written ({error.strerror}); mend that, then go on "
                "with --resume (resume=True)."
            ) from error

    def _submit(self, work: Callable[[], None]) -> None:
        """Writes meanwhile; `wait` first, so that there is no more than one copy of everything."""
        self._writing = self._writer.submit(work)
