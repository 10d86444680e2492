"""Shapes: arrays, tuples, tokens, opaque values, buffers. Interned: equal shapes are the same object."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from hlokit.errors import ShapeError
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.integers import integer
from hlokit.types.layout import Layout, default_layout

UNBOUNDED = -(2**63)
"""The size of an unbounded dynamic dimension, written `?` (SHAPE-3)."""

MAX_DEPTH = 63
"""The depth to which tuples may nest: text allows 64 brackets, one of them round the parameters (HMOD-1)."""

_MAX_SIZE = 2**63 - 1
_interned: WeakValueDictionary[tuple[Any, ...], Shape] = WeakValueDictionary()


class Shape:
    """A type of the language (SHAPE-1). Make one by `f32[2, 3]`, `Shape.array`, `Shape.tuple` or `parse_shape`.

    Attributes
    ----------
    dtype : DType
        The element type; `tuple`, `token`, `opaque` or `buffer` for what is not an array.
    dimensions : tuple of int
        The size of each dimension: of a dynamic one its bound, of an unbounded one (`?`) -2**63. Empty for what is not
        an array.
    dynamic : tuple of bool
        For each dimension whether it is dynamic.
    layout : Layout or None
        The order of the dimensions in memory; None: row-major.
    elements : tuple of Shape
        The shapes of a tuple's elements, or the one content of a buffer.
    rank : int
        The number of dimensions.
    size : int
        The number of elements; 1 for a scalar (SHAPE-4).
    is_array : bool
        Whether it is the shape of an array; scalars are arrays of rank 0.
    depth : int
        The depth to which tuples nest in it; 0 for what is not a tuple.
    is_dynamic : bool
        Whether it, or an element of it, has a dynamic dimension.
    logical : Shape
        This shape without layouts.
    static : Shape
        This shape without layouts and dynamic flags, by which "same shape" compares (SHAPE-5).

    Examples
    --------
    >>> shape = hk.f32[2, "<=3"]
    >>> shape.rank, shape.dimensions, shape.dynamic
    (2, (2, 3), (False, True))
    >>> hk.Shape.tuple([shape, hk.s32[()]])
    (f32[2,<=3], s32[])
    """

    __slots__ = (
        "__weakref__",
        "depth",
        "dimensions",
        "dtype",
        "dynamic",
        "elements",
        "is_array",
        "is_dynamic",
        "layout",
        "logical",
        "rank",
        "size",
        "static",
    )
    dtype: DType
    dimensions: tuple[int, ...]
    dynamic: tuple[bool, ...]
    layout: Layout | None
    elements: tuple[Shape, ...]
    rank: int
    size: int
    is_array: bool
    depth: int
    is_dynamic: bool
    logical: Shape
    static: Shape

    @staticmethod
    def array(
        dtype: DType,
        dimensions: Iterable[int | str],
        dynamic: Sequence[bool] | None = None,
        layout: Layout | None = None,
    ) -> Shape:
        """An array shape. A size may be written "<=5" (bounded dynamic) or "?" (unbounded).

        Parameters
        ----------
        dtype : DType
            The element type.
        dimensions : sequence of int or str
            The sizes: a number, "<=5" (bounded dynamic) or "?" (unbounded).
        dynamic : sequence of bool, optional
            For each dimension whether it is dynamic, where the sizes are numbers.
        layout : Layout, optional
            The layout in memory; None: row-major.

        Returns
        -------
        Shape
            The shape.

        Raises
        ------
        ShapeError
            A size is negative or beyond int64 (SHAPE-3), there are not as many flags as sizes (SHAPE-1), or the
            layout does not fit (LAYOUT-5).
        """
        if not dtype.is_array:
            raise ShapeError("TYPE-1", "element type", dtype, "an array element type")
        entries = [_dimension(entry) for entry in dimensions]
        sizes, flags = [size for size, _ in entries], [flag for _, flag in entries]
        if dynamic:
            if len(dynamic) != len(entries):
                raise ShapeError("SHAPE-1", "dynamic flags", tuple(dynamic), f"one for each of {len(entries)} sizes")
            flags = [f or bool(g) for f, g in zip(flags, dynamic, strict=True)]
        if layout is not None:
            if sorted(layout.minor_to_major) != list(range(len(sizes))):
                raise ShapeError("LAYOUT-5", "layout", layout.minor_to_major, f"a permutation of 0..{len(sizes) - 1}")
            if layout.is_default:
                layout = None
        return _array(dtype, tuple(sizes), tuple(flags), layout)

    @staticmethod
    def tuple(elements: Iterable[Shape]) -> Shape:
        """A tuple shape.

        Parameters
        ----------
        elements : iterable of Shape
            The shapes of the elements.

        Returns
        -------
        Shape
            The shape.

        Raises
        ------
        ShapeError
            Tuples nest deeper than text can say (HMOD-1).
        """
        shape = _make(dtypes.tuple_, (), (), None, tuple(elements))
        if shape.depth > MAX_DEPTH:
            raise ShapeError("HMOD-1", "nesting of tuples", shape.depth, f"<= {MAX_DEPTH}")
        return shape

    @staticmethod
    def buffer(content: Shape) -> Shape:
        """The shape of a buffer with this content.

        Parameters
        ----------
        content : Shape
            The content's shape, an array's.

        Returns
        -------
        Shape
            The shape.
        """
        return _make(dtypes.buffer, (), (), None, (content,))

    # -- what it is

    @property
    def is_tuple(self) -> bool:
        """Whether it is a tuple of shapes."""
        return self.dtype is dtypes.tuple_

    @property
    def is_token(self) -> bool:
        """Whether it is the shape of a token."""
        return self.dtype is dtypes.token

    @property
    def is_scalar(self) -> bool:
        """Whether it is the shape of an array of rank 0."""
        return not self.dimensions and self.dtype.is_array

    @property
    def is_unbounded(self) -> bool:
        """Whether the size of some dimension has no bound."""
        return UNBOUNDED in self.dimensions or any(e.is_unbounded for e in self.elements)

    @property
    def true_rank(self) -> int:
        """Number of dimensions of size > 1 (SHAPE-2)."""
        return sum(size > 1 for size in self.dimensions)

    @property
    def nbytes(self) -> int:
        """Bytes of the data as NumPy holds it (sub-byte types take a byte an element), elements of tuples summed."""
        if self.is_array:
            return self.size * max(1, self.dtype.bits // 8)
        return sum(element.nbytes for element in self.elements)

    def leaves(self) -> Iterator[Shape]:
        """The non-tuple shapes in it, in order.

        Returns
        -------
        iterator of Shape
            The shapes.
        """
        if not self.is_tuple:
            yield self
        for element in self.elements if self.is_tuple else ():
            yield from element.leaves()

    def at(self, index: Sequence[int]) -> Shape:
        """The shape at a path of tuple indices.

        Parameters
        ----------
        index : sequence of int
            The path; empty: this shape.

        Returns
        -------
        Shape
            The shape.

        Raises
        ------
        IndexError
            There is no such element.
        """
        shape = self
        for i in index:
            if not shape.is_tuple or not 0 <= i < len(shape.elements):
                raise IndexError(f"no element {{{','.join(map(str, index))}}} in {self}")
            shape = shape.elements[i]
        return shape

    # -- what can be made of it

    def with_dtype(self, dtype: DType) -> Shape:
        """The shape with other elements. Their size does not change the layout, except for those below a byte (HLAY-8).

        Parameters
        ----------
        dtype : DType
            The element type.

        Returns
        -------
        Shape
            The shape.
        """
        if dtype is self.dtype:
            return self
        if self.layout is not None and self.layout.element_size_in_bits and (dtype.bits >= 8 or dtype.kind == "pred"):
            return self.without_element_sizes().with_dtype(dtype)
        return _array(dtype, self.dimensions, self.dynamic, self.layout)

    def without_element_sizes(self) -> Shape:
        """This shape whose layouts do not say how many bits an element takes.

        Returns
        -------
        Shape
            The shape.
        """
        if self.is_tuple:
            return Shape.tuple(element.without_element_sizes() for element in self.elements)
        if self.layout is None or not self.layout.element_size_in_bits:
            return self
        return self.with_layout(replace(self.layout, element_size_in_bits=0))

    def without_buffers(self) -> Shape:
        """This shape with the content of each buffer in its place.

        Returns
        -------
        Shape
            The shape.
        """
        if self.is_tuple:
            return Shape.tuple(element.without_buffers() for element in self.elements)
        return self.elements[0] if self.dtype is dtypes.buffer else self

    def with_dimensions(self, dimensions: Sequence[int], dynamic: Sequence[bool] | None = None) -> Shape:
        """Same element type, other sizes, default layout.

        Parameters
        ----------
        dimensions : sequence of int
            The sizes.
        dynamic : sequence of bool, optional
            For each dimension whether it is dynamic; by default none is.

        Returns
        -------
        Shape
            The shape.
        """
        return Shape.array(self.dtype, dimensions, dynamic)

    def with_dynamic(self, dynamic: Sequence[bool]) -> Shape:
        """The same sizes, with other dynamic flags.

        Parameters
        ----------
        dynamic : sequence of bool
            For each dimension whether it is dynamic.

        Returns
        -------
        Shape
            The shape.
        """
        return _array(self.dtype, self.dimensions, tuple(dynamic), self.layout)

    def with_layout(self, layout: Layout | None) -> Shape:
        """The same shape with another layout.

        Parameters
        ----------
        layout : Layout or None
            The layout; None: row-major.

        Returns
        -------
        Shape
            The shape.
        """
        return Shape.array(self.dtype, self.dimensions, self.dynamic, layout)

    @property
    def layout_or_default(self) -> Layout:
        """The layout, or the row-major one where the shape has none."""
        return self.layout or default_layout(self.rank)

    def permuted(self, permutation: Sequence[int]) -> Shape:
        """Dimension i of the result is dimension permutation[i]; the data stays where it lies (HLAY-7).

        Parameters
        ----------
        permutation : sequence of int
            For each dimension of the result the dimension that it is.

        Returns
        -------
        Shape
            The shape.
        """
        return _permuted(self, tuple(permutation))

    # -- text

    def to_text(self, layout: bool = True) -> str:
        """The shape as HLO text writes it.

        Parameters
        ----------
        layout : bool, optional
            Whether to write layouts, of arrays of rank 1 and more.

        Returns
        -------
        str
            The text.
        """
        if self.is_array:
            order = str(self.layout_or_default) if layout else ""
            return f"{self.dtype.name}[{','.join(map(_size_text, self.dimensions, self.dynamic))}]{order}"
        if self.is_tuple:
            parts = [
                f"/*index={i}*/{e.to_text(layout)}" if i and i % 5 == 0 else e.to_text(layout)
                for i, e in enumerate(self.elements)
            ]
            return f"({', '.join(parts)})"
        if self.dtype is dtypes.buffer:
            return f"b({self.elements[0].to_text(layout)})"
        return f"{self.dtype.name}[]"

    def __str__(self) -> str:
        """Without layouts that say nothing: those that are the default."""
        if self.is_array:
            return self.to_text(layout=self.layout is not None)
        return self.to_text(layout=self is not self.logical)

    __repr__ = __str__

    def brief(self) -> str:
        """The text, or what it is a text of where that is long: for one line of several shapes.

        Returns
        -------
        str
            The text.
        """
        text = str(self)
        if len(text) <= 60:
            return text
        return f"a tuple of {len(self.elements)}" if self.is_tuple else f"{self.dtype} of rank {self.rank}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self.dtype, self.dimensions, self.dynamic, self.layout, self.elements)


@lru_cache(4096)  # 1 us instead of 6
def _permuted(shape: Shape, permutation: tuple[int, ...]) -> Shape:
    sizes = tuple(shape.dimensions[p] for p in permutation)
    flags = tuple(shape.dynamic[p] for p in permutation)
    position = {p: i for i, p in enumerate(permutation)}
    order = tuple(position[d] for d in shape.layout_or_default.minor_to_major)
    return Shape.array(shape.dtype, sizes, flags, Layout(order))


def _dimension(entry: int | str) -> tuple[int, bool]:
    if isinstance(entry, str):
        if entry == "?":
            return UNBOUNDED, True
        if entry.startswith("<=") and entry[2:].isdecimal():
            return _dimension(int(entry[2:]))[0], True
        raise ShapeError("SHAPE-3", "dimension size", repr(entry), 'an integer, "<=N" or "?"')
    size = integer(entry, "SHAPE-3", "dimension size")
    if size == UNBOUNDED:
        return size, True
    if not 0 <= size <= _MAX_SIZE:
        raise ShapeError("SHAPE-3", "dimension size", size, "0 .. 2^63-1")
    return size, False


def _size_text(size: int, dynamic: bool) -> str:
    if size == UNBOUNDED:
        return "?"
    return f"<={size}" if dynamic else str(size)


def _array(dtype: DType, dimensions: tuple[int, ...], dynamic: tuple[bool, ...], layout: Layout | None) -> Shape:
    """The interned array shape of checked parts."""
    found = _interned.get((dtype, dimensions, dynamic, layout, ()))
    return found if found is not None else _make(dtype, dimensions, dynamic, layout, ())


def _make(
    dtype: DType,
    dimensions: tuple[int, ...],
    dynamic: tuple[bool, ...],
    layout: Layout | None,
    elements: tuple[Shape, ...],
) -> Shape:
    key = (dtype, dimensions, dynamic, layout, elements)
    found = _interned.get(key)
    if found is not None:
        return found
    shape = object.__new__(Shape)
    shape.dtype = dtype
    shape.dimensions = dimensions
    shape.dynamic = dynamic
    shape.rank = len(dimensions)
    shape.size = math.prod(dimensions)
    shape.is_array = dtype.is_array
    shape.layout = layout
    shape.elements = elements
    shape.depth = 1 + max((e.depth for e in elements), default=0) if dtype is dtypes.tuple_ else 0
    shape.is_dynamic = any(dynamic) or any(e.is_dynamic for e in elements)
    logical = tuple(e.logical for e in elements)
    plain = layout is None and logical == elements
    shape.logical = shape if plain else _make(dtype, dimensions, dynamic, None, logical)
    fixed = tuple(e.static for e in elements)
    if plain and fixed == elements and not any(dynamic):
        shape.static = shape
    else:
        shape.static = _make(dtype, dimensions, (False,) * len(dimensions), None, fixed)
    return _interned.setdefault(key, shape)


TOKEN = _make(dtypes.token, (), (), None, ())
OPAQUE = _make(dtypes.opaque, (), (), None, ())
NIL = Shape.tuple(())
"""The empty tuple's shape."""


