"""Trains the tiny network once undisturbed, and once in processes that are killed.

    python -m tests.training.killed FOLDER METHOD...

Every attempt is a fork of this process, which has imported everything, and gets SIGKILL at a random
moment. Prints, for every method, after how many steps the newest checkpoint was at every kill.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from bne.recipes.schema import Averaging
from bne.training.checkpoints import all_of
from tests.training import small
from tests.training.small import run

MOST_STEPS = 3  # that are saved before a kill
LONGEST_WAIT = 0.01  # seconds between the last of them and the kill


def recipe(method: str):
    return small.recipe(method, averaging=Averaging("ema", decay=0.9), exact_statistics=True)


def newest(folder: Path) -> int:
    """The steps after which the newest checkpoint was written; 0 if there is none."""
    return max((int(path.name[-8:]) for path in all_of(folder / "checkpoints")), default=0)


def attempt(folder: Path, method: str, chance: random.Random) -> bool:
    """Trains in a child process, killed after a few steps; whether it got to the end."""
    enough = newest(folder) + chance.randint(0, MOST_STEPS)
    child = os.fork()
    if not child:
        try:
            run(recipe(method), small.images(), folder, resume=True, checkpoint_steps=1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    ended, status = 0, 0
    while not ended and newest(folder) < enough:
        time.sleep(0.001)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        time.sleep(chance.uniform(0, LONGEST_WAIT))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit("training failed")
    return os.WIFEXITED(status)


def train_and_kill(folder: Path, method: str) -> list[int]:
    """Trains to the end; the newest checkpoint at every kill."""
    chance = random.Random(method)
    reached = []
    while not attempt(folder, method, chance):
        reached.append(newest(folder))
    return reached


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for method in sys.argv[2:]:
        run(recipe(method), small.images(), folder / method / "whole")
    kills = {method: train_and_kill(folder / method / "killed", method) for method in sys.argv[2:]}
    print(json.dumps(kills))


if __name__ == "__main__":
    main()
