"""The wire format of protocol buffers, read without a schema.

A message is a sequence of fields, each a number and a value; what the numbers mean is the reader's
business. Values are slices of the input, so memory stays bounded by the size of the file, whatever
lengths it claims.
"""

from collections.abc import Iterator

_VARINT, _BITS64, _LENGTH_DELIMITED, _BITS32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field, in file order.

    A varint comes as an ``int``; every other kind of value as its raw bytes.

    Raises:
        ValueError: If the message is truncated or not a protocol buffer.
    """
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("it has a field numbered 0, so it is no protocol buffer")
        if wire_type == _VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire_type == _LENGTH_DELIMITED:
            length, position = _varint(message, position)
        elif wire_type == _BITS32:
            length = 4
        elif wire_type == _BITS64:
            length = 8
        else:
            raise ValueError(f"it has a field of unknown wire type {wire_type}")
        end = position + length
        if end > len(message):
            raise ValueError(f"it is truncated: {end - len(message)} bytes of a field are missing")
        yield number, message[position:end]
        position = end


def varints(packed: memoryview) -> Iterator[int]:
    """Yield the values of a packed repeated varint field."""
    position = 0
    while position < len(packed):
        value, position = _varint(packed, position)
        yield value


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return the varint that starts at ``position``, and the position after it."""
    value = 0
    for index, byte in enumerate(message[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("it is truncated or damaged inside a number")
