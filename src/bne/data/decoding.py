"""Reads, decodes and resizes many images at once, in one process a CPU core.

Processes, not threads: on small images the interpreter lock keeps threads from using more than a
few cores. The workers write pixels straight to the file, so none travel between processes and each
holds one image at a time.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, NamedTuple

import torch

from bne.data.images import ImageFile, decode, resize
from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO


def usable_cores() -> int:
    """The CPU cores this process may run on, which a batch system may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CHUNK = 32
UNREADABLE = "unreadable"


class Decoded(NamedTuple):
    """What became of one file.

    Attributes:
        digest: SHA-256 of its bytes, or `UNREADABLE`.
        problem: Why there are no pixels; None if all went well.
    """

    digest: str
    problem: str | None


def decode_to_file(
    files: Sequence[ImageFile],
    path: Path,
    size: int,
    progress: Callable[[int, int], None],
) -> list[Decoded]:
    """Writes the pixels of `files` to `path`, file i at row i, each size x size x 3 bytes.

    The row of a file that cannot be read or decoded is zero.
    """
    _reserve(path, len(files) * size * size * 3)
    chunks = list(_chunks(len(files)))
    workers = min(usable_cores(), len(chunks))
    results: list[Decoded] = []
    try:
        with ProcessPoolExecutor(
            workers, initializer=_start_worker, initargs=(files, path, size)
        ) as pool:
            for part in pool.map(_decode_chunk, chunks):
                results += part
                progress(len(results), len(files))
    except BrokenProcessPool:
        raise DataError(
            f"{path}: a process that decoded images was killed, probably for want of memory; "
            "free some and prepare again."
        ) from None
    return results


def digest_all(files: Sequence[ImageFile]) -> list[str]:
    """SHA-256 of every file's bytes, or `UNREADABLE`, without decoding anything."""

    def digests(chunk: range) -> list[str]:
        return [_read(files[i])[0] for i in chunk]

    # More threads than cores: some wait for the disk while others hash, and both free the lock.
    with ThreadPoolExecutor(usable_cores() + 4) as pool:
        return [digest for part in pool.map(digests, _chunks(len(files))) for digest in part]


def problem_of(file: ImageFile) -> str:
    """Why a file has no pixels."""
    try:
        decode(file.read(), file.name)
    except DataError as error:
        return str(error)
    return f"{file.name}: the image could not be read before and now can be; prepare again."


def _read(file: ImageFile) -> tuple[str, bytes | DataError]:
    try:
        data = file.read()
    except DataError as error:
        return UNREADABLE, error
    return hashlib.sha256(data).hexdigest(), data


def _reserve(path: Path, count: int) -> None:
    """Makes a file of zeros; claiming the disk first makes the writing much cheaper."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, count)
        else:
            file.truncate(count)


_job: tuple[Sequence[ImageFile], Path, int]  # what a worker works on, set once as it starts


def _start_worker(files: Sequence[ImageFile], path: Path, size: int) -> None:
    global _job
    _job = files, path, size
    torch.set_num_threads(1)  # a dataset may use torch, whose threads do not survive a fork
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed cannot stop its workers, which would keep its lock for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _decode_chunk(chunk: range) -> list[Decoded]:
    files, path, size = _job
    with path.open("r+b") as out:
        return [_decode_one(files[i], i * size * size * 3, out, size) for i in chunk]


def _decode_one(file: ImageFile, offset: int, out: BinaryIO, size: int) -> Decoded:
    digest, data = _read(file)
    if isinstance(data, DataError):
        return Decoded(digest, str(data))
    try:
        image = decode(data, file.name)
    except DataError as error:
        return Decoded(digest, str(error))
    out.seek(offset)
    out.write(resize(image, size).tobytes())
    return Decoded(digest, None)


def _chunks(count: int) -> Iterator[range]:
    return (range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))
