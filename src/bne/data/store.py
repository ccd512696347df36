"""One folder of resized images: what it is called, how it is written, when it is whole.

Pixels lie row by row with the three channels of a pixel side by side: as the decoder gives them,
as an upload to the GPU wants them (one block an image), and a batch of them is a PyTorch tensor
in `channels_last` format, the one convolutions are quickest in.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bne.data.resize import resize_recipe

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path
    from typing import Any

    from torch import Tensor

FORMAT = 3  # raise it when the files of a store, or what an image is decoded to, change
CHANNELS = 3


@dataclass(frozen=True)
class Store:
    """Where the images of one set lie, resized to `size` x `size`.

    Attributes:
        folder: Holds `pixels.u8`, the bytes of (N, size, size, 3), and `store.json`.
        size: Height and width of the images.
    """

    folder: Path
    size: int

    @classmethod
    def of(cls, cache: Path, contents: str, size: int) -> Store:
        """The store of files with this digest of contents, whether or not it exists."""
        key = digest([f"format {FORMAT}", resize_recipe(size), contents])
        return cls(cache / f"images-{key[:32]}", size)

    @property
    def pixels_file(self) -> Path:
        """The raw pixels."""
        return self.folder / "pixels.u8"

    @property
    def _notes_file(self) -> Path:
        return self.folder / "store.json"

    def is_whole(self) -> bool:
        """Whether all its images are there."""
        try:
            return self.pixels_file.stat().st_size == self._rows() * bytes_per_image(self.size)
        except (OSError, ValueError, KeyError):
            return False

    def is_of(self, files: int) -> bool:
        """Whether it was made of so many files in today's way, as far as its notes tell."""
        try:
            notes = self._notes()
        except (OSError, ValueError):
            return False
        return notes.items() >= {**_way(self.size), "files": files}.items()

    def gaps(self) -> set[int]:
        """The places, among all files, of those that could not be read and have no row here."""
        return set(self._notes()["gaps"])

    def pixels(self) -> Tensor:
        """(N, size, size, 3) uint8, memory-mapped; writing to it changes a private copy."""
        shape = (self._rows(), self.size, self.size, CHANNELS)
        flat = torch.from_file(
            str(self.pixels_file), size=torch.Size(shape).numel(), dtype=torch.uint8
        )
        return flat.view(shape)

    def finish(self, files: int, gaps: Collection[int]) -> None:
        """Closes the gaps that files without pixels left, writes the notes, and syncs to disk.

        Of those files only the places are noted: the same contents may go by other names.
        """
        self._close_gaps([place for place in range(files) if place not in gaps])
        notes = {**_way(self.size), "files": files, "gaps": sorted(gaps)}
        self._notes_file.write_text(json.dumps(notes, indent=1))
        for path in (self.pixels_file, self._notes_file, self.folder):
            sync(path)

    def _close_gaps(self, kept: Sequence[int]) -> None:
        row = bytes_per_image(self.size)
        with self.pixels_file.open("r+b") as file:
            for new, old in enumerate(kept):
                if new != old:
                    file.seek(old * row)
                    pixels = file.read(row)
                    file.seek(new * row)
                    file.write(pixels)
            file.truncate(len(kept) * row)

    def _notes(self) -> dict[str, Any]:
        notes: dict[str, Any] = json.loads(self._notes_file.read_text())
        return notes

    def _rows(self) -> int:
        notes = self._notes()
        return int(notes["files"]) - len(notes["gaps"])


def _way(size: int) -> dict[str, object]:
    """All that decides the pixels besides the files."""
    return {"format": FORMAT, "recipe": resize_recipe(size)}


def bytes_per_image(size: int) -> int:
    """What one resized image takes."""
    return size * size * CHANNELS


def digest(parts: Iterable[str]) -> str:
    """SHA-256 of a list of strings; no two lists share one."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def sync(path: Path) -> None:
    """Returns once a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
