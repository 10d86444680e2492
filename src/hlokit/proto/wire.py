"""Protobuf's wire format: the fields of a message in its bytes, without a schema.

It tells what kind of message a file holds before one is read as that kind. Bytes are untrusted: nothing here calls
itself, and a message may have at most MOST fields.
"""

from __future__ import annotations

from collections.abc import Iterator

MOST = 1 << 20
"""Fields of a message that are looked at."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}


class NotAMessage(ValueError):
    """The bytes are not a message of protobuf's wire format."""


def varint(data: memoryview, position: int) -> tuple[int, int]:
    """The number at `position`, and where the next field starts."""
    value = 0
    for count in range(10):
        if position + count >= len(data):
            break
        byte = data[position + count]
        value |= (byte & 127) << 7 * count
        if byte < 128:
            return value, position + count + 1
    raise NotAMessage


def fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Number, kind and content of each field in order; of BYTES the content alone, without its length."""
    position = 0
    for _ in range(MOST):
        if position == len(data):
            return
        tag, start = varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            position = varint(data, start)[1]
        elif kind == BYTES:
            length, start = varint(data, start)
            position = start + length
        elif kind in _WIDTHS:
            position = start + _WIDTHS[kind]
        else:
            raise NotAMessage
        if position > len(data) or not number:
            raise NotAMessage
        yield number, kind, data[start:position]
    raise NotAMessage


def is_message(data: memoryview) -> bool:
    """Whether all of `data` is a message."""
    try:
        for _ in fields(data):
            pass
    except NotAMessage:
        return False
    return True


def first(data: memoryview, number: int) -> memoryview | None:
    """The content of the first field of this number that holds bytes; None if there is none before a fault."""
    try:
        return next((content for found, kind, content in fields(data) if (found, kind) == (number, BYTES)), None)
    except NotAMessage:
        return None
