"""MLIR bytecode written: integers, tables of strings, attributes, types, properties and names, the sections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from hlokit.stablehlo.artifact.container import (
    BRIEF_ARGUMENTS,
    DIALECT_VERSIONS,
    MAGIC,
    OPERATIONS,
    PROPERTIES,
    SECTIONS,
)


def varint(value: int) -> bytes:
    """An unsigned integer of 64 bits: as many zero bits at the low end of the first byte as bytes follow it."""
    count = max(1, -(-value.bit_length() // 7))
    if count > 8:
        return b"\0" + value.to_bytes(8, "little")
    return ((value << 1 | 1) << (count - 1)).to_bytes(count, "little")


def signed(value: int) -> bytes:
    """A signed integer of 64 bits: its sign is the lowest bit."""
    if value >= 1 << 63:
        value -= 1 << 64
    return varint((value << 1) ^ (value >> 63))


def flagged(value: int, flag: bool) -> bytes:
    """An unsigned integer whose lowest bit is a flag."""
    return varint(value << 1 | flag)


def varints(values: Sequence[int]) -> bytes:
    """Several integers: their number, and each."""
    return varint(len(values)) + b"".join(map(varint, values))


def signed_list(values: Sequence[int]) -> bytes:
    return varint(len(values)) + b"".join(map(signed, values))


def blob(data: bytes) -> bytes:
    return varint(len(data)) + data


def section(number: int, content: bytes) -> bytes:
    return bytes([number]) + varint(len(content)) + content


class Tables:
    """The entries that operations name by number. Equal entries have one number."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._strings: dict[str, int] = {}
        self._dialects: dict[str, int] = {}
        self._names: dict[tuple[str, str, bool], int] = {}
        self._attributes: dict[tuple[str, bool, bytes], int] = {}
        self._types: dict[tuple[str, bool, bytes], int] = {}
        self._properties: dict[bytes, int] = {}

    def string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def name(self, full: str, is_known: bool) -> int:
        """An operation's name. `is_known`: its properties are in the operation's own encoding, else a dictionary."""
        dialect, _, short = full.partition(".")
        self.string(short)
        self._dialect(dialect)
        return self._names.setdefault((dialect, short, is_known), len(self._names))

    def attribute(self, dialect: str, data: bytes, is_encoded: bool = True) -> int:
        self._dialect(dialect)
        return self._attributes.setdefault((dialect, is_encoded, data), len(self._attributes))

    def type(self, dialect: str, data: bytes, is_encoded: bool = True) -> int:
        self._dialect(dialect)
        return self._types.setdefault((dialect, is_encoded, data), len(self._types))

    def properties(self, data: bytes) -> int:
        return self._properties.setdefault(data, len(self._properties))

    def _dialect(self, name: str) -> int:
        self.string(name)
        return self._dialects.setdefault(name, len(self._dialects))

    def artifact(self, producer: str, operations: bytes) -> bytes:
        """The whole: `operations` is the block of the module."""
        entries = (self._attributes, self._types)
        contents = [
            (1, self._dialect_section()),
            (2, b"".join(data for table in entries for _, _, data in table)),
            (3, b"".join(varint(len(t)) for t in entries) + b"".join(self._sizes(t) for t in entries)),
            (OPERATIONS, operations),
            (0, self._string_section()),
        ]
        if self.version >= PROPERTIES:
            contents.append((SECTIONS.index("properties"), varint(len(self._properties)) + b"".join(
                map(blob, self._properties)
            )))  # fmt: skip
        head = MAGIC + varint(self.version) + producer.encode() + b"\0"
        return head + b"".join(section(number, content) for number, content in contents)

    def _string_section(self) -> bytes:
        """The lengths, last string first, then the strings, each with a 0 at its end."""
        data = [text.encode(errors="surrogateescape") + b"\0" for text in self._strings]
        return varints([len(part) for part in reversed(data)]) + b"".join(data)

    def _dialect_section(self) -> bytes:
        parts = [varint(len(self._dialects))]
        for name in self._dialects:
            index = self._strings[name]
            parts.append(flagged(index, False) if self.version >= DIALECT_VERSIONS else varint(index))
        if self.version >= BRIEF_ARGUMENTS:
            parts.append(varint(len(self._names)))
        for dialect, names in groupby(self._names, key=lambda name: name[0]):
            listed = list(names)
            parts += [varint(self._dialects[dialect]), varint(len(listed))]
            for _, short, is_known in listed:
                index = self._strings[short]
                parts.append(flagged(index, is_known) if self.version >= PROPERTIES else varint(index))
        return b"".join(parts)

    def _sizes(self, entries: Iterable[tuple[str, bool, bytes]]) -> bytes:
        """The number of bytes of each entry, and whether it is in the dialect's own encoding, by dialect."""
        parts: list[bytes] = []
        for dialect, group in groupby(entries, key=lambda entry: entry[0]):
            listed = list(group)
            parts += [varint(self._dialects[dialect]), varint(len(listed))]
            parts += [flagged(len(data), is_encoded) for _, is_encoded, data in listed]
        return b"".join(parts)
