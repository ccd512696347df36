"""Random numbers that follow from the seed and the place they are drawn at.

Dropout draws from torch's global generator. It is seeded anew before every step, so a resumed run
draws what it would have drawn, and nothing about generators needs to be saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bne.data.seeds import seed_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def kept(device: torch.device) -> AbstractContextManager[None]:
    """A context after which the global generators are as they were before."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


def seed_generators(device: torch.device, *place: object) -> None:
    """Seeds the global generators of the CPU and the device by where they are drawn from."""
    seed = seed_of(*place)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
