"""Schedules against torch's own."""

import pytest
import torch

from bne.recipes.schema import Optimiser, Phase, Schedule
from bne.training.optim import learning_rate

STEPS, EPOCHS = 7, 3


@pytest.mark.parametrize("name", ["constant", "cosine", "exponential"])
def test_schedules_are_those_of_torch(name: str) -> None:
    phase = Phase(EPOCHS, optimiser=Optimiser(learning_rate=0.3), schedule=Schedule(name, 0.9))
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    scheduler = {
        "constant": lambda: torch.optim.lr_scheduler.ConstantLR(optimiser, 1.0),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS * STEPS),
        "exponential": lambda: torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9),
    }[name]()
    for step in range(EPOCHS * STEPS):
        assert learning_rate(phase, step, STEPS) == pytest.approx(scheduler.get_last_lr()[0])
        optimiser.step()
        if name != "exponential" or step % STEPS == STEPS - 1:
            scheduler.step()
