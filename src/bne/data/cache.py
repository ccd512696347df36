"""Decoded and resized images, kept on disk so that they are decoded once.

The cache is a folder that holds

    images-<key>/     the pixels of one set, named after its contents and the way they were resized
    stamps/<key>      the digest of each file's content, named after the files' names and stamps
    partial/          what is being written; a leftover is removed by the next preparation
    lock              held by the one process that writes
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import shutil
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from filelock import FileLock, Timeout

from bne.data.decoding import UNREADABLE, decode_to_file, digest_all, in_threads, problem_of
from bne.data.images import Way, read
from bne.data.values import Tally
from bne.errors import DataError, SettingsError
from bne.words import readable_size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any

    from torch import Tensor

    from bne.data.images import Fit, ImageSet
    from bne.data.values import Window

FORMAT = 4  # raise it when the files of a store, or what an image is decoded to, change
BLOCK = 1 << 20  # bytes that one thread sums up at a time
MOST_LISTED = 20  # images that cannot be read, in one error

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedImages:
    """What `bne.data.cache.prepare` returns.

    Attributes:
        images: The images that could be read; row i of `pixels` is `images.files[i]`.
        pixels: (N, size, size, C) uint8, C channels, 3 unless others were asked for; a memory map
            of the cache; writing to it changes a private copy, never the cache.
        folder: The folder in which the pixels lie.
        skipped: One sentence for each image that could not be read.
        fit: How images were made square.
        window: The values of images of more than 8 bits that became black and white, see `Way`.
        tally: What images of more than 8 bits lost.
        digests: SHA-256 of each image's file, in the order of `images`; empty if not known.
    """

    images: ImageSet
    pixels: Tensor
    folder: Path
    skipped: tuple[str, ...] = ()
    fit: Fit = "squash"
    window: Window | None = None
    tally: Tally = field(default_factory=Tally)
    digests: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know of the range of values, in sentences."""
        return self.tally.notes(self.window)

    def check_range(self) -> None:
        """Refuses a range that clips more than 1 % of the values.

        Raises:
            DataError: It does; the message names an image.
        """
        each = ((f.name, Tally.of(read(f.read(), f.name), self.window)) for f in self.images.files)
        self.tally.check(self.window, each)

    @cached_property
    def labels(self) -> Tensor:
        """(N,) int64, the class of every image."""
        return torch.tensor(self.images.labels)


