"""A network in a process of its own.

Answering HTTP and decoding cost about as much as a small network. In one process they would take
turns with it at the interpreter's lock, which each of its operations hands over; two processes keep
two cores busy. Pixels go to the other process through a pipe, and answers come back as JSON.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
import weakref
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from bne.errors import BneError, DataError
from bne.server.live import Loaded, look_at_black
from bne.training.environment import keep_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import numpy as np
    from numpy.typing import NDArray

    from bne.data.images import Way
    from bne.deploy.manifest import Manifest
    from bne.server.told import Asked, Told

SMALL = 0.005
"""Seconds of one core for an image, below which a network is not spread over several cores."""


def load(path: Path, device: str, threads: int | None, **mode: Any) -> Apart:
    """What `Loaded.of` reads, in a process of its own that ends when nobody uses the model.

    Raises:
        DataError: There is no model, or a damaged one; or the process has ended.
        SettingsError: There is no such device, or the model cannot answer so.
    """
    model = Apart()
    try:
        model.id, model.info, model.way, model.batch = model.ask(path, device, threads, mode)()
    except BrokenPipeError:
        raise DataError(
            f"{path}: the process that loads it has ended; see to it that there is enough memory."
        ) from None
    return model


class Apart:
    """A `Model` in another process, which may be asked before it has answered the last question.

    Any thread may ask; one at a time may hear answers.
    """

    id: str
    info: Manifest
    way: Way
    batch: int

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "bne.server.apart"]
        # In a session of its own: Ctrl-C is for the server, which answers what was asked before.
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._asking = Lock()
        self._sent = self._received = 0
        self._answers: dict[int, Any] = {}  # that came before anyone wanted to hear them
        weakref.finalize(self, _end, self._process)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def begin(
        self, pixels: NDArray[np.uint8], names: Sequence[str], asked: Sequence[Asked]
    ) -> Callable[[], Told]:
        """Shows (N, size, size, C) images: what is returned gives what `Loaded.answer` does."""
        return self.ask(pixels, names, asked)

    def ask(self, *question: Any) -> Callable[[], Any]:
        """Asks, and returns at once: what is returned gives the answer, or raises."""
        assert self._process.stdin
        with self._asking:
            _send(self._process.stdin, question)
            number, self._sent = self._sent, self._sent + 1
        return lambda: self._answer(number)

    def _answer(self, number: int) -> Any:
        self._hear(number + 1)
        answer = self._answers.pop(number)
        if isinstance(answer, Exception):
            # What is asked next and an answer that nobody hears would wait for each other.
            with self._asking:
                self._hear(self._sent)
            raise answer
        return answer

    def _hear(self, count: int) -> None:
        """Hears the first so many answers, which come in the order of the questions."""
        assert self._process.stdout
        while self._received < count:
            try:
                heard = pickle.load(self._process.stdout)  # noqa: S301 - by ourselves
            except (EOFError, pickle.UnpicklingError):
                raise BrokenPipeError("The network's process has ended.") from None
            self._answers[self._received] = heard
            self._received += 1


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(BrokenPipeError), process:
        process.kill()


def _send(to: Any, what: Any) -> None:
    pickle.dump(what, to, pickle.HIGHEST_PROTOCOL)
    to.flush()


def main() -> None:
    """Loads the model that is asked for first, and looks at images until nobody asks any more."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # may be meant for all; the server ends this
    keep_memory(2**25, 2**28)  # it runs for long, with batches of one size
    told = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    models: list[Loaded] = []

    def open_model(path: Path, device: str, threads: int | None, mode: dict[str, Any]) -> Any:
        model = Loaded.of(path, device, threads, **mode)
        model.threads = threads or _threads_for(model.engine)
        models.append(model)
        return model.id, model.info, model.way, model.batch

    with suppress(EOFError, BrokenPipeError):  # the server has ended
        _answer(sys.stdin.buffer, told, open_model)
        while models:  # none if it could not be loaded
            _answer(sys.stdin.buffer, told, models[0].answer)


def _answer(asked: BinaryIO, told: BinaryIO, work: Callable[..., Any]) -> None:
    question = pickle.load(asked)  # noqa: S301 - by ourselves
    try:
        found = work(*question)
    except BneError as error:
        found = error
    except Exception:
        found = RuntimeError(traceback.format_exc())
    _send(told, found)


def _threads_for(engine: Any) -> int | None:
    """One for a small network, whose threads would wait more than work; None changes nothing."""
    if not hasattr(engine, "method"):  # ONNX Runtime, which is not told here
        return None
    import torch

    all_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times = []
    for _ in range(3):
        start = time.thread_time()  # which a busy machine hardly lengthens
        look_at_black(engine)
        times.append(time.thread_time() - start)
    return 1 if min(times) < SMALL else all_threads


if __name__ == "__main__":
    main()
