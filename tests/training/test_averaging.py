"""Averages against torch's own."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bne.recipes.schema import Averaging
from bne.training.optim import WeightAverage

STEPS, EPOCHS = 3, 8


def train(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("name", ["ema", "swa", "dense"])
def test_averages_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    tail = 0.2 if name == "dense" else 0.25  # the last 5 of 24 steps, within an epoch
    ours = WeightAverage(model, Averaging(name, decay=0.8, tail=tail), EPOCHS, STEPS)
    theirs = AveragedModel(model)
    if name == "ema":
        theirs.update_parameters(model)  # starts from the initial weights
    for epoch in range(1, EPOCHS + 1):
        for step in range(1, STEPS + 1):
            done = (epoch - 1) * STEPS + step
            train(model, done)
            ours.after_step(done)
            if name == "ema":
                theirs.multi_avg_fn = get_ema_multi_avg_fn(min(0.8, (1 + done) / (10 + done)))
            if name == "ema" or (name == "dense" and done > 19):
                theirs.update_parameters(model)
        ours.after_epoch(epoch)
        if name == "swa" and epoch > 6:  # the last quarter
            theirs.update_parameters(model)
        assert bool(ours.weights) == (name == "ema" or epoch > 6)
    for key, value in theirs.module.named_parameters():
        torch.testing.assert_close(ours.weights[key], value.detach())


def test_a_mean_of_steps_goes_on_where_it_was_saved() -> None:
    torch.manual_seed(0)
    model, settings = nn.Linear(3, 2), Averaging("dense", tail=1.0)
    whole, saved = (WeightAverage(model, settings, 1, 6) for _ in range(2))
    for step in range(1, 7):
        train(model, step)
        whole.after_step(step)
        saved.after_step(step)
        if step == 3:
            kept, saved = saved.weights, WeightAverage(model, settings, 1, 6)
            saved.load(kept)
    for key, value in whole.weights.items():
        assert torch.equal(saved.weights[key], value)


def test_averaged_weights_are_swapped_in_and_out_to_the_last_bit() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    average = WeightAverage(model, Averaging("ema", decay=0.5), 1, 1)
    train(model, 1)
    average.after_step(1)
    before, averaged = copy.deepcopy(model.state_dict()), copy.deepcopy(average.weights)
    places = [p.data_ptr() for p in model.parameters()]
    with average.applied():
        assert all(torch.equal(model.state_dict()[k], averaged[k]) for k in averaged)
        assert not torch.equal(model.weight, before["weight"])
    assert all(torch.equal(model.state_dict()[k], before[k]) for k in before)
    assert all(torch.equal(average.weights[k], averaged[k]) for k in averaged)
    average.adopt()
    assert all(torch.equal(model.state_dict()[k], averaged[k]) for k in averaged)
    assert [p.data_ptr() for p in model.parameters()] == places  # a recorded step finds them


def test_without_an_average_nothing_changes() -> None:
    model = nn.Linear(3, 2)
    average = WeightAverage(model, Averaging(), 1, 1)
    before = copy.deepcopy(model.state_dict())
    average.after_step(1)
    average.after_epoch(1)
    average.adopt()
    with average.applied():
        assert all(torch.equal(model.state_dict()[k], before[k]) for k in before)
    assert average.weights == {}
