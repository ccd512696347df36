import pytest

from bne.words import readable_list, readable_size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.00 kB"),
        (786_432, "786.43 kB"),
        (1_572_864, "1.57 MB"),
        (1_966_080_000, "1.97 GB"),
        (3 * 10**12, "3.00 TB"),
    ],
)
def test_sizes_are_in_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert readable_size(count) == text


def test_lists_say_what_they_leave_out() -> None:
    assert readable_list(["a", "b"]) == "a, b"
    assert readable_list(["a", "b"], " and ", shown=2) == "a and b"
    assert readable_list(["a", "b", "c"], shown=1) == "a, … and 2 more"
