"""What a verb shows while it works: share done, pace and time left, phase by phase."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from bne.deploy.pictures import Picture

    Advance = Callable[[str, float], None]

EVERY = 30.0  # seconds between two lines in a pipe
WIDE = 80  # columns that have room for a bar


class Phase(NamedTuple):
    """A part of the work.

    Attributes:
        name: what is done, "Classifying" for instance.
        amount: how many things there are.
        thing: what they are, "images" for instance.
        seconds: guessed time of one, where it does not depend on other phases.
        cost: guessed time of one beside those of other phases, where it does.
    """

    name: str
    amount: float
    thing: str = "images"
    seconds: float | None = None
    cost: float = 1.0


@contextmanager
def progress(
    *phases: Phase,
    bar: bool = True,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Advance]:
    """A context that shows, on stderr, how far work has come: a bar, or lines in a pipe.

    Args:
        *phases: parts of the work, in their order.
        bar: whether a terminal gets a bar, which breaks what is printed into lines that fit it.
        console: where to show it, if not on stderr.
        clock: tells the time in seconds.

    Yields:
        What is called with the name of a phase and how many more of it are done.
    """
    from rich.console import Console

    from bne.training.pace import Pace, Work

    shown = console or Console(stderr=True, highlight=False, markup=False)
    pace = Pace({one.name: Work(one.amount, one.cost, guess=one.seconds) for one in phases}, clock)
    kind = _Bar if bar and shown.is_terminal else _Lines
    show = kind(shown, phases, pace)

    def advance(name: str, count: float) -> None:
        pace.add(name, count)
        show(name)

    with show:
        show(phases[0].name)
        yield advance


def counted(pictures: Sequence[Picture], advance: Callable[[], None]) -> list[Picture]:
    """The same images, with every one that is read being told of, from any thread."""
    lock = Lock()

    def read(one: Picture) -> bytes:
        found = one.read()
        with lock:
            advance()
        return found

    return [one._replace(read=partial(read, one)) for one in pictures]


def told(phase: Phase, pace: Any) -> str:
    """`73 s left, 1,200 of 9,991 images, 120 images/s`; what matters most comes first."""
    from bne.words import duration

    work, left = pace.works[phase.name], pace.remaining()
    parts = ["time left not known yet" if left is None else f"{duration(left)} left"]
    if phase.amount > 1:
        done = int(min(work.done, phase.amount) + 1e-6)  # of runs, those that are over
        parts.append(f"{done:,} of {phase.amount:,.0f} {phase.thing}")
        if work.done and work.seconds:
            speed = work.done / work.seconds
            each = f"{speed:,.0f} {phase.thing}/s" if speed >= 1 else f"{duration(1 / speed)} each"
            parts.append(each)
    return ", ".join(parts)


class _Bar:
    """A bar on a terminal, which goes when the work is done."""

    def __init__(self, console: Console, phases: tuple[Phase, ...], pace: Any) -> None:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column
        from rich.text import Text

        class Told(TextColumn):
            def render(self, _: Any) -> Text:
                return Text(told(here._phase, pace), no_wrap=True)

        here = self
        self._phases, self._pace = {one.name: one for one in phases}, pace
        self._phase = phases[0]
        longest = max(len(one.name) for one in phases)
        self._bar = Progress(
            TextColumn("{task.description}", table_column=Column(min_width=longest)),
            *([BarColumn(10)] if console.width >= WIDE else []),
            TextColumn("{task.percentage:>3.0f} %", table_column=Column(min_width=5)),
            Told("", table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
            # What is printed to the same screen stands above the bar; the rest goes to its file.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(self._phase.name, total=1.0)

    def __enter__(self) -> None:
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, name: str) -> None:
        self._phase = self._phases[name]
        if not self._pace.works[name].left:  # the next phase has begun
            names = list(self._phases)
            following = names[names.index(name) + 1 :]
            self._phase = self._phases[following[0]] if following else self._phase
        self._bar.update(self._task, description=self._phase.name, completed=self._pace.share)


class _Lines:
    """A line every half minute, for files and pipes."""

    def __init__(self, console: Console, phases: tuple[Phase, ...], pace: Any) -> None:
        self._console, self._pace = console, pace
        self._phases = {one.name: one for one in phases}
        self._last = pace.clock()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, name: str) -> None:
        now = self._pace.clock()
        if now - self._last >= EVERY:
            self._last = now
            text = f"{name}: {told(self._phases[name], self._pace)}."
            self._console.print(text, soft_wrap=True)
