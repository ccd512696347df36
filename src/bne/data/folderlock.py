"""A lock on a folder that ends with the process that holds it, however that ends."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, after waiting for whoever has it (POSIX only)."""
    import fcntl

    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.warning("%s: waiting for another process that prepares images here.", folder)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
