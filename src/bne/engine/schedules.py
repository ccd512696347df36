"""The learning rate at any step: it follows from the recipe and the step, and from nothing else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bne.engine.recipe import Phase


def learning_rate(phase: Phase, step: int, steps_per_epoch: int) -> float:
    """The learning rate of all layers but the last.

    Args:
        phase: whose optimiser and schedule it is.
        step: steps of the phase before this one.
        steps_per_epoch: of the phase.
    """
    start = phase.optimiser.learning_rate
    match phase.schedule.name:
        case "constant":
            return start
        case "cosine":
            return start / 2 * (1 + math.cos(math.pi * step / (phase.epochs * steps_per_epoch)))
        case "exponential":
            return start * phase.schedule.decay ** (step // steps_per_epoch)
