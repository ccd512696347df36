"""How a run goes on, on the terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bne.training.events import Listener
from bne.training.scores import mean_accuracy

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rich.console import Console

    from bne.training.events import Epoch, Plan, Step


class ClosingListener(Listener):
    """A listener that holds something open while a run goes on, however that ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases it."""


class ProgressBar(ClosingListener):
    """One bar for the whole run, for a terminal."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = TaskID(0)
        self._validation = ""

    def started(self, plan: Plan) -> None:
        """Shows the bar, as far as the run was before."""
        self._plan = plan
        self._task = self._progress.add_task(
            "starting", total=plan.steps, completed=plan.first_step, numbers=""
        )
        self._progress.start()

    def stepped(self, step: Step) -> None:
        """Moves the bar."""
        self._progress.update(
            self._task,
            completed=step.total_step,
            description=_place(step, self._plan),
            numbers=_numbers(step) + self._validation,
        )

    def finished_epoch(self, epoch: Epoch) -> None:
        """Moves the bar, and shows the validation accuracy from now on."""
        self._validation = _validation(epoch)
        self._progress.update(
            self._task,
            completed=_steps_done(epoch, self._plan),
            description=_place(epoch, self._plan),
            numbers=_numbers(epoch) + self._validation,
        )

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._progress.stop()


class ProgressLines(ClosingListener):
    """One line an epoch, for files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, plan: Plan) -> None:
        """Notes the time."""
        self._plan = plan
        self._start = time.monotonic()

    def finished_epoch(self, epoch: Epoch) -> None:
        """Prints the line."""
        line = f"{_place(epoch, self._plan)}: {_numbers(epoch)}{_validation(epoch)}"
        self._console.print(line + self._time_left(epoch), highlight=False, soft_wrap=True)

    def _time_left(self, epoch: Epoch) -> str:
        done = _steps_done(epoch, self._plan)
        left = self._plan.steps - done
        if not left or epoch.statistics == "exact":
            return ""
        seconds = time.monotonic() - self._start
        minutes = seconds / (done - self._plan.first_step) * left / 60
        return f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"


def _place(now: Step | Epoch, plan: Plan) -> str:
    phase = plan.recipe.head if now.phase == "head" else plan.recipe.train
    exact = getattr(now, "statistics", "running") == "exact"
    stage = ", exact statistics" if exact else f", {now.stage}" if now.stage != now.phase else ""
    return f"{now.phase} {now.epoch}/{phase.epochs}{stage}"


def _steps_done(epoch: Epoch, plan: Plan) -> int:
    before = plan.recipe.head.epochs if epoch.phase == "train" else 0
    return (before + epoch.epoch) * plan.steps_per_epoch


def _numbers(now: Step | Epoch) -> str:
    return f"loss {now.loss:.3f}, {now.images_per_second:,.0f} images/s"


def _validation(epoch: Epoch) -> str:
    return f", validation {mean_accuracy(epoch.validation):.1f} %" if epoch.validation else ""
