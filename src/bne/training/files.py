"""Tensors in files, with a checksum; nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bne.data.cache import sync
from bne.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor


@contextmanager
def named(path: Path) -> Iterator[None]:
    """A context whose errors name a file, as the system's own do not where a disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a file, or replaces it, as a whole."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with named(path):
            partial.write_text(text)
            sync(partial)
            partial.replace(path)
            sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: object) -> None:
    """Writes plain numbers, texts, lists and dictionaries as a whole."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def plain(content: object) -> Any:
    """What JSON makes of some content: tuples become lists, keys texts."""
    return json.loads(json.dumps(content))


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A context that writes a folder, or replaces it: what it yields becomes the folder."""
    partial = folder.with_name(f".{folder.name}.partial")
    old = folder.with_name(f".{folder.name}.old")
    for rest in (partial, old):
        shutil.rmtree(rest, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    for path in (*partial.iterdir(), partial):
        sync(path)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def snapshot(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in the CPU's memory, which no later step changes."""
    return {
        name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()
    }


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Writes tensors, as `snapshot` gives them, and returns the file's SHA-256."""
    data: bytes = require("safetensors.torch").save(dict(tensors))
    with named(path):
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
