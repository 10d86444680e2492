"""The relevant compile options of JAX, read from the serialized CompileOptionsProto."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlokit.errors import ArgumentError, ParseError
from hlokit.interop.pjrt.compile_flags import THREADS, check, threads


@dataclass(frozen=True)
class Options:
    """replicas, partitions: how many devices run the program. `assignment`: their numbers, replica by replica.

    `flags`: the compile options that jax.jit was given and compiling heeds; `threads`: those that take part in a call,
    None where no option says so.
    """

    replicas: int
    partitions: int
    assignment: tuple[int, ...]
    spmd: bool
    flags: Mapping[str, str]
    threads: int | None = None

    @property
    def count(self) -> int:
        return self.replicas * self.partitions


def parse(data: bytes, devices: int) -> Options:
    """The options.

    ParseError for what is no CompileOptionsProto, ArgumentError for devices or compile options that do not exist,
    UnsupportedError for compile options that hlokit does not know to follow.
    """
    build = _message(data, 3)  # ExecutableBuildOptionsProto
    replicas = max(1, _integer(build, 4, 1))
    partitions = max(1, _integer(build, 5, 1))
    given = _message(build, 9)  # DeviceAssignmentProto
    columns = [_integers(column, 1) for column in _messages(given, 3)]
    count = replicas * partitions
    if count > devices:
        raise ArgumentError(f"{replicas} replicas of {partitions} partitions: there are {devices}")
    if columns:
        if len(columns) != partitions or any(len(column) != replicas for column in columns):
            raise ArgumentError(f"the device assignment is not one of {replicas} replicas and {partitions} partitions")
        assignment = tuple(columns[p][r] for r in range(replicas) for p in range(partitions))
    else:
        first = _integer(build, 1, -1)
        assignment = (first,) if count == 1 and first >= 0 else tuple(range(count))
    if len(set(assignment)) != count or not all(0 <= number < devices for number in assignment):
        raise ArgumentError(f"devices {list(assignment)}: there are {devices}")
    overrides = _overrides(data)
    wanted = threads(overrides)
    overrides.pop(THREADS, None)
    return Options(replicas, partitions, assignment, bool(_integer(build, 6, 0)), check(overrides), wanted)


def _overrides(data: bytes) -> dict[str, bool | int | float | str]:
    """The `env_option_overrides`: compile options by name."""
    found: dict[str, bool | int | float | str] = {}
    for entry in _messages(data, 7):
        name = _message(entry, 1).decode(errors="replace")
        for number, value in fields(_message(entry, 2)):
            if isinstance(value, int):
                found[name] = bool(value) if number == 2 else _signed(value)
            elif number != 4:
                found[name] = value.decode(errors="replace")
            elif len(value) == 8:
                found[name] = struct.unpack("<d", value)[0]
            else:
                raise ParseError("the compile options have a double that is none")
    return found


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def host_device_count(data: bytes) -> int:
    """The number of --xla_force_host_platform_device_count; 1: it is not there."""
    debug = _message(_message(data, 3), 3)  # DebugOptions
    return _integer(debug, 102, 1)


def assignment_proto(options: Options) -> bytes:
    """The options' DeviceAssignmentProto."""
    head = b"\x08" + varint(options.replicas) + b"\x10" + varint(options.partitions)
    for partition in range(options.partitions):
        column = b"".join(varint(n) for n in options.assignment[partition :: options.partitions])
        column = b"\x0a" + varint(len(column)) + column
        head += b"\x1a" + varint(len(column)) + column
    return head


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a message's fields; integers of 64 bits, all else bytes."""
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            if place >= len(data) or shift > 63:
                raise ParseError("the compile options are no protobuf message")
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(data):
        key = number()
        kind = key & 7
        if kind == 0:
            yield key >> 3, number()
            continue
        size = {1: 8, 5: 4}.get(kind) or (number() if kind == 2 else -1)
        if size < 0 or place + size > len(data):
            raise ParseError("the compile options are no protobuf message")
        yield key >> 3, data[place : place + size]
        place += size


def _messages(data: bytes, field: int) -> list[bytes]:
    return [value for number, value in fields(data) if number == field and isinstance(value, bytes)]


def _message(data: bytes, field: int) -> bytes:
    return b"".join(_messages(data, field))


def _integer(data: bytes, field: int, default: int) -> int:
    """The last value; signed."""
    value = default
    for number, found in fields(data):
        if number == field and isinstance(found, int):
            value = _signed(found)
    return value


def _integers(data: bytes, field: int) -> list[int]:
    """A repeated field, packed or not."""
    found: list[int] = []
    for number, value in fields(data):
        if number != field:
            continue
        if isinstance(value, int):
            found.append(value)
        else:
            found += [part for _, part in fields(_keyed(value)) if isinstance(part, int)]
    return found


def _keyed(packed: bytes) -> bytes:
    """A packed list as fields of number 1."""
    return b"".join(b"\x08" + packed[a:b] for a, b in _varints(packed))


def _varints(data: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    for place, byte in enumerate(data):
        if byte < 128:
            yield start, place + 1
            start = place + 1
