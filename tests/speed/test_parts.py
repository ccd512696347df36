"""References and goals of every line, from made-up timings."""

import pytest

from bne.speed import PARTS, Measurement
from bne.speed.clock import Timing
from bne.speed.settings import Case
from tests.speed.settings import settings


def lines(part, device, milliseconds, **others) -> dict[tuple[object, ...], Measurement]:
    """All lines but compiled ones by what, K, images, graph and unit.

    `milliseconds` says how long a case takes.
    """
    return {
        (m.what, m.domains, m.images, m.graph, m.unit): m
        for m in measured(part, device, milliseconds, **others)
        if not m.compiled
    }


def measured(part, device, milliseconds, **others) -> list[Measurement]:
    """All lines."""
    entries = PARTS[part](settings(device, **others))
    timings = {
        e.case: Timing((milliseconds(e.case),), peak=100.0 * (e.case.domains + 1)) for e in entries
    }
    return [entry.measured(part, timings) for entry in entries]


def test_training_on_a_gpu():
    def milliseconds(case: Case) -> float:
        if case.work == "inference":
            return {4: 4.0, 16: 8.0}[case.images]
        if case.domains:
            return {"training": 40.0, "warm-up": 7.0}[case.work]
        return {6: 6.0, 24: 12.0, 96: 38.4}[case.images]

    found = lines("train", "cuda", milliseconds)
    step = found["DT step", 3, 6, True, "ms"]
    assert step.reference == pytest.approx(6 * 4 * 0.4)  # the best is at 96 images
    assert (step.goal, step.to_plain) == (1.15, pytest.approx(40 / 6))
    assert found["DT step", 3, 24, True, "ms"].reference == pytest.approx(24 * 4 * 0.4)
    detached = found["DT step, weights detached", 3, 6, True, "ms"]
    assert detached.reference == pytest.approx(6 * (3 * 0.4 + 0.5))
    assert detached.goal == 1.15
    warm_up = found["warm-up step", 3, 6, True, "ms"]
    assert (warm_up.reference, warm_up.goal, warm_up.met) == (6, 1.15, False)
    assert found["DT step", 3, 6, False, "ms"].to_plain == pytest.approx(40 / 6)


def test_inference_on_a_gpu():
    def milliseconds(case: Case) -> float:
        if case.images == 1:
            return (0.9 if case.graph else 14.0) if case.domains else (0.4 if case.graph else 3.0)
        return {0: 8.0 if case.images == 4 else 24.0}.get(case.domains, 16.8)

    found = lines("inference", "cuda", milliseconds)
    mixture = found["mixture", 3, 4, True, "ms"]
    assert (mixture.reference, mixture.goal) == (pytest.approx(4 * 4 * 1.5), 1.1)
    nearest = found["mixture, nearest=1", 3, 4, True, "ms"]
    assert (nearest.reference, nearest.goal) == (pytest.approx(4 * 2 * 1.5), 1.15)
    for domains in (3, 64):
        mixed = found["mixed statistics", domains, 4, True, "ms"]
        assert (mixed.ratio, mixed.goal, mixed.met) == (pytest.approx(2.1), 2.2, True)
    assert found["mixture", 3, 1, False, "ms"].reference == pytest.approx(12)
    assert found["mixture", 3, 1, False, "ms"].goal == 1.3
    assert found["mixture", 3, 1, True, "ms"].reference == pytest.approx(1.6)


@pytest.mark.parametrize("triton", [True, False])
def test_compiled_networks_are_compared_with_compiled_ones(monkeypatch, triton):
    monkeypatch.setattr("bne.speed.settings.find_spec", lambda _: triton or None)

    def milliseconds(case: Case) -> float:
        faster = 0.5 if case.compiled else 1.0
        return faster * (17.0 if case.domains else case.images)

    found = [line for line in measured("inference", "cuda", milliseconds) if line.compiled]
    if not triton:
        assert found == []
        return
    (mixture,) = [line for line in found if line.what == "mixture"]
    assert (mixture.images, mixture.domains, mixture.graph) == (4, 3, True)
    assert (mixture.reference, mixture.goal) == (pytest.approx(4 * 4 * 0.5), 1.1)
    assert mixture.to_plain == pytest.approx(17 / 4)
    assert all(line.met is not None for line in found if line.domains)


def test_memory_on_a_gpu():
    found = lines("memory", "cuda", lambda case: 20.0 if case.options else 16.0)
    whole = found["DT step", 3, 6, False, "MiB"]
    assert (whole.value, whole.reference, whole.goal) == (400, 400, 1.1)
    chunked = found["DT step, max_branches=1", 3, 6, False, "MiB"]
    assert (chunked.reference, chunked.goal) == (100, 2.2)
    assert found["DT step, max_branches=1", 3, 6, True, "ms"].ratio == pytest.approx(1.25)


def test_growth_on_a_gpu():
    found = lines(
        "growth",
        "cuda",
        lambda case: 0.5 if case.work == "distance" else float(case.domains + 20),
        per_domain=16,
    )
    assert {key[2] for key in found} == {192}
    assert found["DT step, nearest=4", 3, 192, True, "ms"].ratio is None
    for domains in (8, 32, 64):
        flat = found["DT step, nearest=4", domains, 192, True, "ms"]
        assert (flat.reference, flat.goal) == (28, 1.3)
    assert found["DT step, all branches", 8, 192, True, "ms"].reference == pytest.approx(9 * 20)
    linear = found["DT step, all branches, 8 at once", 64, 192, True, "ms"]
    assert (linear.reference, linear.goal) == (pytest.approx(65 * 20), None)
    share = found["embedding and distance alone", 64, 192, True, "ms"]
    assert (share.ratio, share.goal, share.met) == (pytest.approx(0.5 / 84), 0.03, True)
    assert share.to_plain is None


def test_a_cpu_has_one_goal_and_no_graphs():
    found = {
        (part, *key): line
        for part in PARTS
        for key, line in lines(part, "cpu", lambda _: 1.0).items()
    }
    assert not any(line.graph for line in found.values())
    goals = {(line.part, line.what, line.images): line.goal for line in found.values() if line.goal}
    assert goals == {("inference", "mixture", 4): 1.15}
