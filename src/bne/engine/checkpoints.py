"""Checkpoints: folders of `tensors.safetensors` and `state.json`, whole or not there."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bne.engine.errors import TrainingError
from bne.engine.files import whole_folder, write_json
from bne.engine.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

FORMAT = 1
KEPT = 2  # the newest ones
TENSORS, STATE = "tensors.safetensors", "state.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A run at one moment.

    Attributes:
        state: plain numbers and texts.
        tensors: everything else.
    """

    state: dict[str, Any]
    tensors: dict[str, Tensor]


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint after a number of steps lies."""
    return folder / f"step-{step:08d}"


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint; its tensors must be a snapshot."""
    with whole_folder(path) as partial:
        content = {
            "format": FORMAT,
            "tensors_sha256": write_tensors(partial / TENSORS, checkpoint.tensors),
            "state_sha256": _digest(checkpoint.state),
            "state": checkpoint.state,
        }
        write_json(partial / STATE, content)


def read(path: Path) -> Checkpoint:
    """Reads a checkpoint.

    Raises:
        TrainingError: It is damaged or of another format.
    """
    try:
        content = json.loads((path / STATE).read_text())
        if content["format"] != FORMAT:
            raise ValueError(
                f"{path / STATE} has format {content['format']}, this version reads {FORMAT}"
            )
        if _digest(content["state"]) != content["state_sha256"]:
            raise ValueError(
                f"{path / STATE} is damaged: its checksum is not the one it was written with"
            )
        tensors = read_tensors(path / TENSORS, content["tensors_sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"The checkpoint {path} cannot be read ({error}).") from error
    return Checkpoint(content["state"], tensors)


def all_of(folder: Path) -> list[Path]:
    """All checkpoints, the newest last."""
    return sorted(folder.glob("step-*"))


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if none was ever written.

    Raises:
        TrainingError: There are some, all of them damaged.
    """
    paths = all_of(folder)
    for path in reversed(paths):
        try:
            checkpoint = read(path)
        except TrainingError as error:
            if path == paths[0]:
                raise
            logger.warning("%s", error)
        else:
            skipped = path != paths[-1]
            logger.log(logging.WARNING if skipped else logging.INFO, "Going on from %s.", path)
            return checkpoint
    return None


def prune(folder: Path) -> None:
    """Removes all checkpoints but the newest."""
    for path in all_of(folder)[:-KEPT]:
        shutil.rmtree(path)


def _digest(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
