"""Ctrl-C and SIGTERM, which let the present step finish."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Interruption:
    """Whether the program was told to stop."""

    wanted: bool = False


@contextmanager
def noticed() -> Iterator[Interruption]:
    """A context in which a first Ctrl-C or SIGTERM is only noted; a second one does what it did.

    Signals come to the main thread: elsewhere nothing is changed.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    def note(number: int, _: object) -> None:
        interruption.wanted = True
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
