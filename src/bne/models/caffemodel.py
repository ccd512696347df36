"""Reader of Caffe's weight files, without Caffe."""

import math
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from bne.models.protobuf import fields, varints

_MAX_AXES = 32  # Caffe's own limit


def read_caffemodel(path: Path) -> dict[str, list[Tensor]]:
    """Read the weights of a ``.caffemodel`` file, in the current or the V1 layer format.

    Returns:
        The float32 blobs of each layer that has any, by layer name, in Caffe's own order and shape.

    Raises:
        ValueError: If the file is truncated, malformed or holds no weights.
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
