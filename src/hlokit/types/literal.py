"""Literals: the values of constants."""

from __future__ import annotations

import array as python_array
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.errors import ShapeError
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape

_SMALL = 4096
_TYPED = (memoryview, bytearray, python_array.array)
"""Sequences that have an element type of their own."""


class Literal:
    """A constant value: a read-only array, a tuple of literals, or elided content (`{...}`, HLIT-11).

    Arrays are held by reference. Two literals are equal when shape and bytes are (large arrays: when they are
    the same array, seen alike), so -0 and 0, or NaNs of different bits, differ.

    Attributes
    ----------
    shape : Shape
        The shape.
    value : array, tuple of Literal or None
        The read-only array, or the literals of a tuple; None if the content is elided.

    Examples
    --------
    >>> literal = hk.Literal.of([1.0, 2.0])
    >>> literal.shape, literal.to_python()
    (f32[2], array([1., 2.], dtype=float32))
    """

    __slots__ = ("_key", "shape", "value")

    def __init__(self, shape: Shape, value: np.ndarray[Any, Any] | tuple[Literal, ...] | None) -> None:
        self.shape = shape
        if isinstance(value, np.ndarray):
            value = value.view()
            value.flags.writeable = False
        self.value = value
        self._key: Any = None

    @staticmethod
    def of(value: object, shape: Shape | None = None) -> Literal:
        """A literal from what NumPy or DLPack can read, or a tuple of such.

        Python scalars (and lists of them) follow BUILDER-7: bool pred, int s32, float f32, complex c64.

        Parameters
        ----------
        value : array, number or tuple
            The value.
        shape : Shape, optional
            The shape: the value is converted to its element type and must have its dimensions.

        Returns
        -------
        Literal
            The literal.

        Raises
        ------
        ShapeError
            The value does not have this shape or is not an array (BUILDER-7).
        """
        if isinstance(value, Literal):
            return value
        if isinstance(value, tuple):
            if shape is not None and len(shape.elements) != len(value):  # pyright: ignore[reportUnknownArgumentType]
                raise ShapeError("BUILDER-7", "literal", f"a tuple of {len(value)}", shape)  # pyright: ignore[reportUnknownArgumentType]
            parts = [Literal.of(v, shape.elements[i] if shape is not None else None) for i, v in enumerate(value)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            return Literal(Shape.tuple(p.shape for p in parts), tuple(parts))
        array = as_array(value, shape.dtype if shape is not None else None)
        found = Shape.array(dtypes.dtype(array.dtype), array.shape)
        if shape is not None and found is not shape.static:
            raise ShapeError("BUILDER-7", "literal", found, shape)
        return Literal(shape if shape is not None else found, array)

    @property
    def is_elided(self) -> bool:
        """Some of the content was not in the text."""
        if isinstance(self.value, tuple):
            return any(part.is_elided for part in self.value)
        return self.value is None

    def to_python(self) -> Any:
        """The array, or a tuple of such.

        Returns
        -------
        numpy.ndarray or tuple
            The value, read-only.

        Raises
        ------
        ShapeError
            The content was elided (HLIT-11).
        """
        if self.value is None:
            raise ShapeError("HLIT-11", "constant", "{...}", "its content: this text left it out")
        if isinstance(self.value, tuple):
            return tuple(part.to_python() for part in self.value)
        return self.value

    def _content(self) -> Any:
        if self._key is None:
            if isinstance(self.value, tuple):
                self._key = (self.shape, self.value)
            elif self.value is None:
                self._key = (self.shape, id(self))
            elif self.value.nbytes > _SMALL:
                self._key = (self.shape, self.value.__array_interface__["data"][0], self.value.strides)
            else:
                self._key = (self.shape, self.value.tobytes())
        return self._key

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Literal) and self._content() == other._content())

    def __hash__(self) -> int:
        return hash(self._content())

    def __repr__(self) -> str:
        return f"Literal({self.shape})"


def as_array(value: object, element_type: dtypes.DType | None = None) -> np.ndarray[Any, Any]:
    """`value` as an array of a type that HLO has, without a copy where possible (NumPy, DLPack, Python numbers).

    Python numbers, and lists of them, follow BUILDER-7 unless `element_type` is given. Floats are rounded to it.
    Raises ShapeError (BUILDER-7) for what is not an array, or for 2.5 or 300 as s8, for complex numbers as real ones;
    TYPE-1 for a type that HLO lacks.
    """
    try:
        if _is_dlpack_only(value):
            value = np.from_dlpack(value)  # type: ignore[arg-type]
        refuse_masked(value)
        array = np.asarray(value)
        wanted = element_type.numpy if element_type is not None else _native(value, array)
        if array.dtype.kind in "SU" or wanted.kind == "O":
            raise TypeError("neither a number nor an array of numbers")
        array = array if array.dtype == wanted else _converted(array, wanted)
    except (TypeError, ValueError, OverflowError, BufferError) as error:
        raise ShapeError("BUILDER-7", "literal", value, f"an array: {error}") from None
    dtypes.dtype(array.dtype)
    return array


def _converted(array: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """`array` in the type `wanted`, which must have its values but for the rounding of floats: else ShapeError."""
    element = dtypes.dtype(wanted)
    fits = element.is_complex or array.dtype.kind != "c"
    with np.errstate(all="ignore"):
        converted = array.astype(wanted) if fits else array
        if not element.is_floating and not element.is_complex:
            fits = fits and np.array_equal(converted.astype(array.dtype), array)
    if not fits:
        raise ShapeError("BUILDER-7", "literal", array, f"what {element} can hold")
    return converted


def refuse_masked(value: object) -> None:
    """Raises TypeError for masked elements, here or in a list: NumPy would read them as if they were there."""
    masked: Any = sys.modules.get("numpy.ma")  # to import it takes 5 ms, and without it there is no such array
    if masked is not None and _masked(masked, value):
        raise TypeError("a numpy.ma.MaskedArray with masked elements; fill them first, as with .filled()")


def _masked(masked: Any, value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_masked(masked, part) for part in value if isinstance(part, (list, tuple, np.ndarray)))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return isinstance(value, masked.MaskedArray) and bool(masked.is_masked(value))


def _is_dlpack_only(value: object) -> bool:
    return hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray) and not hasattr(value, "__array__")


def _native(value: object, array: np.ndarray[Any, Any]) -> np.dtype[Any]:
    """XLA's type for a Python number or a list of them (BUILDER-7); any other array's own type."""
    numbers = isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)
    if isinstance(value, Sequence) and not isinstance(value, _TYPED):
        numbers = not any(isinstance(v, (np.generic, np.ndarray)) for v in value)  # pyright: ignore[reportUnknownVariableType]
    native = {"i": np.int32, "u": np.int32, "O": np.int32, "f": np.float32, "c": np.complex64}
    if numbers:
        return np.dtype(native.get(array.dtype.kind, array.dtype))
    return array.dtype if array.dtype.isnative else array.dtype.newbyteorder()
