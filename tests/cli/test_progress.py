"""What verbs show while they work, under a clock that the test turns."""

import io
import sys
from functools import partialmethod

import pytest
from rich.console import Console
from rich.progress import Progress

from bne.cli.progress import EVERY, Phase, counted, progress
from bne.cli.screen import say
from bne.deploy.pictures import Picture
from tests.cli.command import Pipe, Terminal

PHASES = Phase("Looking", 1000), Phase("Drawing", 4, "maps", seconds=20.0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_bar_tells_share_pace_and_time_left_from_the_first_second(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Progress, "update", partialmethod(Progress.update, refresh=True))
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)

    def said() -> str:
        return out.getvalue().splitlines()[-1]

    with progress(*PHASES, console=console, clock=clock) as advance:
        assert "0 % time left not known yet, 0 of 1,000 images" in said()
        clock.now = 10.0
        advance("Looking", 250)
        # 10 s have gone, 30 s of images and 80 s of maps are left.
        assert "8 % 110 s left, 250 of 1,000 images, 25 images/s" in said()
        clock.now = 40.0
        advance("Looking", 750)
        assert "33 % 80 s left, 0 of 4 maps" in said()
        clock.now = 70.0
        advance("Drawing", 1)  # it takes longer than was guessed
        assert "90 s left, 1 of 4 maps, 30 s each" in said()


def test_a_pipe_has_a_line_every_half_minute() -> None:
    out, clock = io.StringIO(), Clock()
    with progress(*PHASES, console=Console(file=out, width=40), clock=clock) as advance:
        for _ in range(100):
            clock.now += EVERY / 10
            advance("Looking", 10)
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "Looking: 6 min left, 100 of 1,000 images, 3 images/s."


@pytest.mark.parametrize("out", [Pipe, Terminal])
def test_lines_are_printed_where_they_belong(
    out: type[Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = out(), Terminal()
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setenv("TERM", "xterm")
    with progress(*PHASES):
        print("printed")
        say("a row :cat:")
        say("a problem", err=True)
    pipe, screen = (stream.getvalue() for stream in streams)
    above = ["a problem"]
    if out is Terminal:
        above += ["printed", "a row :cat:"]
        assert pipe == ""
    else:
        assert pipe == "printed\na row :cat:\n"
    for line in above:  # where the bar was, which is erased first
        before, found, after = screen.partition(line)
        assert found
        assert before.endswith("\r\x1b[2K")
        assert after.startswith("\n")


def test_reads_are_counted() -> None:
    seen: list[int] = []
    picture = Picture("a.png", lambda: b"bytes")
    (one,) = counted([picture], lambda: seen.append(1))
    assert (one.name, one.read(), one.read()) == ("a.png", b"bytes", b"bytes")
    assert len(seen) == 2
