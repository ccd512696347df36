"""Training that is killed and resumed against training that is not."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bne.errors import Interrupted, TrainingError
from bne.recipes.schema import Amplitudes, Averaging, HeadPhase, Phase
from bne.training.events import Epoch, Listener
from bne.training.pace import LEANING
from tests.training import small

METHODS = ("bne", "deepall")
RIVALS = ("metareg", "epi-fcr")  # their stages train other parameters
STEPS_PER_EPOCH = 5


@pytest.fixture(scope="module")
def kills(made_once):
    def fill(folder: Path) -> None:
        reached = small.in_another_process("killed", str(folder), *METHODS)
        (folder / "reached.json").write_text(reached)

    folder = made_once("killed", fill)
    return folder, json.loads((folder / "reached.json").read_text())


@pytest.mark.parametrize("method", METHODS)
def test_killed_at_any_moment_training_ends_with_the_same_bits(kills, method) -> None:
    folder, reached = kills
    # The test can fail: kills hit the middle of epochs.
    assert len([step for step in set(reached[method]) if step % STEPS_PER_EPOCH]) >= 3
    whole, killed = folder / method / "whole", folder / method / "killed"
    for name in ("model/model", "best/model", "checkpoints/step-00000030/tensors"):
        one, other = (small.tensors(run / f"{name}.safetensors") for run in (whole, killed))
        torch.testing.assert_close(other, one, rtol=0, atol=0)
    assert records(whole) == records(killed)
    results = [json.loads((run / "result.json").read_text()) for run in (whole, killed)]
    assert results[0]["accuracy"] == results[1]["accuracy"]


@pytest.mark.parametrize("method", [*RIVALS, "points"])
def test_what_stops_in_its_last_stage_goes_on_exactly(tmp_path: Path, method: str) -> None:
    recipe = small.recipe(method, head=HeadPhase(0), train=Phase(2, warm_up=1))
    if method == "points":
        recipe = replace(
            recipe,
            augmentation="strong",
            amplitudes=Amplitudes("random"),
            label_smoothing=0.1,
            averaging=Averaging("dense", tail=0.6),  # of the last six steps
        )
    whole = small.run(recipe, small.images(), tmp_path / "whole")
    with pytest.raises(Interrupted):
        small.run(recipe, small.images(), tmp_path / "parts", listeners=[small.StopAt(7)])
    parts = small.run(recipe, small.images(), tmp_path / "parts", resume=True)
    assert small.timeless(parts.epochs) == small.timeless(whole.epochs)
    one, other = (
        small.tensors(tmp_path / name / "model/model.safetensors") for name in ("whole", "parts")
    )
    torch.testing.assert_close(other, one, rtol=0, atol=0)


class StopScoring(Listener):
    """Presses Ctrl-C when the trained network is about to be scored at all shares."""

    def finishing(self, work):
        if work == LEANING:
            signal.raise_signal(signal.SIGINT)


def test_what_stops_after_training_is_scored_later(tmp_path: Path) -> None:
    recipe = small.recipe(exact_statistics=True)
    whole = small.run(recipe, small.images(), tmp_path / "whole")
    with pytest.raises(Interrupted):
        small.run(recipe, small.images(), tmp_path / "parts", listeners=[StopScoring()])
    assert not (tmp_path / "parts/result.json").exists()
    parts = small.run(recipe, small.images(), tmp_path / "parts", resume=True)
    assert parts.leaning == whole.leaning
    assert records(tmp_path / "parts") == small.timeless(whole.epochs)


def test_a_run_without_a_target_is_resumed_and_told_from_others(tmp_path: Path) -> None:
    recipe, prepared = small.recipe(target=()), small.images()
    whole = small.run(recipe, prepared, tmp_path / "whole")
    with pytest.raises(Interrupted):
        small.run(recipe, prepared, tmp_path / "run", listeners=[small.StopAt(17)])
    resumed = small.run(recipe, prepared, tmp_path / "run", resume=True)
    assert small.timeless(resumed.epochs) == small.timeless(whole.epochs)
    assert set(whole.accuracy) == {"last", "validation"}
    assert set(whole.epochs[-1].validation) == set(small.DOMAINS)
    with pytest.raises(TrainingError, match=r"target is \[\] there and \['sketch'\] here"):
        small.run(small.recipe(), prepared, tmp_path / "run")


def records(run: Path) -> list[Epoch]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return small.timeless([Epoch.from_dict(json.loads(line)) for line in lines])
