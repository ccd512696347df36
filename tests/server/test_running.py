"""A server's process: when it stops."""

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
