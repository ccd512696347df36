"""Libraries that only some networks need, imported when they do."""

from importlib import import_module
from typing import Any


def require(module: str) -> Any:
    """Import an optional dependency, or say how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        if error.name != library:
            raise
        raise ModuleNotFoundError(
            f"{library} is not installed: pip install 'bne[models]' brings it", name=library
        ) from error
