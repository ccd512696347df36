"""The command line: one verb per job, each in its own file."""

import os
import re
import sys
import time
from itertools import pairwise

HEAD_START = 5.0  # seconds
LIBRARIES = (
    "PIL",
    "filelock",
    "numpy",
    "rich",
    "safetensors",
    "sklearn",
    "torch",
    "torchvision",
    "typer",
    "yaml",
)


def main() -> None:
    """Runs the command line; what the user can mend is one sentence and exit code 1."""
    if empty := _empty_argument(sys.argv):
        sys.exit(f"Error: {empty} is empty; give a value, or leave it out.")
    try:
        from bne.training.files import open_streams

        open_streams()
        from bne.cli.app import app

        app()
    except Exception as error:
        missing = _missing_library(error)
        if os.environ.get("BNE_DEBUG") == "1" or not (missing or _can_be_mended(error)):
            raise
        if missing:
            sys.exit(f"Error: {missing} is not installed; pip install 'bne[cli]' brings it.")
        _explain(error)


def _empty_argument(arguments: list[str]) -> str:
    """What is empty, as a shell's unset variable is: as a path it would be the present folder."""
    for before, given in pairwise(arguments):
        if not given or re.fullmatch("--[a-z-]+=", given):
            return given.rstrip("=") or f"what follows {before}"
    return ""


def _missing_library(error: Exception) -> str:
    """One that every verb may need, and so no verb asks for."""
    name = error.name or "" if type(error) is ModuleNotFoundError else ""
    library = name.partition(".")[0]
    return library if library in LIBRARIES else ""


def _can_be_mended(error: Exception) -> bool:
    from bne.errors import BneError

    return isinstance(error, BneError | OSError)


def _explain(error: Exception) -> None:
    import typer

    from bne.errors import Interrupted, sentence

    first = os.environ.get("LOCAL_RANK", "0") == "0"
    if isinstance(error, Interrupted):
        if first:
            typer.echo(str(error), err=True)
        sys.exit(130)  # as a program that Ctrl-C ended
    if not first:
        # Most errors are those of all processes, and torchrun ends the rest after the first.
        time.sleep(HEAD_START)
    typer.secho(f"Error: {sentence(error)}", fg="red", err=True)
    sys.exit(1)
