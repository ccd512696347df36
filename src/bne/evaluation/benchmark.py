"""Carries out a plan, one run after another or several at a time."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from bne.engine.errors import Interrupted
from bne.evaluation.pool import in_processes
from bne.evaluation.runs import Outcome, attempt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bne.evaluation.plan import Item
    from bne.evaluation.runs import Job

DIED = "its process died, perhaps for lack of memory"
STOPPED = "Stopped; what was done is saved, and the same command goes on."


def execute(items: Sequence[Item], job: Job) -> Iterator[Outcome]:
    """Carries out runs and yields how each ended; one that fails does not stop the others.

    A run that was interrupted before is continued from its folder.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; what the runs at work had done is saved.
    """
    if job.parallel == 1:
        for item in items:
            yield attempt(item, job)
    else:
        with _interrupted_by_signals():
            work = partial(attempt, job=job)
            for item, outcome in in_processes(work, items, job.parallel, _start_worker):
                yield outcome or Outcome(item, problem=DIED)


def _start_worker(count: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // count))


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """A context that Ctrl-C and SIGTERM leave in order."""

    def stop(*_: object) -> None:
        raise Interrupted(STOPPED)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
