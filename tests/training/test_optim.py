"""Optimizers, learning rates and averages of weights against torch's own."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bne.methods import create
from bne.models import build
from bne.recipes.schema import Averaging, Optimiser, Phase, Schedule
from bne.training import optim
from bne.training.files import snapshot
from bne.training.optim import WeightAverage, learning_rate, make_optimiser, set_learning_rate
from tests.training.small import CLASSES

CPU = torch.device("cpu")
KINDS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def step(method, optimiser, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    for parameter in method.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimiser.step()


@pytest.mark.parametrize("name", KINDS)
def test_the_last_layer_learns_faster_and_all_else_is_torch(name: str) -> None:
    small_method = create("bne", build("tiny", len(CLASSES)), ["a", "b"])
    plain = copy.deepcopy(small_method)
    settings = Optimiser(name, momentum=0.9, weight_decay=0.1, head_factor=10)
    ours = make_optimiser(small_method, settings, CPU)
    head = [p for n, p in plain.named_parameters() if ".fc." in n]
    body = [p for n, p in plain.named_parameters() if ".fc." not in n]
    more = {"momentum": 0.9} if name == "sgd" else {}
    theirs = KINDS[name](
        [{"params": body, "lr": 1e-2}, {"params": head, "lr": 1e-1}], weight_decay=0.1, **more
    )
    assert len(head) == 2
    for number in range(3):
        set_learning_rate(ours, 1e-2)
        step(small_method, ours, number)
        step(plain, theirs, number)
    torch.testing.assert_close(dict(small_method.state_dict()), dict(plain.state_dict()))


@pytest.mark.parametrize("name", KINDS)
def test_what_it_remembers_can_be_kept(name: str) -> None:
    methods = [create("deepall", build("tiny", len(CLASSES)), ["a"]) for _ in range(2)]
    methods = [m.to(memory_format=torch.channels_last) for m in methods]
    settings = Optimiser(name, momentum=0.9)
    optimisers = [make_optimiser(method, settings, CPU) for method in methods]
    set_learning_rate(optimisers[0], 0.1)
    step(methods[0], optimisers[0], 0)
    methods[1].load_state_dict(methods[0].state_dict())
    kept = snapshot(optim.optimiser_tensors(optimisers[0], methods[0]))
    optim.load_optimiser_tensors(optimisers[1], methods[1], kept)
    for method, optimiser in zip(methods, optimisers, strict=True):
        set_learning_rate(optimiser, 0.1)
        step(method, optimiser, 1)
        for parameter in method.parameters():
            for value in optimiser.state[parameter].values():
                assert value.ndim == 0 or value.stride() == parameter.stride()
    states = [dict(method.state_dict()) for method in methods]
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_frozen_parameters_are_left_out() -> None:
    method = create("deepall", build("tiny", len(CLASSES)), ["a"])
    method.net.conv1.weight.requires_grad_(False)
    optimiser = make_optimiser(method, Optimiser(), CPU)
    count = sum(len(group["params"]) for group in optimiser.param_groups)
    assert count == len(list(method.parameters())) - 1


@pytest.mark.parametrize("name", ["constant", "cosine", "exponential"])
def test_schedules_are_those_of_torch(name: str) -> None:
    phase = Phase(3, optimiser=Optimiser(learning_rate=0.3), schedule=Schedule(name, 0.9))
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    scheduler = {
        "constant": lambda: torch.optim.lr_scheduler.ConstantLR(optimiser, 1.0),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 3 * 7),
        "exponential": lambda: torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9),
    }[name]()
    for step in range(3 * 7):
        assert learning_rate(phase, step, 7) == pytest.approx(scheduler.get_last_lr()[0])
        optimiser.step()
        if name != "exponential" or step % 7 == 6:
            scheduler.step()


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
