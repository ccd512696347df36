import io
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

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
    Undone,
    WeightsAndBiases,
    metrics,
)
from tests.cli.command import Pipe

PHASES = {"head": HeadPhase(epochs=1), "train": Phase(epochs=2, warm_up=1)}
RECIPE = Recipe("bne", ("sketch",), options={"distance": "bhattacharyya"}, **PHASES)
SCORES = {"last": {"sketch": Score(3, 4)}}
RESULT = Result(RECIPE.to_dict(), {}, [], SCORES, "float32", "unseen")


def start(folder: Path, first_step: int = 0) -> Start:
    images = {"splits": {"art": (), "photo": ()}, "validation": {"art": [1, 2], "photo": [3, 4]}}
    whole = SimpleNamespace(classes=("dog", "house"))
    inputs = SimpleNamespace(
        recipe=RECIPE, images=whole, train={}, target={"sketch": [5]}, **images
    )
    return Start(inputs, folder, "cpu", "float32", 2, steps=6, first_step=first_step)


def epoch(phase: str, number: int, stage: str = "train", statistics: str = "running") -> Epoch:
    scores = {"art": Score(1, 2), "photo": Score(4, 4)}, {"sketch": Score(1, 4)}
    return Epoch(phase, number, stage, 2, 1 / 2**number, 1e-3, 1.0, 1234.5, *scores, statistics)


def lines(start: Start, *epochs: Epoch) -> list[str]:
    """What is printed of them."""
    out = io.StringIO()
    with closing(ProgressLines(Console(file=out, width=40))) as listener:
        listener.started(start)
        for one in epochs:
            listener.finished_epoch(one)
    return out.getvalue().splitlines()


def test_lines_say_where_a_run_stands(tmp_path: Path) -> None:
    numbers = "1,234 images/s, validation 75.0 %"
    assert lines(
        start(tmp_path),
        epoch("head", 1, "head"),
        epoch("train", 1, "warm-up"),
        epoch("train", 2, "distance training"),
        epoch("train", 2, "distance training", "exact"),
    ) == [
        "Training: head 1 epoch, warm-up 1 epoch, distance training 1 epoch, 2 steps each.",
        f"head 1/1: loss 0.500, {numbers}, less than a minute left",
        f"train 1/2, warm-up: loss 0.500, {numbers}, less than a minute left",
        f"train 2/2, distance training: loss 0.250, {numbers}",
        f"train 2/2, exact statistics: loss 0.250, {numbers}",
    ]


def test_the_time_left_is_told_by_stage(tmp_path: Path) -> None:
    one = replace(epoch("train", 1, "warm-up"), seconds=600.0)
    (_, line) = lines(start(tmp_path), one)
    # Nothing goes back through the network in the head's phase; a mixture is three passes.
    assert line.endswith("about 33 min left (head 3 min, distance training 30 min)")


def test_a_run_resumed_after_an_early_stop_has_only_exact_statistics_left(tmp_path: Path) -> None:
    (_, line) = lines(start(tmp_path, first_step=4), epoch("train", 1, statistics="exact"))
    assert line.startswith("train 1/2, exact statistics: loss")
    assert "left" not in line


def test_a_network_that_is_undone_is_told_once_and_at_once(tmp_path: Path) -> None:
    right, wrong = {"art": Score(4, 4)}, {"art": Score(1, 4)}
    head = replace(epoch("head", 1), validation=right)
    first = replace(epoch("train", 1), loss=9.0, validation=wrong)
    for told, one in ((1, first), (0, replace(first, loss=0.1))):
        out = io.StringIO()
        with closing(Undone(Console(file=out, width=40))) as listener:
            listener.started(start(tmp_path))
            listener.finished_epoch(head)
            listener.finished_epoch(one)
            assert len(out.getvalue().splitlines()) == told
            for later in (replace(one, epoch=2), replace(one, epoch=2, statistics="exact")):
                listener.finished_epoch(later)
        assert len(out.getvalue().splitlines()) == told


