"""What worker processes run in tests; it imports nothing that takes time."""

import os
import time


def start(threads: int) -> None:
    assert threads >= 1


def attempt(item: str, job: object) -> str:
    """Ends the process, takes for ever, or gives an answer."""
    if item.startswith("deadly"):
        os._exit(1)
    time.sleep(60 if item == "endless" else 0.05)
    return f"done: {item}"
