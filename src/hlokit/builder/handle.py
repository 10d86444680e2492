"""XlaOp: a handle of one of a builder's values, with Python's operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import index as as_index
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hlokit.errors import BuildError, MissingNameError, MisuseError
from hlokit.hlo.instruction import Instruction
from hlokit.tracebacks import public_methods
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.builder.core import Builder


@public_methods(
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__mod__",
    "__rmod__", "__pow__", "__rpow__", "__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__", "__lshift__",
    "__rlshift__", "__rshift__", "__rrshift__", "__matmul__", "__rmatmul__", "__eq__", "__ne__", "__lt__", "__le__",
    "__gt__", "__ge__", "__neg__", "__invert__", "__abs__", "__bool__", "__getitem__",
    "__iter__", "__len__", "__getattr__", "__array_ufunc__", "__array_function__", "__array__",
)  # fmt: skip
class XlaOp:
    """A handle of a value in a builder (BUILDER-1). Operators follow the same rules as the op functions.

    A handle of a tuple supports indexing, iteration and `len`: `state[0]`, `a, b = state`, `len(state)`.

    Attributes
    ----------
    builder : Builder
        The builder that it belongs to.
    instruction : Instruction
        The instruction whose value it is.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2, 3])
    >>> x.shape, x.dtype, x.rank
    (f32[2,3], f32, 2)
    >>> hk.evaluate(b.build(-x * 2.0 + 1.0), np.ones((2, 3), np.float32))
    array([[-1., -1., -1.],
           [-1., -1., -1.]], dtype=float32)
    """

    __slots__ = ("builder", "instruction")
    __hash__ = None  # type: ignore[assignment]  # == builds a comparison

    def __init__(self, builder: Builder, instruction: Instruction) -> None:
        self.builder = builder
        self.instruction = instruction

    @property
    def shape(self) -> Shape:
        """The value's shape."""
        return self.instruction.shape

    @property
    def dtype(self) -> DType:
        """The element type of an array."""
        return self.instruction.shape.dtype

    @property
    def rank(self) -> int:
        """The number of dimensions of an array."""
        return self.instruction.shape.rank

    def __repr__(self) -> str:
        return f"<{self.instruction.name}: {self.shape.brief()}>"

    if not TYPE_CHECKING:  # a type checker refuses what there is not

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_") or name in XlaOp.__slots__:
                raise MissingNameError(f"a handle has no attribute {name!r}")
            from hlokit.builder import advice

            raise MissingNameError(advice.no_attribute(self.shape, name))

    def __bool__(self) -> bool:
        raise BuildError(
            f"{self.instruction.name} has no value yet, it cannot decide an `if`, `and`, `or`, `min` or `max`: write "
            "hk.select(pred, x, y), hk.conditional(pred, x, f, y, g), hk.and_(x, y), hk.or_(x, y), hk.min(x, y) or "
            "hk.max(x, y)"
        )

    def __float__(self) -> NoReturn:
        raise MisuseError(f"{self!r} has no value yet: hk.evaluate(b.build(x), ...) gives it")

    __int__ = __complex__ = __float__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> XlaOp:
        """NumPy's operators, of an array and a handle, are the handle's. Raises BuildError for all else of NumPy."""
        operator = _OPERATORS.get(ufunc.__name__)
        in_place = options.keys() == {"out"} and options["out"][0] is inputs[0]  # array += handle
        if operator is None or method != "__call__" or (options and not in_place):
            name = f"{ufunc.__name__}.{method}" if method != "__call__" else ufunc.__name__
            instead = {"reduce": _REDUCTIONS.get(ufunc.__name__, "")}.get(method, ufunc.__name__)
            raise _takes_arrays(self, f"np.{name}", instead)
        if operator == "shift_right":
            operator = self._shift_right
        return _dot(*inputs) if operator == "dot" else _binary(operator, *inputs)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> NoReturn:
        module = func.__module__.replace("numpy", "np", 1)
        raise _takes_arrays(self, f"{module}.{func.__name__}", func.__name__)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise BuildError(
            f"{self!r} is a value of a program that has not run, not an array: hk.evaluate(b.build(x), ...) gives it"
        )

    def __len__(self) -> int:
        if not self.shape.is_tuple:
            raise MisuseError(f"{self!r} is not a tuple: its sizes are x.shape.dimensions")
        return len(self.shape.elements)

    def __getitem__(self, index: int) -> XlaOp:
        from hlokit.builder.control import get_tuple_element

        if not self.shape.is_tuple:
            raise MisuseError(
                f"{self!r} is not a tuple: parts of arrays are hk.slice(x, start_indices, limit_indices), "
                "hk.slice_in_dim(x, start, limit), hk.dynamic_slice and hk.gather"
            )
        count = len(self)
        try:
            index = as_index(index)
        except TypeError:
            raise MisuseError(
                f"{self!r}: found {index!r} as an index, expected an int: slices are those of tuple(x)"
            ) from None
        if not -count <= index < count:
            raise IndexError(f"{self!r} has {count} elements")
        return get_tuple_element(self, index % count)

    def __iter__(self) -> Iterator[XlaOp]:
        if not self.shape.is_tuple:
            from hlokit.builder import advice

            total = advice.method(self.shape, "sum")
            raise MisuseError(f"{self!r} is not a tuple: the sum of its elements is {total}")
        return (self[i] for i in range(len(self)))

    def __neg__(self) -> XlaOp:
        return _elementwise().neg(self)

    def __invert__(self) -> XlaOp:
        return _elementwise().not_(self)

    def __abs__(self) -> XlaOp:
        return _elementwise().abs(self)

    def __add__(self, other: Any) -> XlaOp:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> XlaOp:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> XlaOp:
        return _binary("sub", self, other)

    def __rsub__(self, other: Any) -> XlaOp:
        return _binary("sub", other, self)

    def __mul__(self, other: Any) -> XlaOp:
        return _binary("mul", self, other)

    def __rmul__(self, other: Any) -> XlaOp:
        return _binary("mul", other, self)

    def __truediv__(self, other: Any) -> XlaOp:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Any) -> XlaOp:
        return _binary("div", other, self)

    def __mod__(self, other: Any) -> XlaOp:
        return _binary("rem", self, other)

    def __rmod__(self, other: Any) -> XlaOp:
        return _binary("rem", other, self)

    def __pow__(self, other: Any) -> XlaOp:
        return _binary("pow", self, other)

    def __rpow__(self, other: Any) -> XlaOp:
        return _binary("pow", other, self)

    def __and__(self, other: Any) -> XlaOp:
        return _binary("and_", self, other)

    def __rand__(self, other: Any) -> XlaOp:
        return _binary("and_", other, self)

    def __or__(self, other: Any) -> XlaOp:
        return _binary("or_", self, other)

    def __ror__(self, other: Any) -> XlaOp:
        return _binary("or_", other, self)

    def __xor__(self, other: Any) -> XlaOp:
        return _binary("xor", self, other)

    def __rxor__(self, other: Any) -> XlaOp:
        return _binary("xor", other, self)

    def __lshift__(self, other: Any) -> XlaOp:
        return _binary("shift_left", self, other)

    def __rlshift__(self, other: Any) -> XlaOp:
        return _binary("shift_left", other, self)

    def __rshift__(self, other: Any) -> XlaOp:
        """Arithmetic for signed types, logical for unsigned ones (BEY-78)."""
        return _binary(self._shift_right, self, other)

    def __rrshift__(self, other: Any) -> XlaOp:
        return _binary(self._shift_right, other, self)

    @property
    def _shift_right(self) -> str:
        return "shift_right_logical" if self.dtype.kind == "unsigned" else "shift_right_arithmetic"

    def __matmul__(self, other: Any) -> XlaOp:
        return _dot(self, other)

    def __rmatmul__(self, other: Any) -> XlaOp:
        return _dot(other, self)

    def __eq__(self, other: object) -> XlaOp:  # type: ignore[override]
        return _binary("eq", self, other)

    def __ne__(self, other: object) -> XlaOp:  # type: ignore[override]
        return _binary("ne", self, other)

    def __lt__(self, other: Any) -> XlaOp:
        return _binary("lt", self, other)

    def __le__(self, other: Any) -> XlaOp:
        return _binary("le", self, other)

    def __gt__(self, other: Any) -> XlaOp:
        return _binary("gt", self, other)

    def __ge__(self, other: Any) -> XlaOp:
        return _binary("ge", self, other)


