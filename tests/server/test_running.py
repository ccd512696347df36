"""A server's process: when it stops, and what it does not print."""

import subprocess
import sys

PROGRAM = """
import signal
from types import SimpleNamespace
from bne.server.running import run

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})

server = SimpleNamespace(app=app, limits=SimpleNamespace(seconds=5))
run(server, "127.0.0.1", 0, lambda address: signal.raise_signal(signal.SIGTERM))
print("stopped")
"""


def test_a_signal_right_after_the_start_is_not_lost() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


DAMAGED = """
import io
import numpy as np
from bne.data.images import read
from bne.errors import DataError

buffer = io.BytesIO()
np.save(buffer, np.zeros((2, 2), np.uint8))
for _ in range(2):
    try:
        read(buffer.getvalue().replace(b"|u1", b"\\\\ 1"), "image")
    except DataError:
        print("damaged")
"""


def test_what_numpy_says_of_damaged_arrays_fills_no_log() -> None:
    """It evaluates their headers, of which Python 3.12 warns every time, and 3.11 if told to."""
    command = [sys.executable, "-W", "always:invalid escape", "-c", PROGRAM + DAMAGED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("stopped\ndamaged\ndamaged\n", "")
