from collections.abc import Callable

import pytest

from bne.words import counted, duration, listed, ordinal, readable_size


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (readable_size, {0: "0 bytes", 999: "999 bytes", 1000: "1.00 kB", 786_432: "786.43 kB"}),
        (readable_size, {1_572_864: "1.57 MB", 1_966_080_000: "1.97 GB", 3 * 10**12: "3.00 TB"}),
        (duration, {5.4: "5 s", 119: "119 s", 120: "2 min", 7199: "120 min", 9000: "2.5 h"}),
        (ordinal, {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 21: "21st", 112: "112th"}),
        (lambda count: counted(count, "run"), {0: "0 runs", 1: "1 run", 2: "2 runs"}),
    ],
)
def test_numbers_as_people_read_them(
    function: Callable[[float], str], expected: dict[float, str]
) -> None:
    assert {number: function(number) for number in expected} == expected


def test_lists_say_what_they_leave_out() -> None:
    assert listed(iter("a")) == "a"
    assert listed("abc") == "a, b and c"
    assert listed("abc", "; ", "; ") == "a; b; c"
    assert listed("abcdefghij") == "a, b, c, d, e, f, g, h, i and j"
    assert listed("abcdefghijklm") == "a, b, c, d, e, f, g, h, i, j and 3 more"
