"""What clients send, read into memory within limits: nothing is ever written to disk."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from bne.data.entries import printable
from bne.server.batching import Image
from bne.words import readable_size

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

LONGEST = 200  # characters of a name that are told back


class RefusedError(Exception):
    """A request that is not carried out.

    Args:
        status: of the answer.
        detail: one sentence.
        headers: of the answer.
    """

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}


def busy(detail: str) -> RefusedError:
    """What is answered where trying again helps."""
    return RefusedError(503, detail, {"Retry-After": "1"})


class Uploads:
    """All bodies in memory at a time.

    Args:
        each: bytes of a body, at most.
        together: bytes of all, at most.
        seconds: until a body must be there.
    """

    def __init__(self, each: int, together: int, seconds: float) -> None:
        self.held = 0
        self._each, self._together, self._seconds = each, together, seconds

    @contextmanager
    def room(self) -> Iterator[list[int]]:
        """A context that counts the bytes of a body, and forgets them at its end."""
        own = [0]
        try:
            yield own
        finally:
            self.held -= own[0]

    async def read(
        self, receive: Callable[[], Awaitable[Any]], announced: str | None, own: list[int]
    ) -> bytes:
        """A whole body.

        Args:
            receive: gives the messages of an ASGI server.
            announced: what the request says of its length.
            own: what `room` gave.

        Raises:
            RefusedError: It is too long or too slow, too much is held already, or the client left.
        """
        if announced and announced.isdecimal() and int(announced[:20]) > self._each:
            raise self._too_large()
        parts = []
        try:
            async with asyncio.timeout(self._seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(408, "The client has gone.")
                    chunk, more = message.get("body", b""), message.get("more_body", False)
                    own[0] += len(chunk)
                    self.held += len(chunk)
                    if own[0] > self._each:
                        raise self._too_large()
                    if self.held > self._together:
                        raise busy("Too many requests are being received; try again.")
                    parts.append(chunk)
        except TimeoutError:
            raise RefusedError(
                408, "The request took too long to arrive; send it again.", {"Connection": "close"}
            ) from None
        return b"".join(parts)

    def _too_large(self) -> RefusedError:
        return RefusedError(
            413,
            f"The request has more than {readable_size(self._each)}; send fewer or smaller images.",
            {"Connection": "close"},
        )


def images_of(body: bytes, content_type: str, most: int) -> list[Image]:
    """The images in a body: the files of a form, or else the body itself.

    Args:
        body: as it was sent.
        content_type: as its header says.
        most: number of images, at most.

    Raises:
        RefusedError: There is none, there are too many, or the form is damaged.
    """
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        found = [Image("image", body)] if body else []
    else:
        found = _files(body, options.get(b"boundary", b""), most)
    if not found:
        raise RefusedError(422, "There is no image in the request; send one, or a form with files.")
    return found


def _files(body: bytes, boundary: bytes, most: int) -> list[Image]:
    found: list[Image] = []
    headers: dict[bytes, bytes] = {}
    field, value, content = bytearray(), bytearray(), bytearray()
    ended = False

    def begin() -> None:
        headers.clear()
        content.clear()

    def header() -> None:
        headers[bytes(field).lower()] = bytes(value)
        field.clear()
        value.clear()

    def part() -> None:
        disposition = headers.get(b"content-disposition", b"").decode("latin-1")
        options = parse_options_header(disposition)[1]
        if b"filename" not in options:
            raise RefusedError(
                422, "The form has a field that is no file; name parameters in the address, ?top=2."
            )
        if len(found) == most:
            raise RefusedError(413, f"There are more than {most} images; send fewer at a time.")
        name = options[b"filename"].decode("utf-8", "replace")[:LONGEST]
        found.append(Image(printable(name) or "image", bytes(content)))

    def end() -> None:
        nonlocal ended
        ended = True

    callbacks = {
        "on_part_begin": begin,
        "on_header_field": lambda data, start, stop: field.extend(data[start:stop]),
        "on_header_value": lambda data, start, stop: value.extend(data[start:stop]),
        "on_header_end": header,
        "on_part_data": lambda data, start, stop: content.extend(data[start:stop]),
        "on_part_end": part,
        "on_end": end,
    }
    with suppress(FormParserError):
        MultipartParser(boundary, callbacks).write(body)  # type: ignore[arg-type]
    if not (boundary and ended):
        raise RefusedError(422, "The form is damaged or cut short; send it again.")
    return found
