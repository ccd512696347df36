"""Images of many requests, decoded in threads and shown to the network together.

Torch is imported only if the model needs it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bne.data.decoding import usable_cores
from bne.data.images import pixels
from bne.errors import BneError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bne.server.live import Model
    from bne.server.told import Asked, Told

    Batch = list[tuple["Work", int]]
    """Images by their requests and their numbers there."""

LOG = logging.getLogger(__name__)
AHEAD = 2  # batches that the network may have: one to look at, and the next


class FullError(Exception):
    """There is no room for more images now."""


class Image(NamedTuple):
    """An image that somebody sent.

    Attributes:
        name: how it is called in the answer.
        data: the encoded file.
    """

    name: str
    data: bytes


@dataclass(eq=False)
class Work:
    """The images of one request.

    Attributes:
        model: that looks at all of them.
        images: at least one.
        asked: of each of them.
        waiter: what the caller waits on; not touched here.
        pixels: (size, size, 3) of each image, once decoded, or what is wrong with it. A text and no
            exception, whose traceback would keep the whole image in memory.
        rows: the answer for each image as JSON, once known.
        failed: whether the network failed at one.
        dropped: whether nobody waits for it any more.
        ready: when all images were decoded.
    """

    model: Model
    images: Sequence[Image]
    asked: Asked
    waiter: Any = None
    pixels: list[NDArray[np.uint8] | str | None] = field(default_factory=list)
    rows: list[str | None] = field(default_factory=list)
    failed: bool = False
    dropped: bool = False
    ready: float = 0.0
    left: int = 0

    def __post_init__(self) -> None:
        self.left = len(self.images)
        self.pixels = [None] * self.left
        self.rows = [None] * self.left

    @property
    def problems(self) -> list[tuple[int, str]]:
        """Which images cannot be read, and why."""
        return [(n, own) for n, own in enumerate(self.pixels) if isinstance(own, str)]


class Batcher:
    """A queue of images before one network.

    An image waits for others only while these are being decoded, and at most `delay`: a single
    request is not held up, and under load batches fill by themselves while the network computes.
    A full batch is handed to a network in a process of its own while it still looks at the last
    one, so that it never waits. Answers come in the order in which images were handed over.

    Args:
        batch: number of images that the network is shown together at most.
        delay: seconds.
        capacity: number of images at most that are decoded, wait or are looked at.
        pixels: of an image, at most.
        threads: that decode; by default one per usable core.
        done: called from other threads with works that are finished, each once.
        seen: told, after each batch, what was said of it.
    """

    def __init__(
        self,
        *,
        batch: int,
        delay: float,
        capacity: int,
        pixels: int,
        threads: int | None,
        done: Callable[[list[Work]], None],
        seen: Callable[[Told], None],
    ) -> None:
        self.pending = 0
        self._batch, self._delay, self._capacity = batch, delay, capacity
        self._pixels, self._done, self._seen = pixels, done, seen
        self._changed = Condition()
        self._ready: deque[tuple[Work, int]] = deque()
        self._decoding = self._looking = 0
        self._closed = False
        self._encoded: SimpleQueue[tuple[Work, int] | None] = SimpleQueue()
        self._asked: SimpleQueue[tuple[Batch, Callable[[], Told]] | None] = SimpleQueue()
        self._network = [_started(self._ask), _started(self._answer)]
        self._decoders = [_started(self._decode_all) for _ in range(threads or usable_cores())]

    @property
    def open(self) -> bool:
        """Whether work is taken."""
        return not self._closed and all(thread.is_alive() for thread in self._network)

    def submit(self, work: Work) -> None:
        """Takes the images of a request.

        Raises:
            FullError: There is no room for them, or the queue is closed.
        """
        count = len(work.images)
        with self._changed:
            if self._closed or self.pending + count > self._capacity:
                raise FullError
            self.pending += count
            self._decoding += 1
        for number in range(count):
            self._encoded.put((work, number))

    def close(self) -> None:
        """Takes no more work, and returns once all that was taken is done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._network:
            thread.join()
        for _ in self._decoders:
            self._encoded.put(None)
        for thread in self._decoders:
            thread.join()

    def _decode_all(self) -> None:
        while task := self._encoded.get():
            self._decode(*task)
            del task  # it would keep its images and their model in memory until others come

    def _decode(self, work: Work, number: int) -> None:
        image = work.images[number]
        found: NDArray[np.uint8] | str
        try:
            if work.dropped:
                raise DataError("Nobody waits for it.")
            found = pixels(image.data, image.name, work.model.way, self._pixels)
        except BneError as error:
            found = str(error)
        except Exception as error:  # nothing that a client sends may stop a thread
            LOG.exception("An image could not be decoded.")
            found = f"{image.name}: the image cannot be decoded ({error})."
        work.pixels[number] = found
        with self._changed:
            work.left -= 1
            if work.left:
                return
            self._decoding -= 1
            bad = bool(work.problems)
            if bad:
                self.pending -= len(work.images)
            else:
                work.left, work.ready = len(work.images), time.monotonic()
                self._ready.extend((work, n) for n in range(len(work.images)))
            if not self._looking or len(self._ready) >= self._batch:
                self._changed.notify()
        if bad:
            self._done([work])

    def _ask(self) -> None:
        while batch := self._take():
            self._asked.put((batch, self._begin(batch)))
            del batch
        self._asked.put(None)

    def _take(self) -> Batch:
        """The next images, all of the same model; none once the queue is closed and empty."""
        with self._changed:
            while True:
                while self._ready and self._ready[0][0].dropped:
                    self._ready.popleft()
                    self.pending -= 1
                if not self._ready:
                    if self._closed and not self.pending:
                        return []
                    self._changed.wait()
                    continue
                first, full = self._ready[0][0], len(self._ready) >= self._batch
                rest = first.ready + self._delay - time.monotonic()
                if self._looking < (AHEAD if full else 1) and (
                    full or not self._decoding or rest <= 0
                ):
                    break
                self._changed.wait(None if self._looking else rest)
            self._looking += 1
            taken: Batch = []
            while self._ready and len(taken) < self._batch:
                if self._ready[0][0].model is not first.model:
                    break
                taken.append(self._ready.popleft())
            return taken

    def _begin(self, batch: Batch) -> Callable[[], Told]:
        """Hands images to the network; what is returned gives what it says, or raises."""
        shown: list[Any] = [work.pixels[number] for work, number in batch]
        names = [work.images[number].name for work, number in batch]
        asked = [work.asked for work, _ in batch]
        ask = partial(batch[0][0].model.begin, np.stack(shown), names, asked)
        try:
            return ask()
        except Exception:  # its process is gone
            return lambda: ask()()  # which tells

    def _answer(self) -> None:
        while asked := self._asked.get():
            self._finish(*asked)
            del asked

    def _finish(self, batch: Batch, heard: Callable[[], Told]) -> None:
        self._look(batch, heard)
        finished = []
        for work, _ in batch:
            work.left -= 1
            if not work.left:
                finished.append(work)
        with self._changed:
            self.pending -= len(batch)
            self._looking -= 1
            self._changed.notify()
        if finished:
            self._done(finished)

    def _look(self, batch: Batch, heard: Callable[[], Told]) -> None:
        """Notes the answers of a batch; one that the network fails at spoils no other's."""
        try:
            told = heard()
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    self._look([one], self._begin([one]))
                return
            work, number = batch[0]
            if isinstance(error, BneError):
                work.pixels[number] = str(error)
            else:
                if not isinstance(error, BrokenPipeError):  # its process is gone; `Live` tells it
                    LOG.exception("The network failed.")
                work.failed = True
            return
        for (work, number), row in zip(batch, told.rows, strict=True):
            work.rows[number] = row
        self._seen(told)


def _started(task: Callable[[], None]) -> Thread:
    thread = Thread(target=task, name=task.__name__.strip("_"), daemon=True)
    thread.start()
    return thread
