"""Carries out a plan, one run after another or several at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bne.engine.errors import Interrupted
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
            yield from _in_processes(items, job, job.parallel)


def _in_processes(items: Sequence[Item], job: Job, size: int) -> Iterator[Outcome]:
    waiting = deque(items)
    while waiting:
        running: dict[Future[Outcome], Item] = {}
        pool = _pool(min(size, len(waiting)))
        try:
            while waiting or running:
                # No more than can be at work: were a process to die, one of these did it.
                while waiting and len(running) < size:
                    item = waiting[0]
                    running[pool.submit(attempt, item, job)] = item
                    waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    outcome = future.result()
                    del running[future]
                    yield outcome
        except BrokenProcessPool:
            suspects = list(running.values())
            running.clear()
            if size == 1:
                yield from (Outcome(item, problem=DIED) for item in suspects)
            else:  # each alone, to tell who did it
                for item in suspects:
                    yield from _in_processes([item], job, 1)
        finally:
            if running:
                for process in multiprocessing.active_children():
                    process.terminate()  # on which a run saves what it has done
            pool.shutdown(cancel_futures=True)


def _pool(size: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        size,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(max(1, (os.cpu_count() or 1) // size),),
    )


def _start_worker(threads: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(threads)


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
