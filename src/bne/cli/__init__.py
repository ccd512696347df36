"""The command line: one verb a job, each in its own file."""

import os
import sys
import time

HEAD_START = 5.0  # seconds


def main() -> None:
    """Runs the command line; what the user can mend is one sentence and exit code 1."""
    try:
        from bne.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit(f"Error: {error.name} is not installed; pip install 'bne[cli]' brings it.")
    try:
        app()
    except Exception as error:
        from bne.data.images import DataError
        from bne.engine.errors import Interrupted, TrainingError
        from bne.models.extras import MissingLibraryError

        known = DataError | TrainingError | MissingLibraryError | OSError
        if os.environ.get("BNE_DEBUG") == "1" or not isinstance(error, known):
            raise
        import typer

        first = os.environ.get("LOCAL_RANK", "0") == "0"
        if isinstance(error, Interrupted):
            if first:
                typer.echo(str(error), err=True)
            sys.exit(130)  # as a program that Ctrl-C ended
        if not first:
            # Most errors are those of all processes, and torchrun ends the rest after the first.
            time.sleep(HEAD_START)
        typer.secho(f"Error: {error}", fg="red", err=True)
        sys.exit(1)
