"""In which numbers convolutions and matrix products are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

Precision = Literal["bf16", "float32"]


def effective(asked: Precision, device: torch.device) -> Precision:
    """What is really used: the CPU, where bf16 saves nothing, computes in float32."""
    return asked if device.type == "cuda" else "float32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context in which a network computes in the precision.

    Weights are converted anew at each pass, so that the gradients of several passes add up in
    float32.
    """
    return torch.autocast(
        device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False
    )
