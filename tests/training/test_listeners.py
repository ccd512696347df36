import io
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from bne.errors import SettingsError
from bne.recipes.schema import HeadPhase, Phase, Recipe
from bne.training.events import Epoch, Score, Start, Step
from bne.training.folder import Result
from bne.training.listeners import (
    MLflow,
    ProgressBar,
    ProgressLines,
    TensorBoard,
    WeightsAndBiases,
)

RECIPE = Recipe(
    method="bne",
    target=("sketch",),
    options={"distance": "uniform"},
    head=HeadPhase(epochs=1),
    train=Phase(epochs=2, warm_up=1),
)
RESULT = Result(
    recipe=RECIPE.to_dict(),
    environment={},
    epochs=[],
    accuracy={"last": {"sketch": Score(3, 4)}},
    precision="float32",
    target_images="unseen",
)


def start(folder: Path, first_step: int = 0) -> Start:
    return Start(
        recipe=RECIPE,
        folder=folder,
        device="cpu",
        precision="float32",
        classes=("cat", "dog"),
        sources=("art", "photo"),
        target=("sketch",),
        training_images={"art": 8, "photo": 8},
        steps_per_epoch=2,
        steps=6,
        first_step=first_step,
        processes=1,
    )


def epoch(phase: str, number: int, stage: str = "train", statistics: str = "running") -> Epoch:
    return Epoch(
        phase=phase,
        epoch=number,
        stage=stage,
        steps=2,
        loss=1 / 2**number,
        learning_rate=1e-3,
        seconds=1.0,
        images_per_second=1234.5,
        validation={"art": Score(1, 2), "photo": Score(4, 4)},
        target={"sketch": Score(1, 4)},
        statistics=statistics,
    )


def step(total: int, phase: str = "train", number: int = 1, stage: str = "warm-up") -> Step:
    return Step(
        phase=phase,
        epoch=number,
        stage=stage,
        step=2,
        steps_per_epoch=2,
        total_step=total,
        loss=0.25,
        learning_rate=1e-3,
        images_per_second=99.0,
    )


def test_lines_say_where_a_run_stands(tmp_path: Path) -> None:
    out = io.StringIO()
    with closing(ProgressLines(Console(file=out, width=40))) as lines:
        lines.started(start(tmp_path))
        lines.finished_epoch(epoch("head", 1, "head"))
        lines.finished_epoch(epoch("train", 1, "warm-up"))
        lines.finished_epoch(epoch("train", 2, "distance training"))
        lines.finished_epoch(epoch("train", 2, "distance training", "exact"))
    numbers = "1,234 images/s, validation 75.0 %"
    assert out.getvalue().splitlines() == [
        f"head 1/1: loss 0.500, {numbers}, less than a minute left",
        f"train 1/2, warm-up: loss 0.500, {numbers}, less than a minute left",
        f"train 2/2, distance training: loss 0.250, {numbers}",
        f"train 2/2, exact statistics: loss 0.250, {numbers}",
    ]


def test_the_time_left_counts_only_what_this_run_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, now = io.StringIO(), iter([100.0, 400.0])
    monkeypatch.setattr("bne.training.listeners.time.monotonic", lambda: next(now))
    with closing(ProgressLines(Console(file=out))) as lines:
        lines.started(start(tmp_path, first_step=3))
        lines.finished_epoch(epoch("train", 1))
    assert "about 10 min left" in out.getvalue()  # 300 s for 1 step, 2 to go


def test_a_run_resumed_after_an_early_stop_has_nothing_left_but_exact_statistics(
    tmp_path: Path,
) -> None:
    out = io.StringIO()
    with closing(ProgressLines(Console(file=out))) as lines:
        lines.started(start(tmp_path, first_step=4))
        lines.finished_epoch(epoch("train", 1, statistics="exact"))
    assert out.getvalue().startswith("train 1/2, exact statistics: loss")
    assert "left" not in out.getvalue()


def test_the_bar_shows_phase_epoch_numbers_and_ends_however_the_run_does(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=140, force_terminal=True, color_system=None)

    def fail() -> None:
        with closing(ProgressBar(console)) as bar:
            bar.started(start(tmp_path, first_step=3))
            bar.finished_epoch(epoch("head", 1))
            bar.stepped(step(4))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    shown = out.getvalue()
    assert "train 1/2, warm-up" in shown
    assert "loss 0.250, 99 images/s, validation 75.0 %" in shown
    console.print("afterwards")
    assert out.getvalue().endswith("afterwards\n")  # the bar no longer redraws itself


