"""Libraries that only some networks need, imported when they do."""

from importlib import import_module
from typing import Any


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
