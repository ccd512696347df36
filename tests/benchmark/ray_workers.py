"""What Ray's workers run in tests; it imports little, and takes no time."""

import os
import signal
import time
from pathlib import Path

from bne.benchmark.execute import Job, Outcome
from bne.benchmark.plan import Item
from bne.errors import Interrupted


def attempt(item: Item, job: Job) -> Outcome:
    """Ends the process, fails, takes for ever or tells its row, whichever the row says."""
    if item.row == "deadly":
        with (job.out / "deaths").open("a") as file:
            file.write(f"{os.getpid()}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    if item.row == "unwritable":
        raise PermissionError("no such luck")
    if item.row == "endless":
        _take_for_ever(job.out / f"{item.recipe.seed}")
    return Outcome(item, problem=item.row)


def _take_for_ever(state: Path) -> None:
    """As a run does: a signal is noted, and then all is saved."""
    noted = []
    before = signal.signal(signal.SIGINT, lambda *_: noted.append(True))
    state.write_text("at work")
    while not noted:
        time.sleep(0.05)
    time.sleep(0.5)
    signal.signal(signal.SIGINT, before)
    state.write_text("saved")
    raise Interrupted("Stopped.")
