"""compare: six directions, by IEEE order or by total order."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from hlokit.errors import ShapeError
from hlokit.forms.emitter import Emitter, Value
from hlokit.forms.widening import wide_type
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array
from hlokit.ops import complex_rules, scalar_rules
from hlokit.ops.elementwise import merged
from hlokit.ops.numerics import ordered_bits, widen
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import Kind, choice
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

DIRECTION = choice("direction", "EQ", "NE", "GE", "GT", "LE", "LT")
_GIVEN_TYPE = choice("type", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
COMPARISON_TYPE = Kind(
    _GIVEN_TYPE.name, lambda value: None if value is None else _GIVEN_TYPE.normal(value), _GIVEN_TYPE.choices
)
_GIVEN_ORDER = choice("order", "TOTAL", "PARTIAL")
COMPARISON_ORDER = Kind(
    _GIVEN_ORDER.name, lambda value: None if value is None else _GIVEN_ORDER.normal(value), _GIVEN_ORDER.choices
)

DEFAULT_TYPES = ("FLOAT", "SIGNED", "UNSIGNED")

_DEFAULT_TYPE = {
    "floating": "FLOAT",
    "complex": "FLOAT",
    "signed": "SIGNED",
    "unsigned": "UNSIGNED",
    "pred": "UNSIGNED",
}


class Compare(Op, name="compare"):
    """The comparison of lhs with rhs, as pred; with type TOTALORDER floats are ordered by their bits (CMP-5).

    XLA of 2026 writes `order` (TOTAL or PARTIAL) instead of the type.
    """

    direction: Annotated[str, DIRECTION] = attr(proto="comparison_direction")
    type: Annotated[str | None, COMPARISON_TYPE] = attr(None, proto="comparison_type", unsaid=DEFAULT_TYPES)
    order: Annotated[str | None, COMPARISON_ORDER] = attr(
        default=None, proto="comparison_order", unsaid=("TOTAL", "PARTIAL")
    )

    arity = 2
    form = "map"
    rules = "CMP"
    elementwise = True
    computes_wide = False
    functions: ClassVar[dict[str, np.ufunc]] = {
        "EQ": np.equal,
        "NE": np.not_equal,
        "GE": np.greater_equal,
        "GT": np.greater,
        "LE": np.less_equal,
        "LT": np.less,
    }

    def completed(self, operands: Sequence[Shape]) -> Self:
        """The comparison with the type that `order` stands for; integers have their order as it is (CMP-8)."""
        if self.order is None:
            return self
        total = self.order == "TOTAL" and len(operands) > 0 and operands[0].dtype.is_floating
        return self.replace(type="TOTALORDER" if total else self.type, order=None)

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        if lhs is not rhs:
            lhs = merged(lhs, rhs, types_rule="CMP-2")
        element = lhs.dtype
        check(element.is_array, "BIN-3", "operands", lhs, "arrays")
        if self.type is not None:
            _check_type(self.type, element)
        if element.is_complex and self.direction not in ("EQ", "NE"):
            raise ShapeError("CMP-11", "direction", self.direction, "EQ or NE: complex numbers have no order")
        return lhs.with_dtype(dtypes.pred)

    def reference(self, lhs: Array, rhs: Array) -> Any:
        compare = self.functions[self.direction]
        if self.type == "TOTALORDER":
            return compare(ordered_bits(lhs), ordered_bits(rhs))
        return compare(widen(lhs), widen(rhs))

    def scalar(self, emit: Emitter, lhs: Value, rhs: Value) -> Value:
        if self.type == "TOTALORDER":
            return emit.apply(self.direction.lower(), _ordered(emit, lhs), _ordered(emit, rhs))
        if lhs.dtype.is_complex:
            return (complex_rules.equal if self.direction == "EQ" else complex_rules.not_equal)(emit, lhs, rhs)
        wide = wide_type(lhs.dtype)
        return emit.apply(self.direction.lower(), emit.convert(lhs, wide), emit.convert(rhs, wide))


def default_comparison_type(element: DType) -> str:
    """FLOAT, SIGNED or UNSIGNED (CMP-6)."""
    return _DEFAULT_TYPE[element.kind]


def _check_type(given: str, element: DType) -> None:
    default = default_comparison_type(element)
    if given == "TOTALORDER":
        check(element.is_floating, "CMP-8", "type", given, f"{default}, the type of {element}")
    else:
        check(given == default, "CMP-7", "type", given, f"{default}, the type of {element}")


def _ordered(emit: Emitter, value: Value) -> Value:
    """Same as numerics.ordered_bits."""
    if "fnu" in value.dtype.name:
        value = emit.convert(value, dtypes.f32)
    signed = scalar_rules.signed_bits(emit, value)
    return emit.select(emit.lt(signed, 0), emit.xor(signed, (1 << (value.dtype.bits - 1)) - 1), signed)
