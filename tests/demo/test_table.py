import pytest

from bne.benchmark.tables import average
from bne.demo import Outcome
from bne.demo.report import cells
from bne.training.events import Leaning, Score


def outcome(method, target, seed, *correct, examples=()):
    """A run with so many of 100 images of the target correct at shares 0, 0.1, and so on."""
    held_out = {"held-out": Score(90, 100)}
    leanings = tuple(
        Leaning(number / 10, held_out, {target: Score(found, 100)}, 0, 0)
        for number, found in enumerate(correct)
    )
    return Outcome(method, target, seed, leanings, examples)


ACCURACIES = {("x", 0): 50, ("x", 1): 60, ("y", 0): 80, ("y", 1): 74}
OUTCOMES = [outcome("BNE", *key, correct, 90) for key, correct in ACCURACIES.items()]
OUTCOMES += [outcome("DeepAll", *key, 10) for key in ACCURACIES]


def test_cells_are_mean_and_standard_error_and_averaged_seed_by_seed():
    row = cells(OUTCOMES, "BNE")
    assert list(row) == ["x", "y"]
    found = [(cell.mean, cell.error) for cell in (*row.values(), average(list(row.values())))]
    assert found == [pytest.approx((55, 5)), pytest.approx((77, 3)), pytest.approx((66, 1))]
    assert str(row["x"]) == "55.0 ± 5.0"
    assert [cell.mean for cell in cells(OUTCOMES, "BNE, leaning").values()] == [90, 90]


def test_one_seed_has_no_error():
    cell = cells([outcome for outcome in OUTCOMES if outcome.seed == 0], "BNE")["x"]
    assert (cell.error, str(cell)) == (None, "50.0")
