"""The command line: one verb a job, each in its own file."""

import os
import sys


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
        from bne.engine.errors import TrainingError

        known = DataError | TrainingError | OSError
        if os.environ.get("BNE_DEBUG") == "1" or not isinstance(error, known):
            raise
        import typer

        typer.secho(f"Error: {error}", fg="red", err=True)
        sys.exit(1)
