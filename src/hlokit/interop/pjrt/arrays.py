"""Arrays in buffers: element types and sizes, storages with NumPy's views of them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from hlokit.errors import ArgumentError, EvaluationError
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.buffers import BUFFER, STORAGE
from hlokit.interop.pjrt.events import ERROR, EVENT
from hlokit.interop.pjrt.memory import read_bytes, read_word, view
from hlokit.interop.pjrt.native import native
from hlokit.types.shape import Shape

_Array = np.ndarray[Any, Any]


def nbytes(shape: Shape) -> int:
    """Bytes of an array of this shape; an element takes one at least."""
    return shape.size * shape.dtype.numpy.itemsize


def buffer_type(shape: Shape) -> int:
    """The number of its PJRT_Buffer_Type."""
    return layouts.BUFFER_TYPES.index(shape.dtype.name)


def buffer_shape(buffer: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """(sizes, element type) of a buffer."""
    rank = read_word(buffer + BUFFER.offset("rank"))
    dimensions = tuple((ctypes.c_int64 * rank).from_address(buffer + BUFFER.offset("dims")))
    return dimensions, numpy_type(read_word(buffer + BUFFER.offset("type")) & 0xFFFFFFFF)


@cache
def numpy_type(number: int) -> np.dtype[Any]:
    """NumPy's type for a PJRT_Buffer_Type."""
    from hlokit.types.dtype import DTYPES

    name = layouts.BUFFER_TYPES[number] if 0 <= number < len(layouts.BUFFER_TYPES) else "unknown"
    if name not in DTYPES or not DTYPES[name].is_array:
        raise ArgumentError(f"a buffer of {name} (type {number})")
    return DTYPES[name].numpy


def storage_view(storage: int, dimensions: tuple[int, ...], dtype: np.dtype[Any]) -> _Array:
    """The array in a storage, as long as somebody holds it."""
    return view(read_word(storage + STORAGE.offset("data")), dimensions, dtype)


def acquired(buffer: int) -> int:
    """The buffer's storage, with a reference more, once its data are there; 0 if it was deleted.

    EvaluationError: the data failed to come.
    """
    if read_word(buffer + BUFFER.offset("coming")) and not native().settle(buffer):
        error = read_word(read_word(buffer + BUFFER.offset("coming")) + EVENT.offset("error"))
        size = read_word(error + ERROR.offset("size"))
        text = read_bytes(error + ERROR.offset("text"), size).decode(errors="replace")
        raise EvaluationError(f"the data of the array did not arrive: {text}")
    return native().acquire(buffer)


def new_storage(array: _Array) -> int:
    """A storage with the array's elements, in row-major order."""
    storage = empty_storage(array.size * array.itemsize)
    storage_view(storage, array.shape, array.dtype)[...] = array
    return storage


def empty_storage(size: int) -> int:
    """A storage of so many bytes, with anything in them."""
    storage = native().allocate(size)
    if not storage:
        raise MemoryError(f"{size:,} bytes")
    return storage


def new_buffer(storage: int, shape: Sequence[int], type: int, device: int, memory: int) -> int:
    """A buffer that takes the storage over."""
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    size = math.prod(shape) * numpy_type(type).itemsize
    return native().make_buffer(storage, device, memory, type, len(shape), ctypes.addressof(dims), size)
