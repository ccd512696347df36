import struct

import pytest
from google.protobuf import struct_pb2, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from bne.models.weights import fields, varints


def read(message: bytes) -> list[tuple[int, int | bytes]]:
    return [
        (number, value if isinstance(value, int) else bytes(value))
        for number, value in fields(memoryview(message))
    ]


@given(st.integers(1, 2**64 - 1))
def test_varints_are_those_google_writes(value: int) -> None:
    message = wrappers_pb2.UInt64Value(value=value).SerializeToString()
    assert read(message) == [(1, value)]
    assert list(varints(memoryview(message[1:] * 3))) == [value] * 3


def test_other_wire_types_come_as_raw_bytes() -> None:
    double = wrappers_pb2.DoubleValue(value=1.5).SerializeToString()
    single = wrappers_pb2.FloatValue(value=-2.5).SerializeToString()
    text = wrappers_pb2.StringValue(value="σ").SerializeToString()
    assert read(double + single + text) == [
        (1, struct.pack("<d", 1.5)),
        (1, struct.pack("<f", -2.5)),
        (1, "σ".encode()),
    ]


def test_fields_keep_file_order_and_high_numbers() -> None:
    stamp = timestamp_pb2.Timestamp(seconds=7, nanos=9).SerializeToString()
    nested = struct_pb2.Value(struct_value={}).SerializeToString()
    assert read(stamp + nested) == [(1, 7), (2, 9), (5, b"")]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x0a\x05abc", "2 bytes of a field are missing"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fabc", "truncated"),  # claims 2**63 bytes
        (b"\x0d\x00\x00", "2 bytes of a field are missing"),
        (b"\x08\x80", "inside a number"),
        (b"\x08" + b"\x80" * 20, "inside a number"),
        (b"\x02\x00", "numbered 0"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_malformed_messages_are_refused(message: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(message)
