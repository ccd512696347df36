"""Optimisers against torch's own."""

import copy

import pytest
import torch

from bne.methods import create
from bne.models import build
from bne.recipes.schema import Optimiser
from bne.training import optim
from bne.training.files import snapshot
from bne.training.optim import make_optimiser, set_learning_rate
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
