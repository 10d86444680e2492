"""Values as bytes: arrays one after the other, and a header that describes them."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hlokit.hlo.values import TOKEN_VALUE, Array, Dynamic, TokenValue, is_ndarray, is_sequence
from hlokit.types import dtype as dtypes

_ALIGNED = 64
"""Bytes; every array begins at a multiple of it."""
_POOLED, _MOST_KEPT = 1 << 16, 1 << 23
"""Bytes of memory that waits to be used again: malloc reuses less by itself, and more is not to be held."""


def described(value: Any, arrays: list[Array]) -> Any:
    """The header of a value, as JSON has it. Its arrays are added to `arrays`, in order."""
    if is_ndarray(value):
        arrays.append(value)
        return ["array", dtypes.dtype(value.dtype).name, list(value.shape)]
    if isinstance(value, Dynamic):
        return ["dynamic", list(value.sizes), described(value.buffer, arrays)]
    if is_sequence(value):
        return ["tuple", *(described(part, arrays) for part in value)]
    if value is None or isinstance(value, TokenValue):
        return None if value is None else ["token"]
    raise AssertionError(f"{type(value).__name__} is no value")


def rebuilt(header: Any, arrays: Iterator[Array]) -> Any:
    """The value with this header."""
    if header is None:
        return None
    kind, *more = header
    match kind:
        case "array":
            return next(arrays)
        case "dynamic":
            return Dynamic(rebuilt(more[1], arrays), tuple(more[0]))
        case "tuple":
            return tuple(rebuilt(part, arrays) for part in more)
        case _:
            return TOKEN_VALUE


def arrays_of(header: Any) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
    """Type and shape of each array of a header."""
    if header is None or header[0] == "token":
        return []
    if header[0] == "array":
        return [(dtypes.DTYPES[header[1]].numpy, tuple(header[2]))]
    parts = header[2:] if header[0] == "dynamic" else header[1:]
    return [found for part in parts for found in arrays_of(part)]


def packed_size(arrays: Iterable[tuple[np.dtype[Any], tuple[int, ...]]]) -> int:
    """Bytes that arrays of these types and shapes take together."""
    return sum(_padded(math.prod(shape) * dtype.itemsize) for dtype, shape in arrays)


def pack(arrays: Iterable[Array], into: Array) -> None:
    """Copies the arrays to `into`, which has as many bytes as they take."""
    start = 0
    for array in arrays:
        view = into[start : start + array.nbytes].view(array.dtype)
        view.reshape(array.shape)[...] = array
        start += _padded(array.nbytes)


def unpacked(data: Array, arrays: Iterable[tuple[np.dtype[Any], tuple[int, ...]]]) -> Iterator[Array]:
    """The arrays of these types and shapes, in place."""
    start = 0
    for dtype, shape in arrays:
        size = math.prod(shape) * dtype.itemsize
        yield data[start : start + size].view(dtype).reshape(shape)
        start += _padded(size)


def buffer(size: int) -> Array:
    """Bytes that begin at a multiple of what each array does."""
    whole = np.empty(size + _ALIGNED, np.uint8)
    skip = -whole.__array_interface__["data"][0] % _ALIGNED
    return whole[skip : skip + size]


class Staging:
    """Memory that bytes pass through on their way to other processes and from them, used again and again."""

    def __init__(self) -> None:
        self._free: list[Array] = []
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, size: int) -> Generator[Array]:
        """So many bytes, with anything in them. After an exception they are not used again: an operation that was left
        may still write there."""
        if size < _POOLED:
            yield buffer(size)
            return
        with self._lock:
            fits = [number for number, data in enumerate(self._free) if data.size >= size]
            smallest = min(fits, key=lambda number: self._free[number].size, default=None)
            found = self._free.pop(smallest) if smallest is not None else None
            if found is None and self._free:
                self._free.pop()  # one that is too small, for the new one
        data = buffer(size) if found is None else found
        yield data[:size]
        if data.size <= _MOST_KEPT:
            with self._lock:
                self._free.append(data)


def _padded(size: int) -> int:
    return size + -size % _ALIGNED
