"""Libraries that only some networks need, imported when they do."""

from importlib import import_module
from typing import Any


class TrainingError(ValueError):
    """Training cannot begin or go on."""


class Interrupted(TrainingError):  # noqa: N818 - what the user wanted, no error
    """Training was told to stop, and has saved what it did."""


class MissingLibraryError(ModuleNotFoundError):
    """A library that is needed and not installed, with how to install it."""


def require(module: str) -> Any:
    """Import an optional dependency.

    Raises:
        MissingLibraryError: It is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        if error.name != library:
            raise
        raise MissingLibraryError(
            f"{library} is not installed: pip install 'bne[models]' brings it.", name=library
        ) from error
