"""Reading files of weights: safetensors, PyTorch's, Caffe's. Nothing is ever unpickled."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from bne.errors import SettingsError, require
from bne.models.registry import Backbone, StateDict

_SUFFIXES = (".safetensors", ".pth", ".pt", ".caffemodel")
_MAX_AXES = 32  # Caffe's own limit
_MAX_VARINT_BYTES = 10  # of protocol buffers, as are the next three
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED_LENGTHS = {1: 8, 5: 4}


def read_weights(path: Path, backbone: Backbone) -> StateDict:
    """Reads a weights file as a state dict for ``backbone``, by the suffix of its name.

    Raises:
        SettingsError: There is no such file, or it is damaged, unsafe, or of a kind that does not
            suit the backbone.
    """
    if path.suffix not in _SUFFIXES:
        raise SettingsError(
            f'weights {str(path)!r} are neither "torchvision" nor "timm" nor a file whose name '
            f"ends in {', '.join(_SUFFIXES)}"
        )
    if not path.is_file():
        raise SettingsError(f"there is no weights file {path}")
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        if path.suffix == ".caffemodel":
            if backbone.from_caffe is None:
                raise ValueError("Caffe weights fit the backbone alexnet_cvgj only")
            return backbone.from_caffe(read_caffemodel(path))
        return _read_torch(path)
    except ValueError as error:
        raise SettingsError(f"{path} cannot be used as weights: {error}") from error


def _read_safetensors(path: Path) -> StateDict:
    safetensors = require("safetensors.torch")
    try:
        return dict(safetensors.load_file(path))
    except require("safetensors").SafetensorError as error:
        raise ValueError(f"it is damaged or no safetensors file ({error})") from error


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


def read_caffemodel(path: Path) -> dict[str, list[Tensor]]:
    """Reads the weights of a ``.caffemodel`` file, in the current or the V1 layer format.

    Returns:
        The float32 blobs of each layer that has any, by layer name, in Caffe's own order and shape.

    Raises:
        ValueError: The file is truncated, malformed or holds no weights.
    """
    layers: dict[str, list[Tensor]] = {}
    for number, value in fields(memoryview(path.read_bytes())):
        match number, value:
            case 100, memoryview():
                name, blobs = _layer(value, name_field=1, blobs_field=7)
            case 2, memoryview():
                name, blobs = _layer(value, name_field=4, blobs_field=6)
            case _:
                continue
        if not blobs:
            continue
        if name in layers:
            raise ValueError(f"it has two layers named {name!r}")
        layers[name] = blobs
    if not layers:
        raise ValueError("it holds no layer with weights")
    return layers


def _layer(message: memoryview, name_field: int, blobs_field: int) -> tuple[str, list[Tensor]]:
    name = ""
    blobs = []
    for number, value in fields(message):
        if isinstance(value, memoryview):
            if number == name_field:
                name = bytes(value).decode()
            elif number == blobs_field:
                blobs.append(_blob(value))
    return name, blobs


def _blob(message: memoryview) -> Tensor:
    floats, doubles = bytearray(), bytearray()
    legacy_shape: dict[int, int] = {}
    shape: list[int] = []
    for number, value in fields(message):
        match number, value:
            case 1 | 2 | 3 | 4, int():  # num, channels, height, width
                legacy_shape[number] = value
            case 5, memoryview():  # packed or one by one: the bytes are the same
                floats += value
            case 7, memoryview():
                shape = _shape(value)
            case 8, memoryview():
                doubles += value
    if legacy_shape:
        shape = [legacy_shape.get(axis, 0) for axis in (1, 2, 3, 4)]

    data, dtype = (doubles, torch.float64) if doubles else (floats, torch.float32)
    if not data or len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"it has a blob of shape {shape} with {len(data)} bytes of values")
    return torch.frombuffer(data, dtype=dtype).float().reshape(shape)


def _shape(message: memoryview) -> list[int]:
    shape: list[int] = []
    for number, value in fields(message):
        if number == 1:
            shape.extend(
                [value] if isinstance(value, int) else islice(varints(value), _MAX_AXES + 1)
            )
        if len(shape) > _MAX_AXES:
            raise ValueError(f"it has a blob of more than {_MAX_AXES} axes")
    return shape


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields the number and value of each field, in file order.

    A varint comes as an ``int``; every other kind of value as its raw bytes.

    Raises:
        ValueError: The message is truncated or not a protocol buffer.
    """
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("it has a field numbered 0, so it is no protocol buffer")
        if wire_type == _VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire_type == _LENGTH_DELIMITED:
            length, position = _varint(message, position)
        elif wire_type in _FIXED_LENGTHS:
            length = _FIXED_LENGTHS[wire_type]
        else:
            raise ValueError(f"it has a field of unknown wire type {wire_type}")
        end = position + length
        if end > len(message):
            raise ValueError(f"it is truncated: {end - len(message)} bytes of a field are missing")
        yield number, message[position:end]
        position = end


def varints(packed: memoryview) -> Iterator[int]:
    """Yields the values of a packed repeated varint field."""
    position = 0
    while position < len(packed):
        value, position = _varint(packed, position)
        yield value


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """The varint that starts at ``position``, and the position after it."""
    value = 0
    for index, byte in enumerate(message[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("it is truncated or damaged inside a number")
