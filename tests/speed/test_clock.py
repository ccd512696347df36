import gc
import time

import pytest
import torch

from bne.speed.clock import Timing, time_cases
from bne.speed.settings import Case

CPU = torch.device("cpu")
SHORT, LONG = Case("training", 1, graph=False), Case("training", 2, graph=False)


def test_measures_how_long_a_call_takes():
    works = {SHORT: lambda: lambda: time.sleep(0.002), LONG: lambda: lambda: time.sleep(0.03)}
    timings = time_cases(works, CPU, 3)
    assert [len(timing.milliseconds) for timing in timings.values()] == [3, 3]
    assert 2 <= timings[SHORT].median < 30 <= timings[LONG].median
    assert timings[LONG].peak is None


def test_cases_take_turns_on_the_cpu():
    calls = []

    def work(name: str) -> None:
        time.sleep(0.021)  # one call is long enough for a reading
        calls.append(name)

    begun = []
    works = {SHORT: lambda: lambda: work("a"), LONG: lambda: lambda: work("b")}
    time_cases(works, CPU, 2, begun.append)
    assert begun == [SHORT, LONG]
    # Once to warm up; then, in every repeat, one call to tell how many to time, and those.
    assert "".join(calls) == "ab" + "aabb" * 2


def test_the_median_ignores_a_disturbance():
    assert Timing((2.0, 900.0, 1.0)).median == 2


def test_cudnn_is_left_as_it_was():
    seen = []
    before = torch.backends.cudnn.benchmark
    time_cases({SHORT: lambda: lambda: seen.append(torch.backends.cudnn.benchmark)}, CPU, 1)
    assert set(seen) == {True}
    assert torch.backends.cudnn.benchmark == before

    def fail() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        time_cases({SHORT: lambda: fail}, CPU, 1)
    assert torch.backends.cudnn.benchmark == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    gc.collect()
    held = torch.cuda.memory_allocated() / 2**20  # by tests before this one
    values = torch.ones(2**24, device="cuda")
    total = torch.zeros((), device="cuda")
    graph, calls = Case("training", 1, graph=True), Case("training", 1, graph=False)
    huge = Case("training", 2, graph=True)
    works = {
        graph: lambda: lambda: total.add_((values * 2).sum()),
        huge: lambda: lambda: torch.empty(2**45, dtype=torch.uint8, device="cuda"),
        calls: lambda: lambda: total.add_((values * 2).sum()),
    }
    timings = time_cases(works, torch.device("cuda"), 3)
    assert set(timings) == {graph, calls}
    for timing in timings.values():
        assert len(timing.milliseconds) == 3
        assert 0.01 < timing.median < 10
        assert 128 <= timing.peak - held < 140  # both the values and their double
    assert total > 0