def test_a_run_that_never_started_leaves_nothing_open(tmp_path: Path) -> None:
    for listener in (ProgressBar(Console(file=io.StringIO())), TensorBoard()):
        listener.close()
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with closing(TensorBoard()) as board:
        board.started(start(tmp_path))
        board.finished_epoch(epoch("head", 1))
        board.finished_epoch(epoch("train", 1))
        board.finished_epoch(epoch("train", 2))
        board.finished_epoch(epoch("train", 2, statistics="exact"))
    read = EventAccumulator(str(tmp_path / "tensorboard")).Reload()

    def series(name: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in read.Scalars(name)]

    assert series("train/loss") == [(2, 0.5), (3, 0.25)]
    assert series("head/loss") == [(1, 0.5)]
    assert series("validation/art") == [(1, 50), (2, 50), (3, 50)]
    assert series("target-exact/sketch") == [(3, 25)]


class Wandb:
    """Stands in for the module `wandb`, and for its run."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict]] = []
        self.summary: dict[str, float] = {}

    def init(self, **arguments: object) -> "Wandb":
        self.calls.append(("init", arguments))
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.calls.append(("log", {"step": step, **values}))

    def finish(self) -> None:
        self.calls.append(("finish", {}))


def test_weights_and_biases_hears_everything_and_knows_a_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    for number in (1, 2):
        with closing(WeightsAndBiases()) as listener:
            listener.started(start(tmp_path))
            listener.finished_epoch(epoch("train", number))
    with closing(WeightsAndBiases()) as listener:
        listener.started(start(tmp_path))
        listener.finished(RESULT)
    names = [name for name, _ in module.calls]
    assert names == ["init", "log", "finish"] * 2 + ["init", "finish"]
    begun = [arguments for name, arguments in module.calls if name == "init"]
    assert len({arguments["id"] for arguments in begun}) == 1
    assert begun[0]["config"]["options.distance"] == "uniform"
    assert begun[0]["config"]["train.optimiser.learning_rate"] == 1e-3
    logged = [arguments for name, arguments in module.calls if name == "log"]
    assert [(values["step"], values["train/loss"]) for values in logged] == [(2, 0.5), (3, 0.25)]
    assert module.summary == {"accuracy-last/sketch": 75.0}


class MlflowClient:
    """Stands in for MLflow's client of one server."""

    def __init__(self) -> None:
        self.experiments: list[str] = []
        self.runs: dict[str, dict] = {}

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(experiment_id="7") if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        self.experiments.append(name)
        return "7"

    def create_run(self, experiment_id: str, run_name: str) -> SimpleNamespace:
        assert experiment_id == "7"
        name = f"{run_name}-{len(self.runs)}"
        self.runs[name] = {"params": {}, "metrics": [], "status": []}
        return SimpleNamespace(info=SimpleNamespace(run_id=name))

    def log_param(self, run_id: str, key: str, value: object) -> None:
        assert self.runs[run_id]["params"].setdefault(key, value) == value

    def log_metric(self, run_id: str, key: str, value: float, step: int) -> None:
        self.runs[run_id]["metrics"].append((key, value, step))

    def set_terminated(self, run_id: str, status: str) -> None:
        self.runs[run_id]["status"].append(status)


def test_mlflow_hears_everything_and_knows_a_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = MlflowClient()
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda: client))
    with closing(MLflow()) as listener:
        listener.started(start(tmp_path))
        listener.finished_epoch(epoch("head", 1))
    with closing(MLflow()) as listener:
        listener.started(start(tmp_path))
        listener.finished(RESULT)
    other = tmp_path / "other"
    other.mkdir()
    with closing(MLflow()) as listener:
        listener.started(start(other))
    assert client.experiments == ["bne"]
    first, second = client.runs.values()
    assert first["params"]["method"] == "bne"
    assert ("head/loss", 0.5, 1) in first["metrics"]
    assert ("accuracy-last/sketch", 75.0, 0) in first["metrics"]
    assert (first["status"], second["status"]) == (["FAILED", "FINISHED"], ["FAILED"])


@pytest.mark.parametrize(
    ("listener", "module", "extra"),
    [
        (TensorBoard, "torch.utils.tensorboard", "train"),
        (WeightsAndBiases, "wandb", "tracking"),
        (MLflow, "mlflow", "tracking"),
    ],
)
def test_what_is_not_installed_is_named_with_what_brings_it(
    listener: type, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SettingsError, match=rf"is not installed; pip install 'bne\[{extra}\]'"):
        listener()
