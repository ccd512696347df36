"""Connections of plain HTTP, whose headers are neither long nor late.

uvicorn keeps a header in memory however long it is, and waits for its end for ever. And where a
client offers another protocol beside HTTP/1.1, as Java's do, it takes the body for a new request.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Callable

LONGEST = 65_536  # bytes of a header


class Connection(HttpToolsProtocol):
    """A client.

    Args:
        seconds: in which a header must arrive.
        model: tells the id of the model that answers.
    """

    def __init__(
        self, *arguments: Any, seconds: float, model: Callable[[], str], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._seconds, self._model = seconds, model
        self._unread = 0  # bytes that are no body and end no header
        self._late: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Waits for the first header."""
        super().connection_made(transport)
        self._expect_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no longer."""
        self._read_header()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes what the client sent, as if it had offered no other protocol."""
        self._unset_keepalive_if_required()
        self._unread += len(data)
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    data = b""
                except HttpParserUpgrade as offer:
                    data = self._without_offer() + data[offer.args[0] :]
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        else:
            if self._unread > LONGEST:
                self.send_400_response("The header of the request is too long.")

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no request, as a `Server` refuses others, and closes the connection."""
        model = self._model()
        told = json.dumps({"model": model, "detail": msg}).encode()
        head = (
            f"HTTP/1.1 400 Bad Request\r\nX-Model-Id: {model}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(told)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + told)
        self.transport.close()

    def on_message_begin(self) -> None:
        """A header begins."""
        self._expect_header()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A header ends."""
        self._read_header()
        if sum(len(name) + len(value) for name, value in self.headers) > LONGEST:
            raise HttpParserError  # it came so fast that nobody counted
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body, whose length others bound."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request ends."""
        self._unread = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _expect_header(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self._seconds, self.transport.close)

    def _read_header(self) -> None:
        self._unread = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _without_offer(self) -> bytes:
        """The header without its offer, for a parser that knows nothing of it."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            raise HttpParserError
        self.parser = HttpRequestParser(self)
        lines = [b"%s %s HTTP/%s" % (method, self.url, version.encode())]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"