class ProgramShape:
    """The type of a computation: parameter shapes with their names, and the result's shape.

    Attributes
    ----------
    parameters : tuple of Shape
        The shapes of the parameters.
    result : Shape
        The shape of the result.
    names : tuple of str
        The names of the parameters.

    Examples
    --------
    >>> b = hk.Builder()
    >>> b.build(hk.neg(b.parameter(0, hk.f32[2], "x"))).program_shape
    (x: f32[2]) -> f32[2]
    """

    __slots__ = ("names", "parameters", "result")

    def __init__(self, parameters: Sequence[Shape], result: Shape, names: Sequence[str] | None = None) -> None:
        self.parameters = tuple(parameters)
        self.result = result
        self.names = tuple(names) if names is not None else tuple(f"p{i}" for i in range(len(self.parameters)))

    def buffers(self) -> list[str]:
        """The parameters and the result that have a buffer; an entry with one is not run (CCALL-14).

        Returns
        -------
        list of str
            A phrase for each: "parameter 0 is b(f32[4])".
        """
        named = [(f"parameter {k}", shape) for k, shape in enumerate(self.parameters)]
        named += [("the result", self.result)]
        return [f"{name} is {shape}" for name, shape in named if shape.without_buffers() is not shape]

    def to_text(self, layout: bool = True) -> str:
        """The program shape as HLO text writes it.

        Parameters
        ----------
        layout : bool, optional
            Whether to write layouts.

        Returns
        -------
        str
            The text.
        """
        parameters = [f"{n}: {p.to_text(layout)}" for n, p in zip(self.names, self.parameters, strict=True)]
        return f"({', '.join(parameters)}) -> {self.result.to_text(layout)}"

    def __str__(self) -> str:
        return self.to_text(layout=False)

    __repr__ = __str__


DType.array_shape = Shape.array


def shape_of(value: object) -> Shape:
    """The shape of a NumPy array or scalar (Python scalars by BUILDER-7), or of a tuple or list of such."""
    if isinstance(value, (tuple, list)):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return Shape.tuple(map(shape_of, items))
    if isinstance(value, (bool, int, float, complex)):
        return Shape.array(dtypes.dtype(type(value)), ())
    array = np.asarray(value)
    return Shape.array(dtypes.dtype(array.dtype), array.shape)
