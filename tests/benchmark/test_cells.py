import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bne.benchmark.tables import Cell, average, compared, signed

PERCENT = st.floats(min_value=1, max_value=100)


@given(st.lists(PERCENT, min_size=2, max_size=6))
def test_mean_and_standard_error_are_numpys(values: list[float]) -> None:
    cell = Cell(dict(enumerate(values)), len(values))
    assert cell.mean == pytest.approx(np.mean(values))
    expected = np.std(values, ddof=1) / math.sqrt(len(values))
    assert cell.error == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell({0: 70.04}, 1), "70.0"),
        (Cell({0: 70.0, 1: 72.0}, 2), "71.0 ± 1.0"),
        (Cell({1: 70.0}, 3), "70.0 [1/3]"),
        (Cell({}, 3), "…"),
        (Cell({}, 0), "–"),
    ],
)
def test_a_cell_says_what_is_missing(cell: Cell, text: str) -> None:
    assert str(cell) == text
    assert (cell.error is None) == (len(cell.values) < 2)
    assert (cell.mean is None) == (not cell.values)


def test_only_seeds_that_every_target_has_are_averaged_and_targets_can_be_weighed() -> None:
    mean = average([Cell({0: 60.0, 1: 99.0}, 2), Cell({0: 80.0}, 2)])
    assert mean.values == {0: 70.0}
    assert str(mean) == "70.0 [1/2]"
    mean = average([Cell({0: 60.0}, 1), Cell({0: 80.0}, 1)], weights=[3, 1])
    assert mean.values == {0: 65.0}


def test_the_gain_is_over_common_seeds_only() -> None:
    base, gain = compared(Cell({0: 84.0, 1: 10.0}, 3), Cell({0: 80.0, 2: 20.0}, 3))
    assert base.values == {0: 80.0}
    assert gain.mean == pytest.approx(5)
    assert str(gain) == "+5.00 [1/3]"
    assert gain.difference(5.86) == " (−0.86)"
    base, gain = compared(Cell({0: 84.0}, 1), Cell({1: 80.0}, 1))
    assert base.mean is None
    assert gain.mean is None
    assert str(gain) == "…"


@given(st.dictionaries(st.integers(0, 4), st.tuples(PERCENT, PERCENT), min_size=1))
def test_the_gain_follows_from_the_printed_averages(pairs: dict[int, tuple[float, float]]) -> None:
    ours = Cell({seed: a for seed, (a, _) in pairs.items()}, len(pairs))
    deepall = Cell({seed: b for seed, (_, b) in pairs.items()}, len(pairs))
    base, gain = compared(ours, deepall)
    a, b = (statistics.fmean(values) for values in zip(*pairs.values(), strict=True))
    assert base.mean == pytest.approx(b)
    assert gain.mean == pytest.approx(100 * (a - b) / b, abs=1e-9)


def test_signs() -> None:
    assert [signed(x, 1) for x in (0.26, -0.26, -0.04)] == ["+0.3", "−0.3", "0.0"]