def handles(*operands: Any) -> tuple[XlaOp, ...]:
    """The operands as handles, constants made as `emit` makes them."""
    first = first_handle(*operands)
    return tuple(first.builder.handle(o, first) for o in operands)


def first_handle(*operands: Any) -> XlaOp:
    """The first of the operands that is a handle. Raises BuildError (BUILDER-3) if none is."""
    first = next((o for o in operands if isinstance(o, XlaOp)), None)
    if first is None:
        raise BuildError("none of the operands is a handle of a builder", "BUILDER-3")
    return first


def _elementwise() -> Any:
    from hlokit.builder import elementwise

    return elementwise


def _dot(lhs: Any, rhs: Any) -> XlaOp:
    from hlokit.builder.contraction import dot

    lhs, rhs = handles(lhs, rhs)
    return dot(lhs, rhs)


_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "remainder": "rem", "power": "pow",
    "bitwise_and": "and_", "bitwise_or": "or_", "bitwise_xor": "xor", "left_shift": "shift_left",
    "right_shift": "shift_right", "matmul": "dot", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le",
    "greater": "gt", "greater_equal": "ge",
}  # fmt: skip
"""NumPy's functions that its arrays' operators are, and what they are here."""
_REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
"""NumPy's functions that are reductions, by name."""


def _takes_arrays(handle: XlaOp, function: str, name: str) -> BuildError:
    """The error for a function of NumPy that got a handle; the functions here go by `name`."""
    from hlokit.builder import advice

    written = advice.method(handle.shape, name)
    return BuildError(
        f"{function} takes arrays, not handles such as {handle!r}: "
        + (f"write {written}" if written else "hk.evaluate(b.build(x), ...) gives an array")
    )


def _binary(name: str, lhs: Any, rhs: Any) -> XlaOp:
    return getattr(_elementwise(), name)(lhs, rhs)
