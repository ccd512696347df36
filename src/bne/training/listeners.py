"""Who hears how a run goes on: the terminal, and the tools that people watch runs with."""

from __future__ import annotations

import re
import secrets
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bne.errors import SettingsError
from bne.recipes.schema import flat
from bne.training.events import Listener
from bne.training.files import named
from bne.training.scores import mean_accuracy

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from bne.training.events import Epoch, Start, Step
    from bne.training.folder import Result

PROJECT = "bne"


class ProgressBar(Listener):
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

    def started(self, start: Start) -> None:
        """Shows the bar, as far as the run was before."""
        self._start = start
        self._task = self._progress.add_task(
            "starting", total=start.steps, completed=start.first_step, numbers=""
        )
        self._progress.start()

    def stepped(self, step: Step) -> None:
        """Moves the bar."""
        self._show(step, step.total_step)

    def finished_epoch(self, epoch: Epoch) -> None:
        """Moves the bar, and shows the validation accuracy from now on."""
        self._validation = _validation(epoch)
        self._show(epoch, _steps_done(epoch, self._start))

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._progress.stop()

    def _show(self, now: Step | Epoch, steps: int) -> None:
        place, numbers = _place(now, self._start), _numbers(now) + self._validation
        self._progress.update(self._task, completed=steps, description=place, numbers=numbers)


class ProgressLines(Listener):
    """One line per epoch, for files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, start: Start) -> None:
        """Notes the time."""
        self._start = start
        self._time = time.monotonic()

    def finished_epoch(self, epoch: Epoch) -> None:
        """Prints the line."""
        line = f"{_place(epoch, self._start)}: {_numbers(epoch)}{_validation(epoch)}"
        self._console.print(line + self._time_left(epoch), highlight=False, soft_wrap=True)

    def _time_left(self, epoch: Epoch) -> str:
        done = _steps_done(epoch, self._start)
        left = self._start.steps - done
        if not left or epoch.statistics == "exact":
            return ""
        seconds = time.monotonic() - self._time
        minutes = seconds / (done - self._start.first_step) * left / 60
        return f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"


def _place(now: Step | Epoch, start: Start) -> str:
    phase = start.recipe.head if now.phase == "head" else start.recipe.train
    exact = getattr(now, "statistics", "running") == "exact"
    stage = ", exact statistics" if exact else f", {now.stage}" if now.stage != now.phase else ""
    return f"{now.phase} {now.epoch}/{phase.epochs}{stage}"


def _steps_done(epoch: Epoch, start: Start) -> int:
    return number(epoch, start) * start.steps_per_epoch


def _numbers(now: Step | Epoch) -> str:
    return f"loss {now.loss:.3f}, {now.images_per_second:,.0f} images/s"


def _validation(epoch: Epoch) -> str:
    return f", validation {mean_accuracy(epoch.validation):.1f} %" if epoch.validation else ""


class TensorBoard(Listener):
    """Writes to the folder `tensorboard` of the run; `tensorboard --logdir runs` shows it."""

    def __init__(self) -> None:
        self._module = _require("torch.utils.tensorboard", "tensorboard", "train")
        self._writer: Any = None

    def started(self, start: Start) -> None:
        """Opens the file."""
        self._start = start
        with named(start.folder / "tensorboard"):
            self._writer = self._module.SummaryWriter(str(start.folder / "tensorboard"))

    def finished_epoch(self, epoch: Epoch) -> None:
        """Writes the epoch's metrics."""
        with named(self._start.folder / "tensorboard"):
            for name, value in metrics(epoch).items():
                self._writer.add_scalar(name, value, number(epoch, self._start))
            self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        if self._writer:
            self._writer.close()


