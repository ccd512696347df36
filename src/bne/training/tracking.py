"""A run's metrics, told to the tools that people watch runs with."""

from __future__ import annotations

import re
import secrets
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bne.errors import DataError
from bne.training.files import named
from bne.training.listeners import ClosingListener

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bne.training.events import Epoch, Plan
    from bne.training.folder import Result

PROJECT = "bne"


class TensorBoard(ClosingListener):
    """Writes to the folder `tensorboard` of the run; `tensorboard --logdir runs` shows it."""

    def __init__(self) -> None:
        self._module = _require("torch.utils.tensorboard", "tensorboard", "train")
        self._writer: Any = None

    def started(self, plan: Plan) -> None:
        """Opens the file."""
        self._plan = plan
        with named(plan.folder / "tensorboard"):
            self._writer = self._module.SummaryWriter(str(plan.folder / "tensorboard"))

    def finished_epoch(self, epoch: Epoch) -> None:
        """Writes the epoch's metrics."""
        with named(self._plan.folder / "tensorboard"):
            for name, value in metrics(epoch).items():
                self._writer.add_scalar(name, value, number(epoch, self._plan))
            self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        if self._writer:
            self._writer.close()


class WeightsAndBiases(ClosingListener):
    """Reports to Weights & Biases, a resumed run to the same place as before."""

    def __init__(self) -> None:
        self._module = _require("wandb", "wandb", "tracking")
        self._run: Any = None

    def started(self, plan: Plan) -> None:
        """Announces the run."""
        self._plan = plan
        self._run = self._module.init(
            project=PROJECT,
            name=plan.folder.name,
            dir=str(plan.folder),
            id=_remembered(plan.folder / "wandb.id")
            or _remember(plan.folder / "wandb.id", secrets.token_hex(8)),
            resume="allow",
            config=flat(plan.recipe.to_dict()),
        )

    def finished_epoch(self, epoch: Epoch) -> None:
        """Reports the epoch's metrics."""
        self._run.log(metrics(epoch), step=number(epoch, self._plan))

    def finished(self, result: Result) -> None:
        """Reports the accuracy on the target."""
        self._run.summary.update(final(result))

    def close(self) -> None:
        """Ends the report."""
        if self._run:
            self._run.finish()


class MLflow(ClosingListener):
    """Reports to MLflow, to the server that `MLFLOW_TRACKING_URI` names."""

    def __init__(self) -> None:
        self._client = _require("mlflow", "mlflow", "tracking").MlflowClient()
        self._run: str | None = None
        self._status = "FAILED"

    def started(self, plan: Plan) -> None:
        """Announces the run."""
        self._plan = plan
        self._run = _remembered(plan.folder / "mlflow.id")
        if self._run is None:
            known = self._client.get_experiment_by_name(PROJECT)
            experiment = known.experiment_id if known else self._client.create_experiment(PROJECT)
            run = self._client.create_run(experiment, run_name=plan.folder.name)
            self._run = _remember(plan.folder / "mlflow.id", run.info.run_id)
        for key, value in flat(plan.recipe.to_dict()).items():
            self._client.log_param(self._run, key, value)

    def finished_epoch(self, epoch: Epoch) -> None:
        """Reports the epoch's metrics."""
        for name, value in metrics(epoch).items():
            self._log(name, value, number(epoch, self._plan))

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
    """An epoch's numbers by name: losses and rates by phase, accuracies in percent by domain."""
    values = {
        f"{kind}-exact/{domain}" if epoch.statistics == "exact" else f"{kind}/{domain}": s.accuracy
        for kind, scores in (("validation", epoch.validation), ("target", epoch.target))
        for domain, s in scores.items()
    }
    if epoch.statistics == "running":
        for name in ("loss", "learning_rate", "images_per_second"):
            values[f"{epoch.phase}/{name}"] = getattr(epoch, name)
    return values


def number(epoch: Epoch, plan: Plan) -> int:
    """An epoch's number in the run, from 1, those of the head phase first."""
    return epoch.epoch + (plan.recipe.head.epochs if epoch.phase == "train" else 0)


def final(result: Result) -> dict[str, float]:
    """The accuracy on each target domain under each rule, in percent."""
    return {
        f"accuracy-{rule}/{domain}": score.accuracy
        for rule, scores in result.accuracy.items()
        for domain, score in scores.items()
    }


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted keys."""
    result = {}
    for name, value in settings.items():
        key = prefix + name
        result.update(flat(value, f"{key}.") if isinstance(value, dict) else {key: value})
    return result


def _require(module: str, package: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{package} is not installed; pip install 'bne[{extra}]' brings it, or go without."
        ) from error


def _remembered(file: Path) -> str | None:
    return file.read_text() if file.is_file() else None


def _remember(file: Path, name: str) -> str:
    file.write_text(name)
    return name
