"""Files and folders that are either whole or not there, whenever the program is stopped."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bne.data.store import sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Writes a file, or replaces it, as a whole."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    sync(partial)
    partial.replace(path)
    sync(path.parent)


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
