"""Parameters, constants, tuples and tokens."""

from collections.abc import Sequence
from typing import Annotated, Any

from hlokit.forms.affine import Index
from hlokit.forms.cost import Cost
from hlokit.forms.emitter import Emitter, Value
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import TOKEN_VALUE, Dynamic
from hlokit.types.attributes import LITERAL, ResultShape
from hlokit.types.literal import Literal
from hlokit.types.shape import TOKEN, Shape

_POINTER = 8
"""Bytes of a tuple's element."""


class Parameter(Op, name="parameter"):
    """The computation's argument of this number (BUILDER-5)."""

    number: int = attr(hidden=True, proto="parameter_number")
    parameter_shape: ResultShape

    arity = 0
    form = "control"
    free = True
    rules = "BUILDER"

    def infer(self) -> Shape:
        check(self.number >= 0, "BUILDER-6", "parameter number", self.number, ">= 0")
        return self.parameter_shape


class Constant(Op, name="constant"):
    """A value known when the program is built (BUILDER-7)."""

    literal: Annotated[Literal, LITERAL] = attr(hidden=True)

    rounding = None
    arity = 0
    form = "index"
    free = True
    rules = "HLIT"
    shape_required = True

    def infer(self) -> Shape:
        return self.literal.shape

    def reference(self) -> Any:
        return self.literal.to_python()

    def element(self, emit: Emitter, index: Index) -> Value:
        if self.literal.shape.is_scalar:
            return emit.constant(self.literal.to_python(), self.literal.shape.dtype)
        return emit.literal(self.literal, index)


class Tuple(Op, name="tuple"):
    """Groups values."""

    rounding = None
    form = "control"
    rules = "TUPLE"
    whole_values = True
    elementwise = True

    def infer(self, *elements: Shape) -> Shape:
        return Shape.tuple(elements)

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        return Cost(bytes_accessed=_POINTER * len(operands))

    def reference(self, *elements: Any) -> tuple[Any, ...]:
        return elements


class GetTupleElement(Op, name="get-tuple-element"):
    """One element of a tuple, by its number."""

    index: int = attr(proto="tuple_index")

    rounding = None
    arity = 1
    form = "control"
    free = True
    rules = "GTE"
    whole_values = True
    elementwise = True

    def infer(self, tuple_data: Shape) -> Shape:
        check(tuple_data.is_tuple, "GTE-3", "operand", tuple_data, "a tuple")
        check(
            0 <= self.index < len(tuple_data.elements),
            "GTE-4",
            "index",
            self.index,
            f"0 .. {len(tuple_data.elements) - 1}",
        )
        return tuple_data.elements[self.index]

    def reference(self, tuple_data: tuple[Any, ...]) -> Any:
        return tuple_data[self.index]


class AfterAll(Op, name="after-all"):
    """A token that is ready when all operands are: tokens or other values, or no operands at all (TOKEN-5)."""

    form = "control"
    free = True
    rules = "TOKEN"

    def infer(self, *operands: Shape) -> Shape:
        return TOKEN

    def reference(self, *operands: Any) -> Any:
        return TOKEN_VALUE


class OptBarrier(Op, name="opt-barrier"):
    """The operand; no optimisation may move computation across it (OPTBAR-3)."""

    rounding = None
    arity = 1
    form = "control"
    rules = "OPTBAR"
    passes_on = True
    whole_values = True

    def infer(self, operand: Shape) -> Shape:
        return operand

    def reference(self, operand: Dynamic | Any) -> Any:
        return operand