def test_the_bar_shows_phase_epoch_numbers_and_ends_however_the_run_does(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None)
    now = [0.0]

    def fail() -> None:
        with closing(ProgressBar(console, lambda: now[0])) as bar:
            bar.started(start(tmp_path))
            now[0] = 1.0
            bar.finished_epoch(epoch("head", 1, "head"))
            now[0] = 601.0
            bar.stepped(Step("train", 1, "warm-up", 1, 2, 3, 0.25, 1e-3, 99.0, 600.0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    shown = out.getvalue()
    assert "train 1/2, warm-up" in shown
    assert "loss 0.250, 99 images/s, validation 75.0 %" in shown
    assert "70 min left (warm-up 10 min)" in shown
    console.print("afterwards")
    assert out.getvalue().endswith("afterwards\n")  # the bar no longer redraws itself


def test_what_is_printed_to_a_file_is_not_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Pipe()
    monkeypatch.setattr(sys, "stdout", out)
    with closing(ProgressBar(Console(file=io.StringIO(), force_terminal=True))) as bar:
        bar.started(start(tmp_path))
        print("mine")
    assert out.getvalue() == "mine\n"


def test_a_run_that_never_started_leaves_nothing_open(tmp_path: Path) -> None:
    for listener in (ProgressBar(Console(file=io.StringIO())), TensorBoard()):
        listener.close()
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with closing(TensorBoard()) as board:
        board.started(start(tmp_path))
        for one in (epoch("head", 1), epoch("train", 1), epoch("train", 2)):
            board.finished_epoch(one)
        board.finished_epoch(epoch("train", 2, statistics="exact"))
    read = EventAccumulator(str(tmp_path / "tensorboard")).Reload()

    def series(name: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in read.Scalars(name)]

    assert series("train/loss") == [(2, 0.5), (3, 0.25)]
    assert series("head/loss") == [(1, 0.5)]
    assert series("validation/art") == [(1, 50), (2, 50), (3, 50)]
    assert series("target-exact/sketch") == [(3, 25)]


def test_weights_and_biases_hears_all_and_knows_a_resumed_run(tmp_path, monkeypatch) -> None:
    module = Mock(summary={})  # which is its own run
    module.init.return_value = module
    monkeypatch.setitem(sys.modules, "wandb", module)
    for number in (1, 2):
        with closing(WeightsAndBiases()) as listener:
            listener.started(start(tmp_path))
            listener.finished_epoch(epoch("train", number))
    with closing(WeightsAndBiases()) as listener:
        listener.started(start(tmp_path))
        listener.finished(RESULT)
    names = [name for name, *_ in module.method_calls]
    assert names == ["init", "log", "finish"] * 2 + ["init", "finish"]
    begun = [call.kwargs for call in module.init.call_args_list]
    assert len({arguments["id"] for arguments in begun}) == 1
    assert begun[0]["config"]["options.distance"] == "bhattacharyya"
    assert begun[0]["config"]["train.optimiser.learning_rate"] == 1e-3
    logged = [(call.kwargs["step"], call.args[0]) for call in module.log.call_args_list]
    assert [(step, values["train/loss"]) for step, values in logged] == [(2, 0.5), (3, 0.25)]
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


def test_mlflow_hears_all_and_knows_a_resumed_run(tmp_path, monkeypatch) -> None:
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
def test_what_is_not_installed_is_named(listener, module, extra, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SettingsError, match=rf"pip install 'bne\[{extra}\]'"):
        listener()


def test_balanced_accuracy_is_a_metric_where_it_is_known() -> None:
    known = replace(epoch("train", 1), target={"sketch": Score.of([1, 0], [1, 3])})
    found = metrics(known)
    assert (found["target/sketch"], found["target-balanced/sketch"]) == (25, 50)
    assert not any("balanced" in name for name in metrics(epoch("train", 1)))
