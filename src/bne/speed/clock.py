"""Timing, on a GPU and on the CPU."""

from __future__ import annotations

import gc
import math
import time
from contextlib import contextmanager, suppress
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Work = Callable[[], object]

LONG_ENOUGH = {"cuda": 0.2, "cpu": 0.02}  # seconds, that one reading of the clock should span
WARM_UP = 4  # calls before anything is recorded or timed on a GPU


class Timed(Protocol):
    """Names something to be timed."""

    @property
    def graph(self) -> bool:
        """Whether it is run as a CUDA graph."""


Key = TypeVar("Key", bound=Timed)


class Timing(NamedTuple):
    """How long a case takes.

    Attributes:
        milliseconds: a call, in each repeat.
        peak: the most memory in use at a time, in MiB; None if nobody counts it.
    """

    milliseconds: tuple[float, ...]
    peak: float | None = None

    @property
    def median(self) -> float:
        """Of all repeats."""
        return median(self.milliseconds)


def time_cases(
    works: Mapping[Key, Callable[[], Work]],
    device: torch.device,
    repeat: int,
    begin: Callable[[Key], None] = lambda _: None,
) -> dict[Key, Timing]:
    """Times every case; one that does not fit into the memory is left out.

    On a GPU one case after another, so that each has all the memory. On the CPU in turns, once in
    each repeat, so that whatever else the machine does hits all alike.

    Args:
        works: makes what is timed, for each case.
        device: that it runs on.
        repeat: how many readings to take.
        begin: is told each case before it is made.
    """
    with _best_algorithms():
        return (_on_gpu if device.type == "cuda" else _on_cpu)(works, repeat, begin)


def _on_gpu(
    works: Mapping[Key, Callable[[], Work]], repeat: int, begin: Callable[[Key], None]
) -> dict[Key, Timing]:
    timings = {}
    for case, make in works.items():
        begin(case)
        with suppress(torch.OutOfMemoryError):
            timings[case] = _gpu_timing(make(), case.graph, repeat)
        gc.collect()
        torch.cuda.empty_cache()
    return timings


def _gpu_timing(work: Work, as_graph: bool, repeat: int) -> Timing:
    side = torch.cuda.Stream()  # where recording demands that the work has run before
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            work()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        work()
    torch.cuda.synchronize()
    most = torch.cuda.max_memory_allocated() / 2**20
    if not as_graph:
        return Timing(_readings(work, torch.cuda.synchronize, "cuda", repeat), most)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    readings = _readings(graph.replay, torch.cuda.synchronize, "cuda", repeat)
    graph.reset()
    return Timing(readings, most)


def _on_cpu(
    works: Mapping[Key, Callable[[], Work]], repeat: int, begin: Callable[[Key], None]
) -> dict[Key, Timing]:
    made = {}
    for case, make in works.items():
        begin(case)
        made[case] = make()
        made[case]()
    readings: dict[Key, list[float]] = {case: [] for case in made}
    for _ in range(repeat):
        for case, work in made.items():
            readings[case] += _readings(work, lambda: None, "cpu", 1)
    return {case: Timing(tuple(values)) for case, values in readings.items()}


def _readings(work: Work, wait: Callable[[], None], device: str, repeat: int) -> tuple[float, ...]:
    """Milliseconds a call, over as many calls as make a reading long enough."""
    calls = math.ceil(LONG_ENOUGH[device] / _seconds(work, wait, 1))
    return tuple(_seconds(work, wait, calls) / calls * 1e3 for _ in range(repeat))


def _seconds(work: Work, wait: Callable[[], None], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait()
    return time.perf_counter() - start


@contextmanager
def _best_algorithms() -> Iterator[None]:
    """Lets cuDNN choose its algorithms by trying them."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
