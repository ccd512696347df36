"""A server of a model that listens, in a thread of this process."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bne.server.app import Limits, Server
from bne.server.live import Live
from bne.server.running import listener


@contextmanager
def listening(path: Path, key: str | None = None, **limits: float) -> Iterator[str]:
    """Its address."""
    own = Server(Live(path, "cpu", 1, {}), Limits(threads=1, **limits), key)
    running = listener(own)
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        place.listen()
        thread = threading.Thread(target=running.run, args=([place],))
        thread.start()
        while not running.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{place.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join()
