"""What is left, under a clock that the test turns."""

from dataclasses import replace

import pytest

from bne.recipes.schema import HeadPhase, Phase, Recipe
from bne.training.pace import LEANING, SCORING, Pace, RunPace, Work, epoch_costs, run_cost
from tests.training.test_listeners import epoch, start

PHASES = {"head": HeadPhase(epochs=2), "train": Phase(epochs=10, warm_up=4)}


class Clock:
    """Stands still until it is turned."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_kind_of_work_that_has_not_begun_is_guessed_and_then_measured() -> None:
    clock = Clock()
    pace = Pace({"quick": Work(10, 1), "slow": Work(10, 4)}, clock)
    assert pace.left() is None
    assert pace.share == 0
    clock.now += 20
    pace.add("quick", 5)  # 4 s each
    assert pace.left("quick") == 20
    assert pace.left("slow") == 160
    assert pace.remaining() == 180
    assert pace.share == pytest.approx(20 / 200)
    clock.now += 30
    assert pace.remaining() == 150  # counted down while nothing is told
    pace.add("quick", 5)
    clock.now += 8
    pace.add("slow", 2)  # as quick as the others after all: 4 s each
    assert pace.left() == 32
    assert pace.share == pytest.approx(1 - 32 / 90)  # 10 at 5 s each, 10 at 4 s each
    clock.now += 1000
    assert pace.remaining() == 0


def test_work_of_before_is_done_but_has_no_pace() -> None:
    clock = Clock()
    pace = Pace({"steps": Work(10, 1, before=6)}, clock)
    assert (pace.share, pace.left()) == (0.6, None)
    clock.now += 2
    pace.add("steps", 1)
    assert pace.left() == 6


def test_distance_training_is_expected_to_take_a_pass_per_domain_and_one_more() -> None:
    costs = epoch_costs(Recipe("bne", **PHASES), domains=3)
    assert [cost.stage for cost in costs[1:7:3]] == ["head", "warm-up"]
    assert [cost.training for cost in costs] == [pytest.approx(1 / 3)] * 2 + [1] * 4 + [4] * 6
    assert run_cost(Recipe("deepall", **PHASES), 3) == pytest.approx(10 + 2 / 3)
    assert run_cost(Recipe("bne", **PHASES), 3) == pytest.approx(28 + 2 / 3)
    assert run_cost(Recipe("points", **PHASES), 9) == pytest.approx(16 + 2 / 3)
    some = Recipe("bne", options={"nearest": 2}, **PHASES)
    assert epoch_costs(some, 9)[-1].training == 3


def test_a_run_is_not_expected_to_go_on_at_the_pace_of_its_warm_up(tmp_path) -> None:
    clock = Clock()
    pace = RunPace(start(tmp_path), clock)  # an epoch each of head, warm-up, distance training
    clock.now += 3.0
    pace.finished_epoch(epoch("head", 1, "head"))  # a second for its steps, two to score it
    assert pace.left(SCORING) == pytest.approx(2 * 2 * 3)  # of two epochs
    assert pace.left("warm-up") == pytest.approx(3)  # back through the network too
    assert pace.left("distance training") == pytest.approx(9)  # two branches and what weighs them
    clock.now += 3.0
    pace.finished_epoch(replace(epoch("train", 1, "warm-up"), seconds=2.0))
    assert pace.left("warm-up") == 0
    assert pace.left("distance training") == pytest.approx(6)
    assert pace.left(SCORING) == 1
    assert pace.left(LEANING) == pytest.approx(8)
    before = pace.remaining()
    clock.now += 12.0
    pace.finished_epoch(replace(epoch("train", 2, "a stage of its own"), seconds=11.0))
    assert pace.left("distance training") == 0
    assert pace.remaining() < before
