"""The training loop: epochs of steps, with their records and checkpoints."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import torch

from bne.engine import selection
from bne.engine.errors import Interrupted, TrainingError
from bne.engine.events import Epoch, Step
from bne.engine.phase import PhaseTraining
from bne.engine.scoring import scores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from bne.engine.events import Listener, PhaseName
    from bne.engine.folder import RunFolder
    from bne.engine.interruption import Interruption
    from bne.engine.keeper import Keeper
    from bne.engine.progress import Progress
    from bne.engine.setting import Setting
    from bne.methods import Method

GPU_STEPS = 50  # between two looks at what the device has computed


class Trainer:
    """Carries out phases of training.

    Args:
        setting: of the run.
        progress: where it stands; kept up to date.
        folder: of the run.
        keeper: of its checkpoints.
        interruption: of the program.
        listeners: hear how it goes.
        graphs: whether steps are recorded as CUDA graphs.
        checkpoint_seconds: the longest time without a checkpoint.
        checkpoint_steps: the most steps without one.
    """

    def __init__(
        self,
        setting: Setting,
        progress: Progress,
        folder: RunFolder,
        keeper: Keeper,
        interruption: Interruption,
        listeners: Sequence[Listener],
        *,
        graphs: bool,
        checkpoint_seconds: float,
        checkpoint_steps: int | None,
    ) -> None:
        self._setting = setting
        self._progress = progress
        self._folder = folder
        self._keeper = keeper
        self._interruption = interruption
        self._listeners = listeners
        self._graphs = graphs
        self._checkpoint_seconds = checkpoint_seconds
        self._checkpoint_steps = checkpoint_steps
        self._look_every = GPU_STEPS if setting.processes.device.type == "cuda" else 1
        self._last_checkpoint = time.monotonic()
        self._started = time.monotonic() - progress.seconds

    @property
    def seconds(self) -> float:
        """That the run has taken, earlier parts included."""
        return time.monotonic() - self._started

    def phase(
        self, name: PhaseName, method: Method, tensors: Mapping[str, Tensor] | None
    ) -> PhaseTraining:
        """Trains to the end of a phase, or until validation no longer gets better.

        Args:
            name: of the phase.
            method: what to train.
            tensors: of the checkpoint to go on from, if it is of this phase.
        """
        training = PhaseTraining(self._setting, name, method, graphs=self._graphs)
        progress = self._progress
        if tensors is not None:
            training.load(tensors)
        else:
            progress.phase, progress.epoch = name, 0
        while progress.epoch < training.settings.epochs and not self._is_stale():
            self._epoch(training)
        return training

    def record(self, epoch: Epoch, method: Method) -> None:
        """Writes a record, and the model if it is the best so far, and tells listeners."""
        self._progress.epochs.append(epoch)
        if selection.best_on_validation(self._progress.epochs) is epoch:
            self._keeper.model(self._folder.best, method)
        if self._setting.processes.first:
            self._folder.record(epoch)
        for listener in self._listeners:
            listener.finished_epoch(epoch)

    def _epoch(self, training: PhaseTraining) -> None:
        setting, progress = self._setting, self._progress
        per_epoch = setting.steps_per_epoch
        training.begin_epoch(progress.epoch)
        batches = setting.batches(training.members, progress.step)
        images = len(batches.domains) * setting.processes.count
        started = time.perf_counter() - progress.epoch_seconds
        for batch in setting.feed.epoch(batches, setting.augmentation):
            training.step(batch, progress.epoch * per_epoch + progress.step % per_epoch)
            progress.step += 1
            if progress.step % per_epoch and self._is_time_to_look():
                self._look(training, images, started)
        loss, stop, _ = self._collect(training)
        progress.epoch_seconds = time.perf_counter() - started
        self._finish_epoch(training, loss, images)
        if stop:
            raise self._interrupted()

    def _is_time_to_look(self) -> bool:
        every = [self._look_every, *([self._checkpoint_steps] if self._checkpoint_steps else [])]
        return any(self._progress.step % steps == 0 for steps in every)

    def _look(self, training: PhaseTraining, images: int, started: float) -> None:
        """Between two steps of an epoch: tells listeners, and saves if it is time to."""
        progress, per_epoch = self._progress, self._setting.steps_per_epoch
        loss, stop, due = self._collect(training)
        progress.epoch_seconds = time.perf_counter() - started
        done = progress.step % per_epoch
        step = Step(
            phase=training.name,
            epoch=progress.epoch + 1,
            stage=training.method.stage,
            step=done,
            steps_per_epoch=per_epoch,
            total_step=progress.step,
            loss=loss / done,
            learning_rate=training.rate,
            images_per_second=images * done / progress.epoch_seconds,
        )
        for listener in self._listeners:
            listener.stepped(step)
        if self._checkpoint_steps and progress.step % self._checkpoint_steps == 0:
            due = True
        if stop or due:
            self._check_weights(training)
            self._checkpoint(training)
        if stop:
            raise self._interrupted()

    def _collect(self, training: PhaseTraining) -> tuple[float, bool, bool]:
        """What all processes know together.

        Returns:
            The sum of the epoch's losses, whether any process is to stop, and whether the time
            has come for a checkpoint.
        """
        processes = self._setting.processes
        overdue = time.monotonic() - self._last_checkpoint > self._checkpoint_seconds
        facts = torch.tensor(
            [0.0, self._interruption.wanted, overdue and processes.first],
            dtype=torch.double,
            device=processes.device,
        )
        facts[0] = training.losses / processes.count
        loss, stop, due = processes.sum(facts).tolist()
        training.losses.copy_(facts[0])
        if not math.isfinite(loss):
            raise self._diverged("the loss is")
        return loss, bool(stop), bool(due)

    def _finish_epoch(self, training: PhaseTraining, loss: float, images: int) -> None:
        setting, progress = self._setting, self._progress
        self._check_weights(training)
        seconds, progress.epoch_seconds = progress.epoch_seconds, 0.0
        progress.epoch += 1
        training.losses.zero_()
        training.average.after_epoch(progress.epoch)
        with training.averaged():
            validation, target = scores(setting, training.method)
            epoch = Epoch(
                phase=training.name,
                epoch=progress.epoch,
                stage=training.method.stage,
                steps=setting.steps_per_epoch,
                loss=loss / setting.steps_per_epoch,
                learning_rate=training.rate,
                seconds=seconds,
                images_per_second=images * setting.steps_per_epoch / seconds,
                validation=validation,
                target=target,
            )
            self.record(epoch, training.method)
        self._checkpoint(training)

    def _checkpoint(self, training: PhaseTraining) -> None:
        self._progress.seconds = self.seconds
        self._keeper.checkpoint(self._progress, training.tensors())
        self._last_checkpoint = time.monotonic()

    def _check_weights(self, training: PhaseTraining) -> None:
        if not training.is_finite():
            raise self._diverged("the weights are")

    def _is_stale(self) -> bool:
        patience, progress = self._setting.recipe.patience, self._progress
        if patience is None:
            return False
        return selection.stale(progress.epochs) >= patience

    def _diverged(self, what: str) -> TrainingError:
        progress = self._progress
        return TrainingError(
            f"After step {progress.step} (epoch {progress.epoch + 1} of phase {progress.phase}) "
            f"{what} no longer finite; {self._keeper.advice()}"
        )

    def _interrupted(self) -> Interrupted:
        self._keeper.wait()
        return Interrupted(
            f"Training was interrupted after step {self._progress.step}; all of it is saved in "
            f"{self._folder.path}: go on with --resume (resume=True)."
        )
