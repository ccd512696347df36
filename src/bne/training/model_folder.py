"""A trained network with all that is needed to study it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import bne
from bne.core.ensemble import DomainEnsemble
from bne.data.transform import EvalTransform
from bne.errors import DataError
from bne.methods import BNE, create, find
from bne.models import build
from bne.training.files import read_tensors, whole_folder, write_json, write_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from bne.core.options import Lean
    from bne.data.cache import PreparedImages
    from bne.data.feed import Feed
    from bne.data.splits import Split
    from bne.methods import Method
    from bne.recipes.schema import Recipe

TENSORS, INFO = "model.safetensors", "model.json"
ANSWERING = ("mix", "nearest", "layers")
"""Options that may change after training: of `BNE.answer_by`."""


@dataclass(frozen=True)
class ModelInfo:
    """All that is needed, besides its tensors, to use a trained network.

    Attributes:
        backbone: its name.
        classes: their names, in the order of the logits.
        domains: the names of the domains the method was made with.
        method: its name.
        options: of the method.
        transform: from images to the network's input, as `EvalTransform.to_dict` gives it.
        weights: the source or file that training started from; None for random weights.
        lean: how far images lean on their own statistics, see `bne.methods.Method.lean`.
        bne: the version that wrote it.
    """

    backbone: str
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    method: str
    options: Mapping[str, Any]
    transform: Mapping[str, Any]
    weights: str | None
    lean: Lean = 0.0
    bne: str = bne.__version__


def save_model(folder: Path, tensors: Mapping[str, Tensor], info: ModelInfo) -> None:
    """Writes a model folder, or replaces it, as a whole, with a snapshot of the method's state."""
    with whole_folder(folder) as partial:
        checksum = write_tensors(partial / TENSORS, tensors)
        write_json(partial / INFO, {**asdict(info), "sha256": checksum})


def load_model(folder: Path | str) -> tuple[Method, EvalTransform, ModelInfo]:
    """Reads a model folder, or of a run's folder the network of the last epoch.

    Returns:
        The method, in evaluation mode on the CPU; what turns images into its input; and what is
        known of it.

    Raises:
        DataError: The folder is no model folder, or damaged.
    """
    place, tensors, info = read_model(folder)
    return *restore(place, tensors, info), info


def read_model(folder: Path | str) -> tuple[Path, dict[str, Tensor], ModelInfo]:
    """Reads a model folder, or that of the last epoch in a run's, without making the network.

    Returns:
        The model's own folder, its tensors, and what is known of it.

    Raises:
        DataError: The folder is no model folder, or damaged.
    """
    given = Path(folder)
    folder = given / "model" if (given / "model").is_dir() else given
    try:
        fields = json.loads((folder / INFO).read_text())
        checksum = fields.pop("sha256")
        tensors = read_tensors(folder / TENSORS, checksum)
        fields |= {key: tuple(fields[key]) for key in ("classes", "domains")}
        return folder, tensors, ModelInfo(**fields)
    except (FileNotFoundError, NotADirectoryError) as error:
        if (folder / "best").is_dir():
            raise DataError(
                f"{folder} is a run that is not finished; finish it with --resume, or name "
                f"{folder / 'best'}."
            ) from error
        raise DataError(f"{folder} is no model folder: it has no {error.filename}.") from error
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise DataError(f"{folder} holds no model that can be used ({error}).") from error


def restore(
    path: Path,
    tensors: Mapping[str, Tensor],
    info: ModelInfo,
    domains: tuple[tuple[str, ...], int] | None = None,
) -> tuple[Method, EvalTransform]:
    """Makes a method as it was saved.

    Args:
        path: of the file or folder that it was read from, for errors.
        tensors: of the method's state.
        info: what is known of it.
        domains: that it has branches for now, and how many of them are central, see
            `DomainEnsemble.set_domains`; None if training alone has set them.

    Raises:
        DataError: The tensors do not fit, or the network or the method is unknown.
    """
    try:
        transform = EvalTransform.from_dict(info.transform)
        with torch.random.fork_rng([]):
            channels = transform.preprocessing.channels
            model = build(info.backbone, len(info.classes), channels=channels)
            options = dict(info.options)
            weighs = issubclass(find(info.method).method, BNE)
            # Not in training, which refuses some of them beside other options.
            later = {key: options.pop(key) for key in ANSWERING if weighs and key in options}
            method = create(info.method, model, info.domains, options)
        net = method.net
        if (
            domains
            and isinstance(net, DomainEnsemble)
            and domains != (net.domains, len(net.domains))
        ):
            net.set_domains(*domains)
        method.load_state_dict(tensors)
        method.lean = info.lean
        if isinstance(method, BNE):
            method.answer_by(**later)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())  # of torch's in several lines
        raise DataError(f"{path} holds no model that can be used ({reason}).") from error
    return method.eval(), transform


@dataclass(frozen=True)
class Trained:
    """What a run hands over for analysis.

    Attributes:
        method: with its network as saved, in evaluation mode, on the device.
        prepared: all images, targets included; `feed` has them on the device.
        splits: of the source domains, by name.
    """

    method: Method
    transform: EvalTransform
    prepared: PreparedImages
    feed: Feed
    splits: Mapping[str, Split]
    recipe: Recipe
    device: torch.device