class WeightsAndBiases(Listener):
    """Reports to Weights & Biases, a resumed run to the same place as before."""

    def __init__(self) -> None:
        self._module = _require("wandb", "wandb", "tracking")
        self._run: Any = None

    def started(self, start: Start) -> None:
        """Announces the run."""
        self._start, file = start, start.folder / "wandb.id"
        self._run = self._module.init(
            project=PROJECT,
            name=start.folder.name,
            dir=str(start.folder),
            id=_remembered(file) or _remember(file, secrets.token_hex(8)),
            resume="allow",
            config=flat(start.recipe.to_dict()),
        )

    def finished_epoch(self, epoch: Epoch) -> None:
        """Reports the epoch's metrics."""
        self._run.log(metrics(epoch), step=number(epoch, self._start))

    def finished(self, result: Result) -> None:
        """Reports the accuracy on the target."""
        self._run.summary.update(final(result))

    def close(self) -> None:
        """Ends the report."""
        if self._run:
            self._run.finish()


class MLflow(Listener):
    """Reports to MLflow, to the server that `MLFLOW_TRACKING_URI` names."""

    def __init__(self) -> None:
        self._client = _require("mlflow", "mlflow", "tracking").MlflowClient()
        self._run: str | None = None
        self._status = "FAILED"

    def started(self, start: Start) -> None:
        """Announces the run."""
        self._start = start
        self._run = _remembered(start.folder / "mlflow.id")
        if self._run is None:
            known = self._client.get_experiment_by_name(PROJECT)
            experiment = known.experiment_id if known else self._client.create_experiment(PROJECT)
            run = self._client.create_run(experiment, run_name=start.folder.name)
            self._run = _remember(start.folder / "mlflow.id", run.info.run_id)
        for key, value in flat(start.recipe.to_dict()).items():
            self._client.log_param(self._run, key, value)

    def finished_epoch(self, epoch: Epoch) -> None:
        """Reports the epoch's metrics."""
        for name, value in metrics(epoch).items():
            self._log(name, value, number(epoch, self._start))

    def finished(self, result: Result) -> None:
        """Reports the accuracy on the target."""
        for name, value in final(result).items():
            self._log(name, value, 0)
        self._status = "FINISHED"

    def close(self) -> None:
        """Ends the report."""
        if self._run:
            self._client.set_terminated(self._run, self._status)

    def _log(self, name: str, value: float, step: int) -> None:
        # MLflow allows nothing else in the name of a metric.
        self._client.log_metric(self._run, re.sub(r"[^\w\-. /]", "_", name), value, step=step)


def metrics(epoch: Epoch) -> dict[str, float]:
    """An epoch's numbers by name: losses and rates by phase, accuracies in percent by domain.

    Balanced accuracies have names of their own, `target-balanced/sketch`.
    """
    exact = "-exact" if epoch.statistics == "exact" else ""
    values = {}
    for kind, scores in (("validation", epoch.validation), ("target", epoch.target)):
        for domain, score in scores.items():
            values[f"{kind}{exact}/{domain}"] = score.accuracy
            if score.balanced is not None:
                values[f"{kind}-balanced{exact}/{domain}"] = score.balanced
    if not exact:
        for name in ("loss", "learning_rate", "images_per_second"):
            values[f"{epoch.phase}/{name}"] = getattr(epoch, name)
    return values


def number(epoch: Epoch, start: Start) -> int:
    """An epoch's number in the run, from 1, those of the head phase first."""
    return epoch.epoch + (start.recipe.head.epochs if epoch.phase == "train" else 0)


def final(result: Result) -> dict[str, float]:
    """The accuracy on each target domain under each rule, in percent."""
    return {
        f"accuracy-{rule}/{domain}": score.accuracy
        for rule, scores in result.accuracy.items()
        for domain, score in scores.items()
    }


def _require(module: str, package: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{package} is not installed; pip install 'bne[{extra}]' brings it, or go without."
        ) from error


def _remembered(file: Path) -> str | None:
    return file.read_text() if file.is_file() else None


def _remember(file: Path, name: str) -> str:
    file.write_text(name)
    return name
