"""C structs as data: fields by name and type, laid out by C's rules.

    EVENT = Record("Event", {"lock": I32, "callbacks": POINTER, "threads": Field(I64, 16)})
    event = fn.pointer("event", EVENT)
    event["callbacks"].store(None)
    first = event["threads"][0].load()
    assert EVENT.offset("callbacks") == 8 and EVENT.bytes == 144

For Python `EVENT.structure` is the struct as ctypes has it, where pointers are integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from hlokit.cpu.llvm.types import Type

_CTYPES: dict[str, Any] = {
    "i8": ctypes.c_uint8,
    "i16": ctypes.c_uint16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "ptr": ctypes.c_uint64,
}


class Field:
    """A field of a struct: its type, or an array of `count` of it; 0 for what follows the struct's end.

    align   bytes that its place is a multiple of, if more than the type asks for
    """

    def __init__(self, type: Type, count: int = 1, align: int = 0) -> None:
        self.type, self.count, self.align = type, count, align


class PlacedField:
    """A field at its offset in bytes; `end`: where it ends."""

    def __init__(self, name: str, type: Type, count: int, offset: int) -> None:
        self.name, self.type, self.count, self.offset = name, type, count, offset
        self.end = offset + type.bytes * count


class Record(Type):
    """A C struct. As the element of a Pointer it is what p[i] counts in; p["name"] is the address of a field.

    fields    by name, with their offsets
    bytes     of the whole struct, up to a multiple of its alignment
    """

    __slots__ = ("__dict__", "align", "fields", "name")

    def __init__(self, name: str, fields: Mapping[str, Type | Field]) -> None:
        self.name = name
        self.align = 1
        self.fields: dict[str, PlacedField] = {}
        end = 0
        for key, given in fields.items():
            field = given if isinstance(given, Field) else Field(given)
            align = max(field.align, _alignment(field.type))
            placed = PlacedField(key, field.type, field.count, -(-end // align) * align)
            self.fields[key] = placed
            self.align, end = max(self.align, align), placed.end
        self.bytes = -(-end // self.align) * self.align
        self.scalar, self.lanes, self.suffix = name, 1, ""
        self.text = f"[{self.bytes} x i8]"
        self.is_float = False
        self.bits = 8 * self.bytes

    @property
    def end(self) -> int:
        """Where the last field ends."""
        return max((field.end for field in self.fields.values()), default=0)

    def offset(self, name: str) -> int:
        """Where a field begins, in bytes."""
        return self.fields[name].offset

    @cached_property
    def structure(self) -> type[ctypes.Structure]:
        """The struct for Python. Its pointers are integers."""
        made = type(self.name, (ctypes.Structure,), {"_fields_": list(self._ctypes())})
        assert ctypes.sizeof(made) == self.bytes, f"{self.name}: {ctypes.sizeof(made)} bytes, expected {self.bytes}"
        return made

    def _ctypes(self) -> Iterator[tuple[str, Any]]:
        end = 0
        for field in self.fields.values():
            one = field.type.structure if isinstance(field.type, Record) else _CTYPES[field.type.scalar]
            if field.offset - end >= _alignment(field.type):
                yield f"_before_{field.name}", ctypes.c_uint8 * (field.offset - end)
            yield field.name, one if field.count == 1 else one * field.count
            end = field.end
        if self.bytes - end >= max(map(_alignment, (f.type for f in self.fields.values())), default=1):
            yield "_after", ctypes.c_uint8 * (self.bytes - end)


def _alignment(type: Type) -> int:
    return type.align if isinstance(type, Record) else type.bytes
