"""Ctrl-C and SIGTERM, which let the present step finish."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ECHO = 1.0  # seconds in which torchrun passes on a Ctrl-C that its processes heard themselves


@dataclass
class Interruption:
    """Whether the program was told to stop."""

    wanted: bool = False


@contextmanager
def noticed() -> Iterator[Interruption]:
    """A context in which a first Ctrl-C or SIGTERM is only noted; a later one does what it did.

    Signals come to the main thread: elsewhere nothing is changed.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    noted = 0.0

    def note(number: int, _: object) -> None:
        nonlocal noted
        if not interruption.wanted:
            interruption.wanted, noted = True, time.monotonic()
        elif time.monotonic() - noted > ECHO:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
