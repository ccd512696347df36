"""Recorded steps against ordinary ones, on a GPU."""

from itertools import product

import pytest
import torch

from bne.recipes.schema import Averaging, HeadPhase, Optimiser, Phase
from bne.training.events import Listener
from tests.devices import needs_gpu
from tests.training import small
from tests.training.small import run

pytestmark = needs_gpu


METHODS = ["deepall", "bne", "dnet", "dson", "bne-adapt"]
RIVALS = ["crossgrad", "mldg", "metareg", "masf", "epi-fcr"]


@pytest.mark.parametrize(
    ("method", "optimiser"),
    [*product(METHODS, ["sgd", "adam", "adamw"]), *product(RIVALS, ["sgd"])],
)
def test_recorded_steps_train_as_ordinary_ones_do(tmp_path, method, optimiser) -> None:
    """Through both stages, on more steps than are taken before recording."""
    # Adam divides by the gradient's size: it would blow up rounding, so only few, small steps.
    settings = Optimiser(optimiser, 1e-2 if optimiser == "sgd" else 1e-4, head_factor=1.0, clip=5.0)
    phase = Phase(2, warm_up=1, optimiser=settings)
    how = {"backbone": "tiny-dry", "precision": "float32", "averaging": Averaging("ema", decay=0.9)}
    recipe = small.recipe(method, epoch=8, accumulate=2, train=phase, **how)
    results = {}
    for graphs in (False, True):
        folder = tmp_path / str(graphs)
        results[graphs] = run(recipe, small.images(), folder, device="cuda", graphs=graphs)
    states = [small.tensors(tmp_path / f"{g}/model/model.safetensors") for g in (True, False)]
    torch.testing.assert_close(*states, rtol=1e-3, atol=1e-4)
    for one, other in zip(results[False].epochs, results[True].epochs, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-3)


def test_recorded_dropout_draws_what_an_ordinary_step_draws(tmp_path) -> None:
    """Every step is seeded by its number: without learning, both see the same losses."""
    still = Phase(1, optimiser=Optimiser("sgd", learning_rate=0.0))
    recipe = small.recipe("deepall", head=HeadPhase(0), train=still, epoch=12, precision="float32")
    losses = [
        run(recipe, small.images(), tmp_path / str(g), device="cuda", graphs=g).epochs[0].loss
        for g in (False, True)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


class Stop(Exception):  # noqa: N818 - no error
    pass


class StopAfter(Listener):
    def finished_epoch(self, epoch):
        if (epoch.phase, epoch.epoch) == ("train", 2):
            raise Stop


def test_resumed_on_a_gpu_a_run_ends_the_same(tmp_path) -> None:
    recipe = small.recipe(backbone="tiny-dry", precision="float32")
    whole = run(recipe, small.images(), tmp_path / "whole", device="cuda")

    with pytest.raises(Stop):
        run(recipe, small.images(), tmp_path / "two", device="cuda", listeners=[StopAfter()])
    pieces = run(recipe, small.images(), tmp_path / "two", device="cuda", resume=True)
    for one, other in zip(whole.epochs, pieces.epochs, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-2)
