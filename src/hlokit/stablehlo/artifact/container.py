"""The container of MLIR bytecode: sections of strings, dialects, attributes and types, properties, operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from hlokit.errors import UnsupportedError
from hlokit.stablehlo.artifact.cursor import Cursor, failure

_T = TypeVar("_T")

MAGIC = b"ML\xefR"
NEWEST = 6
DIALECT_VERSIONS, LAZY_REGIONS, USE_LISTS, BRIEF_ARGUMENTS, PROPERTIES, SEGMENT_PROPERTIES = range(1, 7)
"""The additions of each version of the format."""

_STRINGS, _DIALECTS, _ENTRIES, _OFFSETS, OPERATIONS, _RESOURCES, _RESOURCE_OFFSETS, _VERSIONS, _PROPERTIES = range(9)
SECTIONS = (
    "strings", "dialects", "attributes", "sizes of attributes", "operations", "resources", "sizes of resources",
    "dialect versions", "properties",
)  # fmt: skip
_BLOB = 0


class Entry(NamedTuple):
    """An attribute or a type: its bytes at `offset`, in its dialect's own encoding or else as text that ends in 0."""

    dialect: str
    is_encoded: bool
    data: bytes
    offset: int


@dataclass(slots=True)
class BytecodeContainer:
    """The sections' content. `operations` is the one that the reader of operations goes on with.

    version       of the format, not of a dialect
    size          of the whole input, in bytes
    names         of operations, with their dialects, and whether the writer knew the operation
    properties    of operations, and where each lies
    resources     of dialects: the bytes of each that has some
    """

    version: int
    producer: str
    size: int
    strings: list[str] = field(default_factory=list[str])
    dialects: list[str] = field(default_factory=list[str])
    names: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    attributes: list[Entry] = field(default_factory=list[Entry])
    types: list[Entry] = field(default_factory=list[Entry])
    properties: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])
    resources: list[bytes | None] = field(default_factory=list["bytes | None"])
    operations: Cursor = field(default_factory=lambda: Cursor(b""))


def read_container(data: bytes) -> BytecodeContainer:
    """The sections of an input that begins with MAGIC. IndexError where it ends too early."""
    cursor = Cursor(data)
    cursor.take(len(MAGIC))
    version = cursor.varint()
    if version > NEWEST:
        raise UnsupportedError(f"MLIR bytecode of version {version}; up to {NEWEST} is read")
    end = data.find(b"\0", cursor.position)
    if end < 0:
        raise IndexError
    container = BytecodeContainer(version, cursor.take(end - cursor.position).decode("ascii", "replace"), len(data))
    cursor.byte()
    sections = _sections(cursor)
    for number in (_STRINGS, _DIALECTS, _ENTRIES, _OFFSETS, OPERATIONS):
        if number not in sections:
            raise failure(f"no section of {SECTIONS[number]}", len(data))
    _read_strings(container, sections[_STRINGS])
    _read_dialects(container, sections[_DIALECTS])
    _read_entries(container, sections[_OFFSETS], sections[_ENTRIES])
    if _RESOURCE_OFFSETS in sections:
        _read_resources(container, sections[_RESOURCE_OFFSETS], sections.get(_RESOURCES, Cursor(b"")))
    if _PROPERTIES in sections:
        _read_properties(container, sections[_PROPERTIES])
    container.operations = sections[OPERATIONS]
    return container


def _sections(cursor: Cursor) -> dict[int, Cursor]:
    found: dict[int, Cursor] = {}
    while cursor.rest:
        offset = cursor.offset
        number, content = cursor.section()
        if number >= len(SECTIONS) or number in found:
            raise failure(f"section {number}, which is unknown or here twice", offset)
        found[number] = content
    return found


def _finished(cursor: Cursor, what: str) -> None:
    if cursor.rest:
        raise cursor.error(f"{cursor.rest} bytes too many in the section of {what}")


def _read_strings(container: BytecodeContainer, cursor: Cursor) -> None:
    """The lengths, last string first, then the strings, each with a 0 at its end."""
    lengths = cursor.varints(cursor.varint())
    for length in reversed(lengths):
        text = cursor.take(length)
        if not text.endswith(b"\0"):
            raise cursor.error("a string without its end")
        container.strings.append(text[:-1].decode(errors="surrogateescape"))
    _finished(cursor, SECTIONS[_STRINGS])


def _read_dialects(container: BytecodeContainer, cursor: Cursor) -> None:
    """Dialects, then the names of operations by dialect."""
    for _ in range(cursor.varint()):
        index, is_versioned = cursor.flagged() if container.version >= DIALECT_VERSIONS else (cursor.varint(), 0)
        container.dialects.append(_at(container.strings, index, cursor, "string"))
        if is_versioned:
            cursor.section()
    if container.version >= BRIEF_ARGUMENTS:
        cursor.varint()
    while cursor.rest:
        dialect = _at(container.dialects, cursor.varint(), cursor, "dialect")
        for _ in range(cursor.varint()):
            index, is_known = cursor.flagged() if container.version >= PROPERTIES else (cursor.varint(), 1)
            container.names.append((f"{dialect}.{_at(container.strings, index, cursor, 'string')}", is_known))


def _read_entries(container: BytecodeContainer, sizes: Cursor, cursor: Cursor) -> None:
    """Attributes, then types, both in groups of one dialect; the sizes say where each lies."""
    for entries, count in ((container.attributes, sizes.varint()), (container.types, sizes.varint())):
        if count > sizes.rest + cursor.rest:
            raise sizes.error(f"{count} entries")
        while len(entries) < count:
            dialect = _at(container.dialects, sizes.varint(), sizes, "dialect")
            for size in sizes.varints(sizes.varint()):
                offset = cursor.base + cursor.position
                entries.append(Entry(dialect, bool(size & 1), cursor.take(size >> 1), offset))
        if len(entries) > count:
            raise sizes.error(f"{len(entries)} entries, expected {count}")
    _finished(sizes, SECTIONS[_OFFSETS])
    _finished(cursor, SECTIONS[_ENTRIES])


def _read_resources(container: BytecodeContainer, sizes: Cursor, cursor: Cursor) -> None:
    """Resources of others than dialects first; only blobs of dialects are kept."""
    external = sizes.varint()
    group = 0
    while sizes.rest:
        sizes.varint()
        for _ in range(sizes.varint()):
            sizes.varint()
            content = cursor.part(sizes.varint())
            kind = sizes.byte()
            if group >= external:
                container.resources.append(_blob(content) if kind == _BLOB and content.rest else None)
        group += 1
    _finished(cursor, SECTIONS[_RESOURCES])


def _blob(cursor: Cursor) -> bytes:
    alignment, size = cursor.varint(), cursor.varint()
    if not alignment or alignment & (alignment - 1):
        raise cursor.error(f"an alignment of {alignment}")
    cursor.take(-cursor.offset % alignment)
    return cursor.take(size)


def _read_properties(container: BytecodeContainer, cursor: Cursor) -> None:
    for _ in range(cursor.varint()):
        size = cursor.varint()
        offset = cursor.offset
        container.properties.append((cursor.take(size), offset))
    _finished(cursor, SECTIONS[_PROPERTIES])


def _at(values: list[_T], index: int, cursor: Cursor, what: str) -> _T:
    if index >= len(values):
        raise cursor.error(f"{what} {index} of {len(values)}")
    return values[index]
