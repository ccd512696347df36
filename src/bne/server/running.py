"""A server as a process: its address, its key, and how it stops."""

from __future__ import annotations

import logging
import os
import signal
import socket
import warnings
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from bne.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import uvicorn

    from bne.server.app import Server

KEY = "BNE_API_KEY"
"""The environment variable of the API key."""


def read_key(file: Path | None) -> str | None:
    """The API key in a file or, without one, in the environment.

    Raises:
        SettingsError: It is empty, or nothing that a header can hold.
    """
    if file is None:
        found, place = os.environ.get(KEY), KEY
    else:
        found, place = file.read_text(encoding="utf-8", errors="replace").strip(), str(file)
    if found is None:
        return None
    if not found or not found.isascii() or not found.isprintable() or " " in found:
        raise SettingsError(
            f"{place}: the API key must be one word of plain letters, digits and signs."
        )
    return found


def listener(server: Server) -> uvicorn.Server:
    """What takes requests from a socket and has a server answer them."""
    import uvicorn

    from bne.server.connections import Connection

    seconds = server.limits.seconds
    connection = partial(Connection, seconds=seconds, model=lambda: server.live.model.id)
    config = uvicorn.Config(
        server.app,
        http=connection,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        server_header=False,
        # A client that does not read its answer must not keep the server from stopping.
        timeout_graceful_shutdown=ceil(2 * seconds),
    )
    return uvicorn.Server(config)


def run(server: Server, host: str, port: int, started: Callable[[str], None]) -> None:
    """Answers requests until a signal comes, and then those that were already made.

    Args:
        server: that answers.
        host: to listen at.
        port: 0 takes a free one.
        started: told the address.

    Raises:
        SettingsError: The address is not to be had.
    """
    # Clients are told of what is damaged, and fill no log.
    for decoder in ("PIL", "pydicom", "python_multipart"):
        warnings.filterwarnings("ignore", module=decoder)
        logging.getLogger(decoder).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module="<unknown>")  # arrays' headers, evaluated by NumPy
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, UnicodeError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"--host {host} --port {port}: cannot be listened at ({why}); choose others."
        ) from error
    answering = listener(server)

    # Until uvicorn takes signals; once it has stopped, it hands them on, which would end us with
    # an error.
    def stop(*_: Any) -> None:
        answering.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    name = f"[{host}]" if family == socket.AF_INET6 else host
    with listening:
        listening.listen(2048)
        started(f"http://{name}:{listening.getsockname()[1]}")
        answering.run([listening])
