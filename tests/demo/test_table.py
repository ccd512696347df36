import pytest

from bne.benchmark.tables import average
from bne.demo import Outcome
from bne.demo.report import cells

ACCURACIES = {("A", "x", 0): 50, ("A", "x", 1): 60, ("A", "y", 0): 80, ("A", "y", 1): 74}
ACCURACIES |= {("B", target, seed): 10 for target in "xy" for seed in (0, 1)}
OUTCOMES = [Outcome(*key, accuracy, ()) for key, accuracy in ACCURACIES.items()]


def test_cells_are_mean_and_standard_error_and_averaged_seed_by_seed():
    row = cells(OUTCOMES, "A")
    assert list(row) == ["x", "y"]
    found = [(cell.mean, cell.error) for cell in (*row.values(), average(list(row.values())))]
    assert found == [pytest.approx((55, 5)), pytest.approx((77, 3)), pytest.approx((66, 1))]
    assert str(row["x"]) == "55.0 ± 5.0"


def test_one_seed_has_no_error():
    cell = cells([outcome for outcome in OUTCOMES if outcome.seed == 0], "A")["x"]
    assert (cell.error, str(cell)) == (None, "50.0")
