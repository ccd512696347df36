"""Writes checkpoints and models while training goes on, and finds the checkpoint to resume."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch

from bne.engine import checkpoints
from bne.engine.checkpoints import Checkpoint
from bne.engine.errors import TrainingError
from bne.engine.files import plain
from bne.engine.saved import ModelInfo, save_model
from bne.engine.tensors import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from torch import Tensor

    from bne.engine.folder import RunFolder
    from bne.engine.progress import Progress
    from bne.engine.setting import Setting
    from bne.methods import Method


class Keeper:
    """What a run keeps in its folder. Everything is written by one process, in order.

    Tensors are copied at once and written in the background; leaving the context waits for it.

    Args:
        folder: of the run.
        setting: of the run.
    """

    def __init__(self, folder: RunFolder, setting: Setting) -> None:
        self._folder = folder
        self._setting = setting
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
        processes = self._setting.processes
        found = checkpoints.newest(self._folder.checkpoints) if processes.first else None
        step = 0 if found is None else found.state["progress"]["step"]
        step = int(processes.sum(torch.tensor(step, device=processes.device)))
        if found is None and step:
            found = checkpoints.read(checkpoints.path_of(self._folder.checkpoints, step))
        return found

    def checkpoint(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Keeps a moment of training."""
        if not self._setting.processes.first:
            return
        path = checkpoints.path_of(self._folder.checkpoints, progress.step)
        kept = Checkpoint(plain({"progress": progress.to_dict()}), snapshot(tensors))

        def work() -> None:
            checkpoints.write(path, kept)
            checkpoints.prune(self._folder.checkpoints)

        self._submit(work)

    def model(self, folder: Path, method: Method) -> None:
        """Keeps a method as it is now in a model folder."""
        if not self._setting.processes.first:
            return
        setting = self._setting
        recipe = setting.recipe
        info = ModelInfo(
            backbone=recipe.backbone,
            classes=setting.prepared.images.classes,
            domains=setting.domains,
            method=recipe.method,
            options=plain(recipe.options),
            transform=setting.transform.to_dict(),
            weights=None if recipe.weights is None else Path(recipe.weights).name,
        )
        tensors = snapshot(method.state_dict())
        self._submit(lambda: save_model(folder, tensors, info))

    def advice(self) -> str:
        """What to do when training has gone wrong."""
        self.wait()
        paths = checkpoints.all_of(self._folder.checkpoints)
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
        self.wait()  # no more than one copy of everything in memory; errors show here
        self._writing = self._writer.submit(work)
