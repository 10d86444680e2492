"""C memory that Python fills: words, texts and named values that callers reference by address.

It is not Python's to free: C++ looks at it after Python has let go of all its objects, at the interpreter's exit.
"""

from __future__ import annotations

import ctypes
import math
import struct
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.buffers import STORAGE
from hlokit.interop.pjrt.native import native

_Array = np.ndarray[Any, Any]


class Kept:
    """C memory that lives as long as this object; at the interpreter's exit nothing of it is freed."""

    def __init__(self) -> None:
        self._storages: list[int] = []
        self._texts: dict[bytes, tuple[int, int]] = {}
        weakref.finalize(self, _release, self._storages).atexit = False

    def words(self, values: Sequence[int]) -> int:
        """The address of 64-bit words of their own; their list has somewhere to be even if it is empty."""
        return self._put(_packed(values))

    def fixed_words(self, values: Sequence[int]) -> int:
        """The address of 64-bit words, the same for equal ones. Nobody may write there."""
        return self.text(_packed(values))[0]

    def integers(self, values: Sequence[int]) -> int:
        """The address of C ints, the same for equal ones. Nobody may write there."""
        return self.text(struct.pack(f"{len(values)}i", *values))[0]

    def text(self, text: str | bytes) -> tuple[int, int]:
        """(address, length) of bytes, which a zero follows; the same for equal bytes. Nobody may write there."""
        data = text.encode() if isinstance(text, str) else text
        if data not in self._texts:
            self._texts[data] = self._put(data + b"\0"), len(data)
        return self._texts[data]

    def named(self, values: Mapping[str, Any]) -> tuple[int, int]:
        """(address, number) of NamedValues: texts, integers, lists of integers, floats, booleans."""
        named: Any = layouts.struct("NamedValue")
        rows: Any = (named * len(values))()
        for row, (name, value) in zip(rows, values.items()):
            row.size = layouts.size("NamedValue")
            row.name, row.name_size = self.text(name)
            row.value_size = 1
            if isinstance(value, bool):
                row.type, row.value = layouts.BOOL, int(value)
            elif isinstance(value, int):
                row.type, row.value = layouts.INT64, value & (1 << 64) - 1
            elif isinstance(value, float):
                row.type, row.value = layouts.FLOAT, int(np.float32(value).view(np.uint32))
            elif isinstance(value, str):
                row.type, (row.value, row.value_size) = layouts.STRING, self.text(value)
            else:
                row.type, row.value, row.value_size = layouts.INT64_LIST, self.fixed_words(value), len(value)
        return self.text(bytes(rows))[0], len(values)

    def _put(self, data: bytes) -> int:
        """The address of a copy of the bytes. MemoryError: there is no memory."""
        storage = native().allocate(max(1, len(data)))
        if not storage:
            raise MemoryError(f"{len(data):,} bytes")
        self._storages.append(storage)
        address = read_word(storage + STORAGE.offset("data"))
        ctypes.memmove(address, data, len(data))
        return address


def _packed(values: Sequence[int]) -> bytes:
    return struct.pack(f"{len(values)}Q", *(value & (1 << 64) - 1 for value in values))


def _release(storages: Sequence[int]) -> None:
    for storage in storages:
        native().release(storage)


def immortal(value: object) -> int:
    """The address of an object that Python never frees, at its exit neither: C++ may use it until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return id(value)


FOREVER = Kept()
"""Memory that callers may hold as long as the process lives."""


def constant(text: str) -> tuple[int, int]:
    """(address, length) of a text that is there as long as the process."""
    return FOREVER.text(text)


def read_words(address: int, count: int) -> list[int]:
    """64-bit integers at an address."""
    return list((ctypes.c_int64 * count).from_address(address)) if count else []


def read_word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def read_bytes(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size) if size else b""


def read_named(address: int, count: int) -> dict[str, Any]:
    """The NamedValues that lie there."""
    struct: Any = layouts.struct("NamedValue")
    rows: Any = (struct * count).from_address(address) if count else ()
    return {read_bytes(row.name, row.name_size).decode(): _named_value(row) for row in rows}


def _named_value(row: Any) -> Any:
    if row.type == layouts.STRING:
        return read_bytes(row.value, row.value_size).decode(errors="replace")
    if row.type == layouts.INT64_LIST:
        return read_words(row.value, row.value_size)
    if row.type == layouts.FLOAT:
        return float(np.uint32(row.value & 0xFFFFFFFF).view(np.float32))
    if row.type == layouts.BOOL:
        return bool(row.value & 1)
    return row.value - (1 << 64) if row.value >> 63 else row.value


def view(address: int, dimensions: Sequence[int], dtype: np.dtype[Any], strides: Sequence[int] | None = None) -> _Array:
    """The array that lies there. With `strides`, bytes a dimension, which may be negative."""
    if not all(dimensions):
        return np.empty(dimensions, dtype)
    if strides is None:
        size = math.prod(dimensions) * dtype.itemsize
        return np.ndarray(dimensions, dtype, memoryview((ctypes.c_char * size).from_address(address)))
    low = sum(min(0, (n - 1) * s) for n, s in zip(dimensions, strides))
    high = sum(max(0, (n - 1) * s) for n, s in zip(dimensions, strides))
    memory = (ctypes.c_char * (high - low + dtype.itemsize)).from_address(address + low)
    return np.ndarray(dimensions, dtype, memoryview(memory), -low, strides)