def default_folder() -> Path:
    """`$BNE_CACHE`, or `bne` in the user's cache folder (`$XDG_CACHE_HOME` or `~/.cache`)."""
    if chosen := os.environ.get("BNE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bne"


def prepare(
    images: ImageSet,
    folder: Path | str | None = None,
    size: int = 256,
    *,
    fit: Fit = "squash",
    window: Window | None = None,
    channels: int = 3,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PreparedImages:
    """Decodes and resizes images once, and opens the result at once every later time.

    If no file's stamp has changed nothing is read but what could not be; if some have, all files
    are hashed, and decoded only if a content is new. What is damaged in the cache is made again.
    Safe to interrupt, and to call in several processes at once. A cache that cannot be written
    serves the images it holds.

    Args:
        images: The images to prepare.
        folder: The cache; `default_folder()` if None.
        size: Height and width to resize every image to, whatever its aspect.
        fit: How images become square, "squash" or "letterbox"; see `bne.data.images.resize`.
        window: The values that become black and white, of images of more than 8 bits; by default
            their full range, see `bne.data.images.Way`.
        channels: Of the pixels: 3, 1 for gray, or those of arrays in `.npy` files.
        skip_bad: Whether to leave out images that cannot be read, instead of failing.
        progress: A function to call with (images done, images in all) while images are decoded.

    Raises:
        DataError: Images cannot be read (the first 20 are listed), or the cache lacks them and
            cannot be written.
        SettingsError: The size is none.
    """
    if size < 1:
        raise SettingsError(f"size={size} is no size for images; choose at least 1 pixel.")
    if not images.files:
        raise DataError("There are no images to prepare; check the path of the data set.")
    folder = Path(folder) if folder is not None else default_folder()
    way = Way(size, fit, window, channels)
    cache = _Cache(folder, images, way)
    found = cache.known_store()
    if found is None:
        try:
            found = cache.make_store(skip_bad, progress)
        except OSError as error:
            found = cache.store_by_contents()
            if found is None:
                raise _cannot_write(folder, error, cache.bytes_needed) from error
    store, digests = found
    gaps = store.gaps()
    problems = tuple(problem_of(images.files[place], way) for place in sorted(gaps))
    if problems and not skip_bad:
        raise _bad_images(problems, len(images))
    places = [place for place in range(len(images)) if place not in gaps]
    return PreparedImages(
        images.select(places),
        store.pixels(len(places)),
        store.folder,
        problems,
        fit,
        window,
        store.tally(),
        tuple(digests[place] for place in places),
    )


@dataclass(frozen=True)
class _Cache:
    """A cache folder, as one set of images prepared in one way sees it."""

    folder: Path
    images: ImageSet
    way: Way

    @property
    def bytes_needed(self) -> int:
        return len(self.images) * self.way.size**2 * self.way.channels

    @cached_property
    def stamp_file(self) -> Path:
        stamps = (part for file in self.images.files for part in (file.name, file.stamp))
        return self.folder / "stamps" / digest(stamps)

    @cached_property
    def digests(self) -> list[str]:
        return digest_all(self.images.files)

    def known_store(self) -> _Found | None:
        """The store of these images if it is there and their stamps are known; reads no image."""
        try:
            return self.whole_store(self.stamp_file.read_text().split())
        except (OSError, ValueError):  # missing, or damaged
            return None

    def store_by_contents(self) -> _Found | None:
        """Hashes the images if some store could turn out to be theirs."""
        stores = (_Store(folder, self.way) for folder in self.folder.glob("images-*"))
        if not any(store.is_of(len(self.images)) for store in stores):
            return None  # so a first preparation reads every file once
        return self.whole_store(self.digests)

    def whole_store(self, digests: list[str]) -> _Found | None:
        store = _Store.of(self.folder, digest(digests), self.way)
        return (store, digests) if store.is_whole(len(self.images)) else None

    def make_store(self, skip_bad: bool, progress: Callable[[int, int], None]) -> _Found:
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            # Whoever held the lock before us may have made it.
            found = self.known_store()
            if found is not None:
                return found
            found = self.store_by_contents()
            if found is not None:
                self.remember(self.digests)
                return found
            partial = self.folder / "partial"
            shutil.rmtree(partial, ignore_errors=True)
            if shutil.disk_usage(self.folder).free < self.bytes_needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            partial.mkdir()
            try:
                return self.decode_into(_Store(partial, self.way), skip_bad, progress)
            finally:
                shutil.rmtree(partial, ignore_errors=True)

    def decode_into(
        self, partial: _Store, skip_bad: bool, progress: Callable[[int, int], None]
    ) -> _Found:
        files = self.images.files
        digests, problems, tally = decode_to_file(files, partial.pixels_file, self.way, progress)
        if problems and (not skip_bad or len(problems) == len(files)):
            raise _bad_images(problems.values(), len(files))
        partial.finish(len(files), problems.keys(), tally)
        store = _Store.of(self.folder, digest(digests), self.way)
        shutil.rmtree(store.folder, ignore_errors=True)  # exists only if it is damaged
        partial.folder.rename(store.folder)
        sync(self.folder)
        self.remember(digests)
        return store, digests

    def remember(self, digests: list[str]) -> None:
        """Notes the contents under today's stamps."""
        if UNREADABLE in digests:
            return  # such a file may become readable without a new stamp
        self.stamp_file.parent.mkdir(exist_ok=True)
        fresh = self.stamp_file.with_suffix(".new")
        fresh.write_text("\n".join(digests))
        fresh.rename(self.stamp_file)


class _Store:
    """Where the images of one set lie, prepared in one way.

    The folder holds `pixels.u8`, the bytes of (N, size, size, channels); `store.json`, which tells
    of them; and `checked`, the stamp under which they were last found to be undamaged.
    """

    def __init__(self, folder: Path, way: Way) -> None:
        self.folder, self.shape = folder, (way.size, way.size, way.channels)
        self.recipe = str(way)
        self.pixels_file = folder / "pixels.u8"
        self.notes_file = folder / "store.json"
        self.checked_file = folder / "checked"

    @classmethod
    def of(cls, cache: Path, contents: str, way: Way) -> _Store:
        """The store of files with this digest of contents, whether or not it exists."""
        key = digest([f"format {FORMAT}", str(way), contents])
        return cls(cache / f"images-{key[:32]}", way)

    def is_of(self, files: int) -> bool:
        """Whether it was made of so many files in today's way, as far as its notes tell."""
        with suppress(OSError, ValueError, RecursionError):
            return self.notes().items() >= self.way(files).items()
        return False

    def is_whole(self, files: int) -> bool:
        """Whether it is of so many files and its pixels are those that were written.

        Pixels are read, all of them, only if their file has changed since they last were.
        """
        if not self.is_of(files):
            return False
        try:
            stamp = self.stamp()
            with suppress(OSError):
                if self.checked_file.read_bytes() == stamp:
                    return True
            if checksum(self.pixels_file) != self.notes()["checksum"]:
                return False
        except OSError:
            return False
        with suppress(OSError):  # a cache that cannot be written is read again next time
            self.checked_file.write_bytes(stamp)
        return True

    def gaps(self) -> set[int]:
        """The places, among all files, of those that could not be read and have no row here."""
        return set(self.notes()["gaps"])

    def tally(self) -> Tally:
        """What images of more than 8 bits lost; of earlier versions nothing is known."""
        return Tally(*self.notes().get("tally", ()))

    def pixels(self, rows: int) -> Tensor:
        """(rows, *shape) uint8, memory-mapped; writing to it changes a private copy."""
        shape = torch.Size((rows, *self.shape))
        flat = torch.from_file(str(self.pixels_file), size=shape.numel(), dtype=torch.uint8)
        return flat.view(shape)

    def finish(self, files: int, gaps: Collection[int], tally: Tally) -> None:
        """Closes the gaps that files without pixels left, writes the notes, and syncs to disk.

        Of those files only the places are noted: the same contents may go by other names.
        """
        row = math.prod(self.shape)
        kept = [place for place in range(files) if place not in gaps]
        with self.pixels_file.open("r+b") as file:
            for new, old in enumerate(kept):
                if new != old:
                    file.seek(old * row)
                    pixels = file.read(row)
                    file.seek(new * row)
                    file.write(pixels)
            file.truncate(len(kept) * row)
        notes = {**self.way(files), "gaps": sorted(gaps), "checksum": checksum(self.pixels_file)}
        if tally.images:
            notes["tally"] = tally
        notes["digest"] = digest([json.dumps(notes)])
        self.notes_file.write_text(json.dumps(notes, indent=1))
        self.checked_file.write_bytes(self.stamp())
        for path in (self.pixels_file, self.notes_file, self.folder):
            sync(path)

    def way(self, files: int) -> dict[str, object]:
        """All that decides the pixels besides what the files hold."""
        return {"format": FORMAT, "recipe": self.recipe, "files": files}

    def notes(self) -> dict[str, Any]:
        """What `finish` noted; a ValueError if the file is damaged."""
        notes = json.loads(self.notes_file.read_bytes())
        if not isinstance(notes, dict) or notes.pop("digest", None) != digest([json.dumps(notes)]):
            raise ValueError(f"{self.notes_file} is damaged")
        return notes

    def stamp(self) -> bytes:
        """Whoever writes to the pixels changes it; no program can set the time of change."""
        status = self.pixels_file.stat()
        return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}".encode()


_Found = tuple[_Store, list[str]]
"""A store, and the digest of each file that it was made of."""


def checksum(path: Path) -> str:
    """Of a file's content, against damage: the CRC-32 of every block."""

    def sum_up(start: int) -> str:
        with path.open("rb") as file:
            file.seek(start)
            return str(zlib.crc32(file.read(BLOCK)))

    return digest(in_threads(sum_up, range(0, path.stat().st_size, BLOCK)))


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


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, which ends with the process; waits for whoever has it."""
    lock = FileLock(folder / "lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        logger.warning("%s: waiting for another process that prepares images here.", folder)
        held = lock.acquire()
    with held:
        yield


def _bad_images(problems: Collection[str], total: int) -> DataError:
    shown = [*problems][:MOST_LISTED]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more.")
    lines = "\n".join(f"  {line}" for line in shown)
    way_out = "mend them, or leave them out with skip_bad=True (--skip-bad)"
    if len(problems) == total:
        way_out = "mend at least some of them"
    return DataError(f"{len(problems)} of {total} images cannot be read; {way_out}:\n{lines}")


def _cannot_write(folder: Path, error: OSError, needed: int) -> DataError:
    advice = "choose another folder with --cache or BNE_CACHE"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            f"{folder}: the disk is too full for the prepared images, which need "
            f"{readable_size(needed)}; make room or {advice}."
        )
    return DataError(f"{folder}: the cache cannot be written ({error.strerror}); {advice}.")
