"""The arrays of a value in the order in which machine code takes and returns them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from hlokit.types.shape import Shape

_Array = np.ndarray[Any, Any]


def view(pointer: int | None, shape: Shape) -> _Array:
    """The array of this shape at an address."""
    dtype = shape.dtype.numpy
    if not shape.size or pointer is None:
        return np.empty(shape.dimensions, dtype)
    memory = (ctypes.c_char * (shape.size * dtype.itemsize)).from_address(pointer)
    return np.ndarray(shape.dimensions, dtype, memoryview(memory))


def array_leaves(shape: Shape) -> Iterator[Shape]:
    """The arrays in a shape, in order."""
    return (leaf for leaf in shape.leaves() if leaf.is_array)


def leaves(value: Any) -> Iterator[_Array]:
    """The arrays of a value, in order."""
    if isinstance(value, tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            yield from leaves(part)
    elif isinstance(value, np.ndarray):
        yield value


def tree(shape: Shape, arrays: Iterator[_Array], token: Any = None) -> Any:
    """The arrays in the shape's structure."""
    if shape.is_tuple:
        return tuple(tree(part, arrays, token) for part in shape.elements)
    return next(arrays) if shape.is_array else token
