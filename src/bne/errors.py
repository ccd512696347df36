"""What the user can mend: each error's message is one sentence that says how."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

SHOWN = 24  # names at most


class BneError(Exception):
    """Something that the user can mend."""


class DataError(BneError):
    """Images, or files about them, are not as they must be."""


class SettingsError(BneError, ValueError):
    """What is asked for is unknown, impossible or not to be had on this machine."""


class TrainingError(BneError):
    """Training cannot begin or go on."""


class Interrupted(TrainingError):  # noqa: N818 - what the user wanted, no error
    """Training was told to stop, and has saved what it did."""


class MissingLibraryError(BneError, ModuleNotFoundError):
    """A library that is needed and not installed, with how to install it."""


def sentence(error: Exception) -> str:
    """What an error says; of the system's own also which file it is about."""
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return f"{named}{error.strerror}."
    return str(error)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name nearest to one that is unknown, or the first ones, to end a sentence with."""
    known = list(known)
    folded = {one.casefold(): one for one in known}
    near = get_close_matches(name.casefold(), folded, n=1)
    if near:
        return f"the nearest is {folded[near[0]]!r}"
    more = ", …" if len(known) > SHOWN else ""
    return f"there are {', '.join(known[:SHOWN])}{more}" if known else "there are none"


def require(module: str, extra: str = "models") -> Any:
    """Import an optional dependency, which an extra of the package brings.

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
            f"{library} is not installed: pip install 'bne[{extra}]' brings it.", name=library
        ) from error
