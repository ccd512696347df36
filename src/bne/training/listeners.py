"""Who hears how a run goes on: the terminal, and the tools that people watch runs with."""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bne.errors import SettingsError
from bne.recipes.schema import flat
from bne.training.events import Listener
from bne.training.files import named
from bne.training.pace import RunPace
from bne.training.scores import mean_accuracy, undone
from bne.words import MINUTE, counted, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from rich.console import Console

    from bne.training.events import Epoch, Start, Step
    from bne.training.folder import Result

PROJECT = "bne"


class ProgressBar(Listener):
    """One bar for the whole run, for a terminal: share done and time left, of the stage and all."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._bar = _bar(console)
        self._clock = clock
        self._validation = ""

    def started(self, start: Start) -> None:
        """Shows the bar, as far as the run was before."""
        self._start, self._pace = start, RunPace(start, self._clock)
        self._task = self._bar.add_task("starting", total=1.0, time=self._time, numbers="")
        self._stage = ""
        self._bar.start()

    def stepped(self, step: Step) -> None:
        """Moves the bar."""
        self._pace.stepped(step)
        self._show(step)

    def finished_epoch(self, epoch: Epoch) -> None:
        """Moves the bar, and shows the validation accuracy from now on."""
        self._pace.finished_epoch(epoch)
        self._validation = _validation(epoch)
        self._show(epoch)

    def finishing(self, work: str) -> None:
        """Names what is done after training."""
        self._stage = work
        self._bar.update(self._task, description=work, completed=self._pace.share)

    def finished(self, result: Result) -> None:
        """Says how long it took."""
        took = f"in {duration(result.seconds)}"
        self._bar.update(
            self._task, description="finished", completed=1.0, time=lambda: took, numbers=""
        )

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._bar.stop()

    def _show(self, now: Step | Epoch) -> None:
        self._stage = now.stage
        place, numbers = _place(now, self._start), _numbers(now) + self._validation
        self._bar.update(self._task, description=place, completed=self._pace.share, numbers=numbers)

    def _time(self) -> str:
        """Left of the stage and of all, counted down while nothing is heard."""
        whole = self._pace.remaining()
        if whole is None:
            return "time left: not known yet"
        own = self._pace.left(self._stage) if self._stage in self._pace.works else None
        own = 0.0 if own is None else own - ((self._pace.left() or 0.0) - whole)
        stage = f" ({self._stage} {duration(own)})" if own > 1 and own < whole - 1 else ""
        return f"{duration(whole)} left{stage}"


def _bar(console: Console) -> Any:
    """A bar with its numbers on a line of their own, so that both fit 80 columns."""
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Time(TextColumn):
        def render(self, task: Any) -> Text:
            return Text(task.fields["time"]())

    class Bar(Progress):
        def get_renderables(self) -> Iterable[Any]:
            for task in self.tasks:
                yield self.make_tasks_table([task])
                yield Text(task.fields["numbers"], no_wrap=True, overflow="ellipsis")

    def whole() -> Column:
        return Column(no_wrap=True)

    return Bar(
        TextColumn("{task.description}", table_column=whole()),
        BarColumn(12),
        TextColumn("{task.percentage:>3.0f} %", table_column=whole()),
        Time("", table_column=whole()),
        console=console,
        # What is printed elsewhere than to a screen stays there.
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )


class ShareDone(Listener):
    """Tells by how much the share of a run that is done has grown, 0 to 1 in all.

    Args:
        tell: is called with it.
    """

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell

    def started(self, start: Start) -> None:
        """Notes what there is to do."""
        self._pace = RunPace(start)
        self._told = self._pace.share  # of a run that was interrupted

    def stepped(self, step: Step) -> None:
        """Tells of it."""
        self._pace.stepped(step)
        self._grown()

    def finished_epoch(self, epoch: Epoch) -> None:
        """Tells of it."""
        self._pace.finished_epoch(epoch)
        self._grown()

    def _grown(self) -> None:
        share = self._pace.share
        if share > self._told:  # or a stage takes longer than was expected
            self._tell(share - self._told)
            self._told = share


class ProgressLines(Listener):
    """One line per epoch, for files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, start: Start) -> None:
        """Says what there is to do."""
        self._start, self._pace = start, RunPace(start)
        counts = Counter(cost.stage for cost in self._pace.costs)
        told = (f"{stage} {counted(count, 'epoch')}" for stage, count in counts.items())
        self._print(f"Training: {', '.join(told)}, {counted(start.steps_per_epoch, 'step')} each.")

    def finished_epoch(self, epoch: Epoch) -> None:
        """Prints the line."""
        self._pace.finished_epoch(epoch)
        line = f"{_place(epoch, self._start)}: {_numbers(epoch)}{_validation(epoch)}"
        self._print(line + self._time_left(epoch))

    def _time_left(self, epoch: Epoch) -> str:
        """By stage, where there are several."""
        seconds = self._pace.remaining()
        if not seconds or epoch.statistics == "exact":
            return ""
        if seconds < MINUTE:
            return ", less than a minute left"
        stages = [f"{name} {duration(own)}" for name, own in self._pace.stages() if own >= 1]
        told = f" ({', '.join(stages)})" if len(stages) > 1 else ""
        return f", about {duration(seconds)} left{told}"

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


def _place(now: Step | Epoch, start: Start) -> str:
    phase = start.recipe.head if now.phase == "head" else start.recipe.train
    exact = getattr(now, "statistics", "running") == "exact"
    stage = ", exact statistics" if exact else f", {now.stage}" if now.stage != now.phase else ""
    return f"{now.phase} {now.epoch}/{phase.epochs}{stage}"


def _numbers(now: Step | Epoch) -> str:
    return f"loss {now.loss:.3f}, {now.images_per_second:,.0f} images/s"


def _validation(epoch: Epoch) -> str:
    return f", validation {mean_accuracy(epoch.validation):.1f} %" if epoch.validation else ""


class Undone(Listener):
    """Says once, and as soon as it shows, that training undid what the network knew."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._epochs: list[Epoch] = []
        self._told = False

    def started(self, start: Start) -> None:
        """Notes the number of classes."""
        self._classes = len(start.inputs.images.classes)

    def finished_epoch(self, epoch: Epoch) -> None:
        """Says it."""
        self._epochs.append(epoch)
        if not self._told and (note := undone(self._epochs, self._classes)):
            self._console.print(f"Note: {note}", markup=False, highlight=False, soft_wrap=True)
            self._told = True


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
