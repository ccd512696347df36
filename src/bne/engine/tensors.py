"""Tensors in files, with a checksum; nothing is ever unpickled."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from bne.models.extras import require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor


def snapshot(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in the CPU's memory, which no later step changes."""
    return {
        name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()
    }


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Writes tensors, as `snapshot` gives them, and returns the file's SHA-256."""
    data: bytes = require("safetensors.torch").save(dict(tensors))
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def read_tensors(path: Path, checksum: str) -> dict[str, Tensor]:
    """Reads tensors.

    Raises:
        ValueError: The file is not what was written.
        OSError: It cannot be read.
    """
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError(f"{path} is damaged: its checksum is not the one it was written with")
    tensors: dict[str, Tensor] = require("safetensors.torch").load(data)
    return tensors
