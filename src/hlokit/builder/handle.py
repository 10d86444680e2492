"""XlaOp: a handle on one of a builder's values, with Python's operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hlokit.errors import BuildError
from hlokit.hlo.instruction import Instruction
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.builder.core import Builder


class XlaOp:
    """A handle on a value of a builder (BUILDER-1). Operators follow the same rules as the op functions.

    A handle of a tuple can be indexed, iterated and measured: `state[0]`, `a, b = state`, `len(state)`.
    """

    __slots__ = ("builder", "instruction")
    __hash__ = None  # type: ignore[assignment]  # == builds a comparison
    __array_ufunc__ = None  # NumPy leaves `array + handle` to the handle

    def __init__(self, builder: Builder, instruction: Instruction) -> None:
        self.builder = builder
        self.instruction = instruction

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def dtype(self) -> DType:
        return self.instruction.shape.dtype

    @property
    def rank(self) -> int:
        return self.instruction.shape.rank

    def __repr__(self) -> str:
        return f"<{self.instruction.name}: {self.shape}>"

    def __bool__(self) -> bool:
        raise BuildError(
            f"{self.instruction.name} has no value yet, it cannot decide an `if`: use select or conditional"
        )

    def __len__(self) -> int:
        if not self.shape.is_tuple:
            raise TypeError(f"{self!r} is not a tuple: slice, dynamic_slice and gather take parts of arrays")
        return len(self.shape.elements)

    def __getitem__(self, index: int) -> XlaOp:
        from hlokit.builder.control import get_tuple_element

        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"{self!r} has {count} elements")
        return get_tuple_element(self, index % count)

    def __iter__(self) -> Iterator[XlaOp]:
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

    def __matmul__(self, other: XlaOp) -> XlaOp:
        from hlokit.builder.contraction import dot

        lhs, rhs = handles(self, other)
        return dot(lhs, rhs)

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


def _binary(name: str, lhs: Any, rhs: Any) -> XlaOp:
    return getattr(_elementwise(), name)(*handles(lhs, rhs))
