"""How much of the machine this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """The CPU cores this process may run on, which a batch system may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
