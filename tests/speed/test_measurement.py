import pytest

from bne.speed.clock import Timing
from bne.speed.measurement import Entry, Measurement, best, peak
from bne.speed.settings import Case

PLAIN = Case("training", 48, graph=True)
OURS = Case("training", 48, graph=True, domains=3)


def test_ratios_of_made_up_timings():
    entry = Entry(
        "DT step",
        OURS,
        reference=lambda t: 4 * t[PLAIN].median,
        reference_is="4 plain passes",
        goal=1.15,
    )
    timings = {PLAIN: Timing((5.0, 4.0, 90.0)), OURS: Timing((22.0, 21.0, 23.0))}
    line = entry.measured("train", timings)
    assert (line.value, line.low, line.high) == (22, 21, 23)
    assert line.to_plain == pytest.approx(22 / 5)
    assert line.reference == pytest.approx(20)
    assert line.ratio == pytest.approx(1.1)
    assert line.met is True
    assert line.images_per_s == pytest.approx(48 / 0.022)
    assert (line.part, line.what, line.domains, line.images) == ("train", "DT step", 3, 48)


def test_a_missed_goal_and_none():
    timings = {OURS: Timing((30.0,))}
    assert Entry("a", OURS, reference=lambda _: 20, goal=1.4).measured("b", timings).met is False
    assert Entry("a", OURS, reference=lambda _: 20, goal=1.5).measured("b", timings).met is True
    without = Entry("a", OURS).measured("b", timings)
    assert (without.met, without.ratio, without.to_plain) == (None, None, None)


def test_what_did_not_fit_is_said():
    missing = Entry("a", OURS, reference=lambda t: t[PLAIN].median).measured("b", {})
    assert (missing.value, missing.met) == (None, None)
    assert "does not fit" in missing.note
    uncompared = Entry("a", OURS, reference=lambda t: t[PLAIN].median, goal=1.0)
    line = uncompared.measured("b", {OURS: Timing((1.0,))})
    assert (line.value, line.reference, line.met) == (1, None, None)


def test_memory_is_compared_with_memory():
    timings = {PLAIN: Timing((1.0,), 800.0), OURS: Timing((9.0,), 2000.0)}
    entry = Entry("DT step", OURS, "MiB", reference=lambda t: 4 * peak(t, PLAIN))
    line = entry.measured("memory", timings)
    assert (line.value, line.to_plain, line.ratio) == (2000, 2.5, 0.625)
    assert not line.graph  # the peak is that of a call, before it is recorded
    assert line.images_per_s is None
    uncounted = entry.measured("memory", {OURS: Timing((9.0,))})
    assert uncounted.value is None
    assert "GPU" in uncounted.note


def test_the_best_time_for_an_image():
    cases = [Case("training", images, graph=True) for images in (10, 20, 40)]
    timings = {cases[0]: Timing((5.0,)), cases[1]: Timing((8.0,))}  # the last did not fit
    assert best(timings, cases) == pytest.approx(0.4)
    with pytest.raises(KeyError):
        best({}, cases)


def test_the_plain_case():
    assert OURS.plain == PLAIN
    assert Case("warm-up", 48, graph=True, domains=3).plain == PLAIN
    look = Case("inference", 7, graph=False, domains=3, options=(("nearest", 1),))
    assert look.plain == Case("inference", 7, graph=False)


def test_nothing_is_divided_by_zero():
    assert Measurement("a", "b", 0, 1, False, "ms", value=0.0, reference=0.0).ratio is None
