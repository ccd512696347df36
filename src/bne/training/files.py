"""Files written as a whole or not at all; tensors with a checksum, and nothing ever unpickled."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from bne.errors import SettingsError, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor


def open_streams() -> None:
    """Gives standard streams that are closed, as by `<&-`, an empty file: Python has None there.

    Otherwise the next file that is opened would take their place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


@contextmanager
def named(path: Path) -> Iterator[None]:
    """A context whose errors name a file, as the system's own do not where a disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def check_folder(folder: Path, data: object, *, write: bool = True) -> None:
    """Finds what would keep results from being written, before anything is done.

    Args:
        folder: of the results.
        data: that they are of, a path or whatever else images come from.
        write: whether anything is to be written.

    Raises:
        SettingsError: `folder` is a file or cannot be written, or it lies within the data.
    """
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"--out {folder} is a file; name a folder.")
    check_apart(folder, data, "--out")
    if write:
        check_writable(folder, "--out")


def check_apart(folder: Path, data: object, option: str) -> None:
    """Refuses a folder within the data, which then would hold more than images.

    Raises:
        SettingsError: It lies there.
    """
    root = Path(data) if isinstance(data, str | os.PathLike) else None
    if root and root.is_dir() and folder.resolve().is_relative_to(root.resolve()):
        raise SettingsError(
            f"{option} {folder} lies within the data in {root}; name a folder elsewhere."
        )


def check_writable(path: Path, option: str) -> None:
    """Finds out whether a file or folder, or what it would lie in, may be written to.

    Raises:
        SettingsError: It may not.
    """
    whole = path.absolute()
    place = next(place for place in (whole, *whole.parents) if place.exists())
    if place != whole and not place.is_dir():
        raise SettingsError(f"{option} {path}: {place} is a file, not a folder.")
    if not os.access(place, os.W_OK):
        raise SettingsError(f"{option} {path} cannot be written: you may not write to {place}.")
    try:  # rights do not tell all: a disk may be full, and a folder take no files
        with TemporaryFile(dir=place) if place.is_dir() else place.open("ab"):
            pass
    except OSError as error:
        reason = f"{place}: {error.strerror}"
        raise SettingsError(f"{option} {path} cannot be written: {reason}.") from None


def check_file(file: Path, option: str, *read: str | Path) -> None:
    """Finds what would keep a file from being written, before anything is done.

    Nothing is made yet, so that a command which fails later leaves no empty folder.

    Raises:
        SettingsError: It is a folder or a device, cannot be written, or is one of those to `read`.
    """
    if file.exists() and not file.is_file():
        kind = "a folder" if file.is_dir() else "no file"
        raise SettingsError(f"{option} {file} is {kind}; name a file.")
    if file.exists() and any(Path(one).exists() and file.samefile(one) for one in read):
        raise SettingsError(f"{option} {file} is a file to read; name another.")
    check_writable(file, option)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file, or replaces it, as a whole, and makes the folders that it lies in."""
    from bne.data.cache import sync

    partial = path.with_name(f".{path.name}.partial")
    try:
        with named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(data)
            sync(partial)
            partial.replace(path)
            sync(path.parent)
    finally:
        with suppress(OSError):  # which would hide why there is no file
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file as a whole."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: object) -> None:
    """Writes plain numbers, texts, lists and dictionaries as a whole."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def plain(content: object) -> Any:
    """What JSON makes of some content: tuples become lists, keys texts."""
    return json.loads(json.dumps(content))


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A context that writes a folder, or replaces it: what it yields becomes the folder."""
    from bne.data.cache import sync

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


def hash_tensors(digest: hashlib._Hash, tensors: Mapping[str, Tensor]) -> None:
    """Adds names, kinds, shapes and values of tensors on the CPU to a digest, by name."""
    import torch

    for name in sorted(tensors):
        value = tensors[name].detach().contiguous()
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)


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
