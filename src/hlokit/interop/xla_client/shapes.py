"""Shape, ProgramShape, ShapeIndex, Layout.

Unlike hlokit's own shapes these may lack a layout, and one may mark a dimension as dynamic after the fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from hlokit.interop.xla_client.enums import PrimitiveType, primitive_type
from hlokit.interop.xla_client.errors import invalid, raises_status, unimplemented
from hlokit.types import dtype as dtypes
from hlokit.types import layout as layouts
from hlokit.types import shape as shapes


class Layout:
    """The order of an array's dimensions in memory, the fastest-varying first.

    Parameters
    ----------
    minor_to_major : iterable of int
        The dimensions.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.Layout([1, 0]).to_string()
    '{1,0}'
    """

    __slots__ = ("core",)

    def __init__(self, minor_to_major: Iterable[int], /) -> None:
        self.core = layouts.Layout(tuple(map(int, minor_to_major)))

    @classmethod
    def of(cls, core: layouts.Layout) -> Layout:
        """The layout of hlokit's.

        Parameters
        ----------
        core : hlokit.Layout
            hlokit's layout.

        Returns
        -------
        Layout
            The layout.
        """
        layout = cls(())
        layout.core = core
        return layout

    def minor_to_major(self) -> tuple[int, ...]:
        """The dimensions, the fastest-varying first.

        Returns
        -------
        tuple of int
            The dimensions.
        """
        return self.core.minor_to_major

    def to_string(self) -> str:
        """The layout as in HLO text.

        Returns
        -------
        str
            Such as "{1,0}".
        """
        return str(self.core) or "{}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.core == other.core

    def __hash__(self) -> int:
        return hash(self.core)


class PjRtLayout(Layout):
    """The layout of an argument or a result of an executable; as text it is as in HLO: {1,0}.

    Parameters
    ----------
    minor_to_major : iterable of int
        The dimensions, the fastest-varying first.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> print(xc.PjRtLayout([1, 0]))
    {1,0}
    """

    __slots__ = ()

    @classmethod
    def of(cls, core: layouts.Layout) -> PjRtLayout:
        """The layout of hlokit's.

        Parameters
        ----------
        core : hlokit.Layout
            hlokit's layout.

        Returns
        -------
        PjRtLayout
            The layout.
        """
        layout = cls(())
        layout.core = core
        return layout

    def __str__(self) -> str:
        return self.to_string()


class Shape:
    """The type of a value: an array shape with or without a layout, a tuple of shapes, or a token.

    `array_shape`, `scalar_shape`, `tuple_shape` and `token_shape` make shapes without text.

    Parameters
    ----------
    text : str
        HLO text.

    Raises
    ------
    XlaRuntimeError
        The text is not a shape.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.Shape("f32[2,3]").dimensions()
    (2, 3)
    """

    __slots__ = ("_core", "_elements", "_has_layout")

    @raises_status
    def __init__(self, text: str, /) -> None:
        from hlokit.text.shapes import parse_shape

        self._set(parse_shape(text), has_layout=True)

    def _set(self, core: shapes.Shape, has_layout: bool) -> None:
        self._core = core
        self._has_layout = has_layout and core.is_array
        self._elements = [Shape.of(e, has_layout) for e in core.elements] if core.is_tuple else []

    @staticmethod
    def of(core: shapes.Shape, has_layout: bool = True) -> Shape:
        """The shape of hlokit's.

        Parameters
        ----------
        core : hlokit.Shape
            hlokit's shape.
        has_layout : bool, optional
            Whether its arrays have layouts.

        Returns
        -------
        Shape
            The shape.
        """
        shape = object.__new__(Shape)
        shape._set(core, has_layout)
        return shape

    @property
    def core(self) -> shapes.Shape:
        """hlokit's shape."""
        return shapes.Shape.tuple(e.core for e in self._elements) if self.is_tuple() else self._core

    @staticmethod
    @raises_status
    def array_shape(
        type: PrimitiveType | np.dtype[Any],
        dims: Iterable[int],
        layout: Sequence[int] | None = None,
        dynamic_dimensions: Sequence[bool] | None = None,
    ) -> Shape:
        """An array shape.

        Parameters
        ----------
        type : PrimitiveType or numpy.dtype
            The element type.
        dims : iterable of int
            The dimensions.
        layout : sequence of int, optional
            The dimensions in memory, minor to major; without it the shape has no layout.
        dynamic_dimensions : sequence of bool, optional
            For each dimension whether it is dynamic.

        Returns
        -------
        Shape
            The shape.

        Raises
        ------
        XlaRuntimeError
            The numbers are not those of a shape.
        TypeError
            `type` is of another type.

        Examples
        --------
        >>> from hlokit.interop import xla_client as xc
        >>> xc.Shape.array_shape(np.dtype(np.float32), (2, 3), layout=[0, 1])
        f32[2,3]{0,1}
        """
        order = None if layout is None else layouts.Layout(tuple(map(int, layout)))
        core = shapes.Shape.array(_element_type(type), tuple(map(int, dims)), dynamic_dimensions, order)
        return Shape.of(core, has_layout=layout is not None)

    @staticmethod
    @raises_status
    def scalar_shape(type: PrimitiveType | np.dtype[Any]) -> Shape:
        """The shape of a scalar.

        Parameters
        ----------
        type : PrimitiveType or numpy.dtype
            The element type.

        Returns
        -------
        Shape
            The shape.

        Raises
        ------
        XlaRuntimeError
            HLO has no such element type.
        """
        return Shape.of(shapes.Shape.array(_element_type(type), ()))

    @staticmethod
    def tuple_shape(elements: Iterable[Shape], /) -> Shape:
        """A tuple of shapes.

        Parameters
        ----------
        elements : iterable of Shape
            The elements' shapes.

        Returns
        -------
        Shape
            The shape.
        """
        shape = Shape.of(shapes.NIL)
        shape._elements = list(elements)
        return shape

    @staticmethod
    def token_shape() -> Shape:
        """The shape of a token.

        Returns
        -------
        Shape
            The shape.
        """
        return Shape.of(shapes.TOKEN)

    # -- what it is

    def is_array(self) -> bool:
        """Whether it is an array shape.

        Returns
        -------
        bool
            False for tuples and tokens.
        """
        return self._core.is_array

    def is_tuple(self) -> bool:
        """Whether it is a tuple of shapes.

        Returns
        -------
        bool
            False for arrays and tokens.
        """
        return self._core.is_tuple

    def is_token(self) -> bool:
        """Whether it is the shape of a token.

        Returns
        -------
        bool
            False for arrays and tuples.
        """
        return self._core.is_token

    def is_static(self) -> bool:
        """Whether no dimension is dynamic.

        Returns
        -------
        bool
            For a tuple: in no element.
        """
        return not self.core.is_dynamic

    def is_dynamic(self) -> bool:
        """Whether some dimension is dynamic.

        Returns
        -------
        bool
            For a tuple: in some element.
        """
        return self.core.is_dynamic

    def is_dynamic_dimension(self, dimension: int) -> bool:
        """Whether a dimension is dynamic.

        Parameters
        ----------
        dimension : int
            The dimension.

        Returns
        -------
        bool
            True if its size is known only when the program runs.

        Raises
        ------
        XlaRuntimeError
            There is no such dimension.
        """
        return self._core.dynamic[self._checked(dimension)]

    def dimensions(self) -> tuple[int, ...]:
        """The sizes of the dimensions, for a dynamic one its bound.

        Returns
        -------
        tuple of int
            Empty for scalars.
        """
        return self._core.dimensions

    def rank(self) -> int:
        """The number of dimensions.

        Returns
        -------
        int
            0 for scalars.
        """
        return self._core.rank

    def xla_element_type(self) -> PrimitiveType:
        """The element type.

        Returns
        -------
        PrimitiveType
            TUPLE and TOKEN for tuples and tokens.
        """
        return primitive_type(self._core.dtype)

    def element_type(self) -> np.dtype[Any]:
        """The NumPy type of an element.

        Returns
        -------
        numpy.dtype
            The type.

        Raises
        ------
        XlaRuntimeError
            It is not an array shape.
        """
        if not self.is_array():
            raise unimplemented(f"Unimplemented primitive type {self.xla_element_type().name}")
        return self._core.dtype.numpy

    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy type of an element; for a tuple, of objects.

        Returns
        -------
        numpy.dtype
            The type.

        Raises
        ------
        XlaRuntimeError
            It is the shape of a token.
        """
        return np.dtype(np.object_) if self.is_tuple() else self.element_type()

    def tuple_shapes(self) -> list[Shape]:
        """The shapes of a tuple's elements.

        Returns
        -------
        list of Shape
            Empty for arrays.
        """
        return list(self._elements)

    def leaf_count(self) -> int:
        """The number of arrays and tokens in a nested tuple.

        Returns
        -------
        int
            1 for an array.
        """
        return sum(e.leaf_count() for e in self._elements) if self.is_tuple() else 1

    def layout(self) -> Layout:
        """The order of the dimensions in memory.

        Returns
        -------
        Layout
            The layout.

        Raises
        ------
        XlaRuntimeError
            The shape has none.
        """
        if not self._has_layout:
            raise invalid(f"shape {self} has no layout")
        return Layout.of(self._core.layout_or_default)

    # -- what can be done with it

    def set_dynamic_dimension(self, dimension: int, is_dynamic: bool) -> None:
        """Marks a dimension as dynamic or static, in place.

        Parameters
        ----------
        dimension : int
            The dimension.
        is_dynamic : bool
            Whether it is dynamic.

        Raises
        ------
        XlaRuntimeError
            There is no such dimension.
        """
        flags = list(self._core.dynamic)
        flags[self._checked(dimension)] = bool(is_dynamic)
        self._core = self._core.with_dynamic(flags)

    def with_major_to_minor_layout_if_absent(self) -> Shape:
        """A copy in which every array has a layout.

        Returns
        -------
        Shape
            Row-major where there was none.
        """
        if self.is_tuple():
            return Shape.tuple_shape(e.with_major_to_minor_layout_if_absent() for e in self._elements)
        return Shape.of(self._core)

    @raises_status
    def to_serialized_proto(self) -> bytes:
        """The shape as a proto.

        Returns
        -------
        bytes
            A serialized ShapeProto.

        Raises
        ------
        XlaRuntimeError
            hlokit[proto] is not installed (UNIMPLEMENTED).
        """
        from hlokit.proto.schema import message_class

        proto = message_class("Shape")()
        self.write_proto(proto)
        return proto.SerializeToString(deterministic=True)

    def write_proto(self, proto: Any) -> None:
        """Fills an empty ShapeProto.

        Parameters
        ----------
        proto : message
            The ShapeProto.
        """
        from hlokit.proto.shapes import shape_to_proto

        shape_to_proto(self.core, proto)
        self._drop_absent_layouts(proto)

    @staticmethod
    def from_proto(proto: Any) -> Shape:
        """The shape in a ShapeProto.

        Parameters
        ----------
        proto : message
            The ShapeProto.

        Returns
        -------
        Shape
            The shape.

        Raises
        ------
        ParseError
            The element type is not HLO's.
        ShapeError
            The fields do not make a shape.
        """
        from hlokit.proto.shapes import shape_from_proto

        if proto.tuple_shapes:
            return Shape.tuple_shape(map(Shape.from_proto, proto.tuple_shapes))
        return Shape.of(shape_from_proto(proto), has_layout=proto.HasField("layout"))

    def _drop_absent_layouts(self, proto: Any) -> None:
        if self.is_array() and not self._has_layout:
            proto.ClearField("layout")
        for element, part in zip(self._elements, proto.tuple_shapes, strict=True):
            element._drop_absent_layouts(part)

    def _checked(self, dimension: int) -> int:
        if not 0 <= dimension < self.rank():
            raise invalid(f"dimension {dimension} of {self}, which has rank {self.rank()}")
        return dimension

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shape):
            raise TypeError(f"Shape == {type(other).__name__}: only two shapes can be compared")
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        if self.is_tuple():
            return tuple(e._key() for e in self._elements)
        return self._core.logical, self._core.layout_or_default if self._has_layout else None

    def __repr__(self) -> str:
        if not self.is_tuple():
            return self._core.to_text(layout=self._has_layout)
        marked = (f"/*index={i}*/{e}" if i and i % 5 == 0 else str(e) for i, e in enumerate(self._elements))
        return f"({', '.join(marked)})"


class ProgramShape:
    """The shapes of a computation's parameters and of its result.

    Parameters
    ----------
    parameter_shapes : iterable of Shape
        The parameters' shapes.
    result_shape : Shape
        The result's shape.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.ProgramShape([xc.Shape("f32[2]")], xc.Shape("f32[]"))
    ((unknown): f32[2]) -> f32[]
    """

    __slots__ = ("_names", "_parameters", "_result")

    def __init__(self, parameter_shapes: Iterable[Shape], result_shape: Shape, /) -> None:
        self._parameters = list(parameter_shapes)
        self._result = result_shape
        self._names = ["(unknown)"] * len(self._parameters)

    @staticmethod
    def of(core: shapes.ProgramShape) -> ProgramShape:
        """The program shape of hlokit's.

        Parameters
        ----------
        core : hlokit.ProgramShape
            hlokit's program shape.

        Returns
        -------
        ProgramShape
            The program shape.
        """
        shape = ProgramShape([Shape.of(p) for p in core.parameters], Shape.of(core.result))
        shape._names = list(core.names)
        return shape

    def parameter_shapes(self) -> list[Shape]:
        """The parameters' shapes.

        Returns
        -------
        list of Shape
            In the order of their numbers.
        """
        return list(self._parameters)

    def result_shape(self) -> Shape:
        """The result's shape.

        Returns
        -------
        Shape
            The shape.
        """
        return self._result

    def __repr__(self) -> str:
        parameters = zip(self._names, self._parameters, strict=True)
        text = ", ".join(f"{name}: {shape.core.to_text(layout=False)}" for name, shape in parameters)
        return f"({text}) -> {self._result.core.to_text(layout=False)}"


class ShapeIndex:
    """A path into a nested tuple.

    Parameters
    ----------
    path : iterable of int
        The element at each level; empty for the whole value.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.ShapeIndex([0, 2])
    {0,2}
    """

    __slots__ = ("path",)

    def __init__(self, path: Iterable[int], /) -> None:
        self.path = tuple(map(int, path))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeIndex) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return "{" + ",".join(map(str, self.path)) + "}"


def shape_from_pyval(pyval: Any, layout: Sequence[int] | None = None) -> Shape:
    """The shape of a value.

    Parameters
    ----------
    pyval : array, NumPy scalar or nested tuple of them
        The value.
    layout : sequence of int, optional
        The dimensions in memory, minor to major; only for arrays.

    Returns
    -------
    Shape
        The shape; without `layout` its arrays have no layout.

    Raises
    ------
    NotImplementedError
        A layout was given for a tuple.
    XlaRuntimeError
        HLO has no such element type.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.shape_from_pyval((np.zeros(2, np.float32), np.int32(1)))
    (f32[2], s32[])
    """
    if not isinstance(pyval, tuple):
        return Shape.array_shape(pyval.dtype, np.shape(pyval), layout)
    if layout is not None:
        raise NotImplementedError("shape_from_pyval does not support layouts for tuple shapes")
    return Shape.tuple_shape(map(shape_from_pyval, cast("tuple[Any, ...]", pyval)))


def _element_type(type: Any) -> dtypes.DType:
    if isinstance(type, PrimitiveType):
        return type.core
    if isinstance(type, np.dtype):
        return dtypes.dtype(type)  # pyright: ignore[reportUnknownArgumentType]
    raise TypeError(f"element type: expected PrimitiveType or numpy.dtype, got {type!r}")
