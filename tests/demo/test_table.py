import pytest

from bne.benchmark.tables import average
from bne.demo import Outcome
from bne.demo.report import cells


@pytest.fixture
def outcomes():
    accuracies = {("A", "x", 0): 50, ("A", "x", 1): 60, ("A", "y", 0): 80, ("A", "y", 1): 74}
    accuracies |= {("B", target, seed): 10 for target in "xy" for seed in (0, 1)}
    return [Outcome(*key, accuracy, ()) for key, accuracy in accuracies.items()]


def test_cells_are_mean_and_standard_error(outcomes):
    row = cells(outcomes, "A")
    assert list(row) == ["x", "y"]
    assert (row["x"].mean, row["x"].error) == pytest.approx((55, 5))
    assert (row["y"].mean, row["y"].error) == pytest.approx((77, 3))


def test_the_average_is_taken_seed_by_seed(outcomes):
    found = average(list(cells(outcomes, "A").values()))
    assert (found.mean, found.error) == pytest.approx((66, 1))  # 65 and 67


def test_one_seed_has_no_error(outcomes):
    cell = cells([o for o in outcomes if o.seed == 0], "A")["x"]
    assert cell.error is None
    assert str(cell) == "50.0"
    assert str(cells(outcomes, "A")["x"]) == "55.0 ± 5.0"
