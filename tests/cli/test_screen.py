"""Tables at any width of the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from bne.cli import screen

HEAD = ("domain", "images", "accuracy", "calibration error")
ROWS = [("art painting", "20", "80.0 (58.4–91.9)", "3.1"), ("写真", "4", "[b]–", "12.0")]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_no_line_is_too_long_and_no_figure_broken(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen.show_table(HEAD, ROWS, "a title")
    lines = capsys.readouterr().out.splitlines()
    assert max(Text(line).cell_len for line in lines) <= width
    for cell in (*ROWS[0][1:], *ROWS[1]):
        assert any(cell in line for line in lines)


def test_a_pipe_has_the_whole_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = [("row", *(f"{number:30}" for number in range(40)))]
    screen.show_table(("", *map(str, range(40))), rows)
    assert any("0 " in line and " 39" in line for line in capsys.readouterr().out.splitlines())


@given(
    st.lists(st.lists(st.integers(1, 12), min_size=3, max_size=3), min_size=2, max_size=9),
    st.integers(30, 140),
)
def test_every_column_is_in_one_part_that_fits(sizes: list[list[int]], width: int) -> None:
    columns = [[Text("x" * size) for size in column] for column in sizes]
    found = list(screen.parts(columns, width))
    shown = [place for part in found for place in part if place]
    assert shown == list(range(1, len(columns)))
    for part in found:
        assert 0 in part
        assert sum(part.values()) + screen.GAP * (len(part) - 1) <= width
        assert all(part[place] >= max(sizes[place]) for place in part)
