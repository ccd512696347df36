"""Copies that the program need not wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Copies a CPU tensor to a device without waiting for what the device has yet to do.

    Only from pinned memory is the driver sure not to wait.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
