"""Reading files of weights. Nothing is ever unpickled."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from bne.models.backbone import Backbone, StateDict
from bne.models.caffemodel import read_caffemodel
from bne.models.extras import require

_SUFFIXES = (".safetensors", ".pth", ".pt", ".caffemodel")


def read_weights(path: Path, backbone: Backbone) -> StateDict:
    """Read a weights file as a state dict for ``backbone``, by the suffix of its name.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged, unsafe, or of a kind that does not suit the backbone.
    """
    if path.suffix not in _SUFFIXES:
        raise ValueError(
            f'weights {str(path)!r} are neither "torchvision" nor "timm" nor a file whose name '
            f"ends in {', '.join(_SUFFIXES)}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no weights file {path}")
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        if path.suffix == ".caffemodel":
            return _read_caffe(path, backbone.from_caffe)
        return _read_torch(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be used as weights: {error}") from error


def _read_safetensors(path: Path) -> StateDict:
    safetensors = require("safetensors.torch")
    try:
        return dict(safetensors.load_file(path))
    except require("safetensors").SafetensorError as error:
        raise ValueError(f"it is damaged or no safetensors file ({error})") from error


def _read_caffe(path: Path, convert: Callable[..., StateDict] | None) -> StateDict:
    if convert is None:
        raise ValueError("Caffe weights fit the backbone alexnet_cvgj only")
    return convert(read_caffemodel(path))


def _read_torch(path: Path) -> StateDict:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files fail in torch.load in too many ways to list
        raise ValueError(
            "it is damaged, or holds Python objects other than tensors, which are never unpickled"
        ) from error
    for wrapper in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise ValueError("it holds no state dict, a mapping from names to tensors")
    if all(name.startswith("module.") for name in content):  # from (Distributed)DataParallel
        content = {name.removeprefix("module."): value for name, value in content.items()}
    return content
