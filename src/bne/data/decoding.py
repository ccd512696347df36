"""Work on many images at once: reading, hashing, decoding and resizing them in threads.

Pillow and hashlib free the interpreter lock while they work, so threads keep several cores busy;
and unlike processes they may be started from any script or notebook.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar, cast

from bne.data.images import ImageFile, read, resized
from bne.data.values import SAMPLE_IMAGES, Tally, percentile_window
from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from bne.data.images import Way
    from bne.data.values import Window

Item = TypeVar("Item")
Result = TypeVar("Result")

UNREADABLE = "unreadable"


def usable_cores() -> int:
    """The CPU cores this process may run on, which a batch system may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int | None = None,
    ahead: int = 64,
) -> Iterator[Result]:
    """Yields the result of `work` for every item, in the order of the items.

    Args:
        work: A function to call in one of the threads; what it raises is raised here.
        items: Its arguments; taken one by one, as threads become free.
        threads: Number of threads; by default one per usable core.
        ahead: Results that may wait to be asked for, so that memory stays bounded.
    """
    # Queues in C, since an interrupt may leave the locks of an executor held for ever.
    todo: SimpleQueue[tuple[int, Item] | None] = SimpleQueue()
    done: SimpleQueue[tuple[int, Result | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        while (task := todo.get()) is not None:
            place, item = task
            try:
                done.put((place, work(item), None))
            except BaseException as error:  # raised by the caller's thread
                done.put((place, None, error))

    most, workers = threads or usable_cores(), list[Thread]()
    found: dict[int, tuple[Result | None, BaseException | None]] = {}
    asked = given = 0

    def wait_for(place: int) -> Result:
        while place not in found:
            ready, value, problem = done.get()
            found[ready] = value, problem
        result, error = found.pop(place)
        if error is not None:
            raise error
        return cast("Result", result)

    try:
        for item in items:
            todo.put((asked, item))
            asked += 1
            if len(workers) < most:
                workers.append(Thread(target=run, daemon=True))
                workers[-1].start()
            if asked - given > ahead:
                yield wait_for(given)
                given += 1
        while given < asked:
            yield wait_for(given)
            given += 1
    finally:  # an error, an interrupt and a caller who stops early wait for nothing more
        with suppress(Empty):
            while True:
                todo.get_nowait()
        for _ in workers:
            todo.put(None)
        for worker in workers:
            worker.join()


def in_stacks(
    work: Callable[[Item], NDArray[np.uint8]], items: Iterable[Item], size: int
) -> Iterator[NDArray[np.uint8]]:
    """Arrays of the results of `work`, `size` of them at a time; the next one is made meanwhile.

    Args:
        work: as in `in_threads`; its results are all of one shape.
        items: its arguments.
        size: of every stack but the last.
    """
    import numpy as np

    results = in_threads(work, items, ahead=2 * size)
    parts = iter(lambda: list(islice(results, size)), [])
    return in_threads(np.stack, parts, threads=1, ahead=1)


def decode_to_file(
    files: Sequence[ImageFile],
    path: Path,
    way: Way,
    progress: Callable[[int, int], None],
) -> tuple[list[str], dict[int, str], Tally]:
    """Writes the pixels of `files` to `path`, file i at row i, size x size x channels bytes.

    Returns:
        SHA-256 of every file's bytes, or `UNREADABLE`; why there are no pixels of some files, by
        their place: their rows are zero; and what images of more than 8 bits lose.
    """
    row = way.size * way.size * way.channels
    _reserve(path, len(files) * row)

    def decode_one(place: int) -> tuple[str, str | None, Tally]:
        file, digest = files[place], UNREADABLE
        try:
            data = file.read()
            digest = hashlib.sha256(data).hexdigest()
            image = read(data, file.name)
            pixels = resized(image, file.name, way).tobytes()
        except DataError as error:
            return digest, str(error), Tally()
        with path.open("r+b") as out:
            out.seek(place * row)
            out.write(pixels)
        return digest, None, Tally.of(image, way.window)

    digests, problems, tally = [], {}, Tally()
    for place, (digest, problem, own) in enumerate(in_threads(decode_one, range(len(files)))):
        digests.append(digest)
        tally += own
        if problem is not None:
            problems[place] = problem
        progress(place + 1, len(files))
    return digests, problems, tally


def digest_all(files: Sequence[ImageFile]) -> list[str]:
    """SHA-256 of every file's bytes, or `UNREADABLE`, without decoding anything."""

    def digest(file: ImageFile) -> str:
        try:
            return hashlib.sha256(file.read()).hexdigest()
        except DataError:
            return UNREADABLE

    # More threads than cores: some wait for the disk while others hash.
    return list(in_threads(digest, files, usable_cores() + 4))


def range_of_training(files: Sequence[ImageFile]) -> Window:
    """The window between percentiles of training images, at most `SAMPLE_IMAGES` of them.

    They are evenly spaced, so that the same images always give the same. Those that cannot be read
    are passed over.

    Raises:
        DataError: None has more than 8 bits, or all values are the same.
    """

    def look(file: ImageFile) -> object:
        try:
            return read(file.read(), file.name)
        except DataError:
            return None

    return percentile_window(in_threads(look, files[:: -(-len(files) // SAMPLE_IMAGES)], ahead=4))


def problem_of(file: ImageFile, way: Way) -> str:
    """Why a file has no pixels."""
    try:
        resized(read(file.read(), file.name), file.name, way)
    except DataError as error:
        return str(error)
    return f"{file.name}: the image could not be read before and now can be; prepare again."


def _reserve(path: Path, count: int) -> None:
    """Makes a file of zeros; claiming the disk first makes the writing much cheaper."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, count)
        else:
            file.truncate(count)
