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
    """The order of an array's dimensions in memory, the fastest-varying first."""

    __slots__ = ("core",)

    def __init__(self, minor_to_major: Iterable[int], /) -> None:
        self.core = layouts.Layout(tuple(map(int, minor_to_major)))

    @classmethod
    def of(cls, core: layouts.Layout) -> Layout:
        layout = cls(())
        layout.core = core
        return layout

    def minor_to_major(self) -> tuple[int, ...]:
        return self.core.minor_to_major

    def to_string(self) -> str:
        return str(self.core) or "{}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.core == other.core

    def __hash__(self) -> int:
        return hash(self.core)


class PjRtLayout(Layout):
    """The layout of an argument or a result of an executable; as text it is as in HLO: {1,0}."""

    __slots__ = ()

    @classmethod
    def of(cls, core: layouts.Layout) -> PjRtLayout:
        layout = cls(())
        layout.core = core
        return layout

    def __str__(self) -> str:
        return self.to_string()


class Shape:
    """The type of a value: an array shape with or without a layout, a tuple of shapes, or a token.

    Shape("f32[2,3]") reads HLO text; array_shape, scalar_shape, tuple_shape and token_shape make the rest.
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
        """hlokit's shape as one of this class."""
        shape = object.__new__(Shape)
        shape._set(core, has_layout)
        return shape

    @property
    def core(self) -> shapes.Shape:
        """This shape as one of hlokit's own."""
        return shapes.Shape.tuple(e.core for e in self._elements) if self.is_tuple() else self._core

    @staticmethod
    @raises_status
    def array_shape(
        type: PrimitiveType | np.dtype[Any],
        dims: Iterable[int],
        layout: Sequence[int] | None = None,
        dynamic_dimensions: Sequence[bool] | None = None,
    ) -> Shape:
        """An array shape; `layout` lists the dimensions minor to major, `dynamic_dimensions` one flag each."""
        order = None if layout is None else layouts.Layout(tuple(map(int, layout)))
        core = shapes.Shape.array(_element_type(type), tuple(map(int, dims)), dynamic_dimensions, order)
        return Shape.of(core, has_layout=layout is not None)

    @staticmethod
    @raises_status
    def scalar_shape(type: PrimitiveType | np.dtype[Any]) -> Shape:
        return Shape.of(shapes.Shape.array(_element_type(type), ()))

    @staticmethod
    def tuple_shape(elements: Iterable[Shape], /) -> Shape:
        shape = Shape.of(shapes.NIL)
        shape._elements = list(elements)
        return shape

    @staticmethod
    def token_shape() -> Shape:
        return Shape.of(shapes.TOKEN)

    # -- what it is

    def is_array(self) -> bool:
        return self._core.is_array

    def is_tuple(self) -> bool:
        return self._core.is_tuple

    def is_token(self) -> bool:
        return self._core.is_token

    def is_static(self) -> bool:
        return not self.core.is_dynamic

    def is_dynamic(self) -> bool:
        return self.core.is_dynamic

    def is_dynamic_dimension(self, dimension: int) -> bool:
        return self._core.dynamic[self._checked(dimension)]

    def dimensions(self) -> tuple[int, ...]:
        return self._core.dimensions

    def rank(self) -> int:
        return self._core.rank

    def xla_element_type(self) -> PrimitiveType:
        return primitive_type(self._core.dtype)

    def element_type(self) -> np.dtype[Any]:
        """The NumPy type of an element. XlaRuntimeError for what is not an array."""
        if not self.is_array():
            raise unimplemented(f"Unimplemented primitive type {self.xla_element_type().name}")
        return self._core.dtype.numpy

    def numpy_dtype(self) -> np.dtype[Any]:
        """Same as element_type, but dtype('O') for a tuple."""
        return np.dtype(np.object_) if self.is_tuple() else self.element_type()

    def tuple_shapes(self) -> list[Shape]:
        return list(self._elements)

    def leaf_count(self) -> int:
        return sum(e.leaf_count() for e in self._elements) if self.is_tuple() else 1

    def layout(self) -> Layout:
        if not self._has_layout:
            raise invalid(f"shape {self} has no layout")
        return Layout.of(self._core.layout_or_default)

    # -- what can be done with it

    def set_dynamic_dimension(self, dimension: int, is_dynamic: bool) -> None:
        flags = list(self._core.dynamic)
        flags[self._checked(dimension)] = bool(is_dynamic)
        self._core = self._core.with_dynamic(flags)

    def with_major_to_minor_layout_if_absent(self) -> Shape:
        """A copy in which every array has a layout: row-major where there was none."""
        if self.is_tuple():
            return Shape.tuple_shape(e.with_major_to_minor_layout_if_absent() for e in self._elements)
        return Shape.of(self._core)

    @raises_status
    def to_serialized_proto(self) -> bytes:
        """A serialized ShapeProto."""
        from hlokit.proto.schema import message_class

        proto = message_class("Shape")()
        self.write_proto(proto)
        return proto.SerializeToString(deterministic=True)

    def write_proto(self, proto: Any) -> None:
        """Fills an empty ShapeProto."""
        from hlokit.proto.shapes import shape_to_proto

        shape_to_proto(self.core, proto)
        self._drop_absent_layouts(proto)

    @staticmethod
    def from_proto(proto: Any) -> Shape:
        """The shape in a ShapeProto. ParseError or ShapeError for what is none."""
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
    """Shapes of a computation's parameters and of its result."""

    __slots__ = ("_names", "_parameters", "_result")

    def __init__(self, parameter_shapes: Iterable[Shape], result_shape: Shape, /) -> None:
        self._parameters = list(parameter_shapes)
        self._result = result_shape
        self._names = ["(unknown)"] * len(self._parameters)

    @staticmethod
    def of(core: shapes.ProgramShape) -> ProgramShape:
        shape = ProgramShape([Shape.of(p) for p in core.parameters], Shape.of(core.result))
        shape._names = list(core.names)
        return shape

    def parameter_shapes(self) -> list[Shape]:
        return list(self._parameters)

    def result_shape(self) -> Shape:
        return self._result

    def __repr__(self) -> str:
        parameters = zip(self._names, self._parameters, strict=True)
        text = ", ".join(f"{name}: {shape.core.to_text(layout=False)}" for name, shape in parameters)
        return f"({text}) -> {self._result.core.to_text(layout=False)}"


class ShapeIndex:
    """A path into a nested tuple."""

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
    """The shape of a NumPy array or scalar, or of a tuple of such."""
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
