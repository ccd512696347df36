"""Tasks in processes of their own, some of which may die."""

from __future__ import annotations

import multiprocessing
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_processes(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    size: int,
    start: Callable[[int], None] | None = None,
) -> Iterator[tuple[Task, Result | None]]:
    """Yields every task with its result as they come; None if its process died.

    When a process dies, those at work with it are repeated one at a time, to tell who did it. If
    the caller stops early, processes at work get a SIGTERM.

    Args:
        work: that a process can import, and that returns what it can send.
        tasks: likewise.
        size: how many at a time.
        start: is called in every new process with the number of them.
    """
    waiting = deque(tasks)
    while waiting:
        running: dict[Future[Result], Task] = {}
        count = min(size, len(waiting))
        pool = ProcessPoolExecutor(
            count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=partial(start, count) if start else None,
        )
        try:
            while waiting or running:
                # No more than can be at work: were a process to die, one of these did it.
                while waiting and len(running) < size:
                    task = waiting[0]
                    running[pool.submit(work, task)] = task
                    waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    yield running.pop(future), result
        except BrokenProcessPool:
            suspects = list(running.values())
            running.clear()
            for task in suspects:
                if size == 1:
                    yield task, None
                else:
                    yield from in_processes(work, [task], 1, start)
        finally:
            if running:
                for process in multiprocessing.active_children():
                    process.terminate()
            pool.shutdown(cancel_futures=True)
