"""The model that is served: loaded beside the one in use when its file changes."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bne.deploy.monitor import Watch
from bne.deploy.predict import open_engine
from bne.errors import BneError, DataError, SettingsError
from bne.server.told import Asked, tell
from bne.training.manifest import BUNDLE

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from bne.data.images import Way
    from bne.deploy.answers import Seen
    from bne.deploy.manifest import Manifest
    from bne.deploy.predict import Looks
    from bne.server.told import Told

    Stamp = tuple[int, int, int]

LOG = logging.getLogger(__name__)
BETWEEN = 1.0  # seconds, from one look at the file to the next


class Model(Protocol):
    """A model that answers, in this process or another.

    Attributes:
        id: the same for the same model that answers in the same way.
        info: what is known of it.
    """

    id: str
    info: Manifest

    @property
    def way(self) -> Way:
        """How images are prepared for it."""

    @property
    def batch(self) -> int:
        """How many images it is given at a time."""

    @property
    def alive(self) -> bool:
        """Whether it can still answer: a process of its own may have been killed."""

    def begin(
        self, pixels: NDArray[np.uint8], names: Sequence[str], asked: Sequence[Asked]
    ) -> Callable[[], Told]:
        """Shows it (N, size, size, C) images; what is returned gives what it says of them."""


@dataclass(eq=False)
class Loaded:
    """A `Model` in this process.

    Attributes:
        id: the same for the same model that answers in the same way.
        engine: the network.
        info: what is known of it.
        watch: tells whether images still come from a known domain; None if the model cannot.
        threads: that torch computes with; None changes nothing.
    """

    id: str
    engine: Looks
    info: Manifest
    watch: Watch | None = None
    threads: int | None = None

    @classmethod
    def of(cls, path: Path, device: str, threads: int | None, **mode: Any) -> Loaded:
        """Reads a model file or an exported one, and has it answer for a black image.

        Raises:
            DataError: There is no model, or a damaged one.
            SettingsError: There is no such device, or the model cannot answer so.
        """
        engine, info = open_engine(path, device, threads=threads, **mode)
        tell(info, look_at_black(engine), ["black"], [Asked()], None)
        watch = None
        if getattr(engine, "reference", None) is not None:
            with suppress(SettingsError):  # too few images were held out
                watch = Watch(info, mixed=True)  # clients ask in turn
        return cls(_id(engine, info), engine, info, watch, threads)

    @property
    def way(self) -> Way:
        """How images are prepared for it."""
        return self.engine.way

    @property
    def batch(self) -> int:
        """How many images it is given at a time."""
        return self.engine.batch

    @property
    def alive(self) -> bool:
        """Whether it can still answer."""
        return True

    def begin(
        self, pixels: NDArray[np.uint8], names: Sequence[str], asked: Sequence[Asked]
    ) -> Callable[[], Told]:
        """What `answer` does, once the answer is wanted."""
        return partial(self.answer, pixels, names, asked)

    def answer(
        self, pixels: NDArray[np.uint8], names: Sequence[str], asked: Sequence[Asked]
    ) -> Told:
        """Looks at (N, size, size, C) images, and says what was asked of each."""
        self._use_threads()
        seen = self.engine(pixels, places=any(one.places for one in asked))
        return tell(self.info, seen, names, asked, self.watch)

    def _use_threads(self) -> None:
        """Sets how many threads torch computes with, for the calling thread."""
        if self.threads and hasattr(self.engine, "method"):
            import torch

            if torch.get_num_threads() != self.threads:
                torch.set_num_threads(self.threads)


def look_at_black(engine: Looks) -> Seen:
    """What the network gives for one black image."""
    way = engine.way
    return engine(np.zeros((1, way.size, way.size, way.channels), np.uint8))


def _id(engine: Any, info: Manifest) -> str:
    if not hasattr(engine, "method"):
        return str(engine.checksum[:16])
    from bne.deploy.bundle import checksum
    from bne.training.files import snapshot

    return checksum(snapshot(engine.method.state_dict()), info)[:16]


class Live:
    """A model that follows its file.

    A new file is loaded while the old model answers. One that cannot be loaded is reported once,
    and the old model stays. A model whose process was killed is loaded again.

    Args:
        path: of the file.
        device: to compute on.
        threads: to compute with; by default one per core.
        mode: how the model answers, see `bne.deploy.classifier.set_mode`.
        load: what reads the file; `bne.server.apart.Apart` gives the network a process of its own.

    Attributes:
        model: that answers now.
        changed: told of every new model, or why there is none.

    Raises:
        DataError: There is no model, or a damaged one.
        SettingsError: There is no such device, or the model cannot answer so.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        device: str = "auto",
        threads: int | None = None,
        mode: Mapping[str, Any] | None = None,
        load: Callable[..., Model] = Loaded.of,
    ) -> None:
        self._path = path = Path(path)
        if path.is_dir():
            self._path = path / BUNDLE
            if not self._path.is_file():
                raise DataError(f"{path} has no {BUNDLE}; make a model file with bne bundle.")
        self._how: dict[str, Any] = {"device": device, "threads": threads, **(mode or {})}
        self.changed: Callable[[Model | Exception], None] = lambda found: None
        self._load = load
        self._stop = Event()
        self._stamp = self._look()
        self.model: Model = load(self._path, **self._how)
        self._thread: Thread | None = None

    def watch(self) -> None:
        """Starts to follow the file."""
        self._thread = Thread(target=self._watch, name="model", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends that."""
        self._stop.set()
        if self._thread:
            self._thread.join()

    def refresh(self) -> None:
        """Loads the file if it is another than the last time, or the model cannot answer."""
        stamp = self._look()
        if stamp is None or (stamp == self._stamp and self.model.alive):
            return  # a file that is gone may be about to be replaced
        if not self.model.alive:
            LOG.error("The network's process has ended; %s is loaded again.", self._path)
        self._stamp = stamp
        try:
            found = self._load(self._path, **self._how)
        except Exception as error:  # whatever it is, the old model goes on answering
            if not isinstance(error, BneError):
                LOG.exception("The new model cannot be loaded.")
            self.changed(error)
            return
        if found.id != self.model.id or not self.model.alive:
            self.model = found
            self.changed(found)

    def _watch(self) -> None:
        while not self._stop.wait(BETWEEN):
            self.refresh()

    def _look(self) -> Stamp | None:
        try:
            now = self._path.stat()
        except OSError:
            return None
        return now.st_mtime_ns, now.st_size, now.st_ino
