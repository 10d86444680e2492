"""Identities of conversions, of complex parts and of predicates."""

from __future__ import annotations

from collections.abc import Mapping

from hlokit.analysis.ranges import Range, range_of_type, value_range
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.comparison import Compare
from hlokit.ops.conversion import Convert, ReducePrecision
from hlokit.ops.dynamic import GetDimensionSize, SetDimensionSize
from hlokit.ops.elementwise import Complex, Imag, Not, Real, Select, ShiftRightLogical
from hlokit.ops.movement import Iota
from hlokit.ops.numerics import float_format
from hlokit.passes.simplify.rules import constant_like, is_scalar, like, scalar_of, simplifies
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_WIDE = {
    "f16": (dtypes.f32, dtypes.f64),
    "bf16": (dtypes.f32, dtypes.f64),
    "f32": (dtypes.f64,),
}
"""The floating types that hold every value of a type, signed zeros and infinities too."""

_INTEGER_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`; NaNs being one."""
    if narrow.is_floating:
        return wide in _WIDE.get(narrow.name, ())
    if narrow.kind == "pred":
        return (wide.is_integral and wide.bits > 1) or wide.name in _INTEGER_BITS
    if not narrow.is_integral:
        return False
    if wide.is_floating:
        return narrow.bits - (narrow.kind == "signed") <= _INTEGER_BITS.get(wide.name, 0)
    if not wide.is_integral or (narrow.kind == "signed" and wide.kind == "unsigned"):
        return False
    return wide.bits - (wide.kind == "signed") >= narrow.bits - (narrow.kind == "signed")


@simplifies(Convert)
def convert_of_widening_convert(instruction: Instruction, computation: Computation) -> Instruction | None:
    """convert(convert(x)) == convert(x) where the inner type holds every value of x: what is converted is the value."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Convert):
        return None
    source = inner.operands[0]
    if not _holds(inner.shape.dtype, source.shape.dtype):
        return None
    if source.shape.dtype is instruction.shape.dtype:
        return source
    return like(instruction, instruction.op, source)


@simplifies(ReducePrecision)
def reduce_precision_of_enough(instruction: Instruction, computation: Computation) -> Instruction | None:
    """As many bits as the type has, or more, change nothing."""
    op, operand = instruction.op, instruction.operands[0]
    assert isinstance(op, ReducePrecision)
    if operand.shape.dtype.name not in _INTEGER_BITS:
        return None
    own = float_format(operand.shape.dtype.numpy)
    return operand if op.exponent_bits >= own.exponent_bits and op.mantissa_bits >= own.mantissa_bits else None


@simplifies(Real, Imag)
def part_of_complex(instruction: Instruction, computation: Computation) -> Instruction | None:
    """real(complex(a, b)) == a, imag(complex(a, b)) == b."""
    inner = instruction.operands[0]
    return inner.operands[isinstance(instruction.op, Imag)] if isinstance(inner.op, Complex) else None


@simplifies(Complex)
def complex_of_parts(instruction: Instruction, computation: Computation) -> Instruction | None:
    """complex(real(z), imag(z)) == z."""
    real, imaginary = instruction.operands
    if type(real.op) is not Real or not isinstance(imaginary.op, Imag) or real.operands != imaginary.operands:
        return None
    source = real.operands[0]
    return source if source.shape.dtype.is_complex else None


_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


@simplifies(Not)
def not_of_compare(instruction: Instruction, computation: Computation) -> Instruction | None:
    """not(a == b) == (a != b), also of NaN; not(a < b) == (a >= b) for integers alone."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Compare) or len(inner.users) > 1:
        return None
    lhs = inner.operands[0].shape.dtype
    if inner.op.direction not in ("EQ", "NE") and not (lhs.is_integral or lhs.kind == "pred"):
        return None
    return like(instruction, inner.op.replace(direction=_OPPOSITE[inner.op.direction]), *inner.operands)


@simplifies(Select)
def select_of_not(instruction: Instruction, computation: Computation) -> Instruction | None:
    """select(not p, a, b) == select(p, b, a)."""
    predicate, on_true, on_false = instruction.operands
    if not isinstance(predicate.op, Not):
        return None
    return like(instruction, instruction.op, predicate.operands[0], on_false, on_true)


@simplifies(Select)
def select_of_truth(instruction: Instruction, computation: Computation) -> Instruction | None:
    """select(p, true, false) == p, select(p, false, true) == not p."""
    predicate, on_true, on_false = instruction.operands
    if instruction.shape.dtype.kind != "pred" or predicate.shape.dimensions != instruction.shape.dimensions:
        return None
    if is_scalar(on_true, 1) and is_scalar(on_false, 0):
        return predicate
    return like(instruction, Not(), predicate) if is_scalar(on_true, 0) and is_scalar(on_false, 1) else None


@simplifies(Select)
def select_of_select(instruction: Instruction, computation: Computation) -> Instruction | None:
    """select(p, select(p, a, b), c) == select(p, a, c), and so in the other case."""
    predicate, on_true, on_false = instruction.operands
    if isinstance(on_true.op, Select) and on_true.operands[0] is predicate:
        return like(instruction, instruction.op, predicate, on_true.operands[1], on_false)
    if isinstance(on_false.op, Select) and on_false.operands[0] is predicate:
        return like(instruction, instruction.op, predicate, on_true, on_false.operands[2])
    return None


@simplifies(Compare)
def compare_beyond_the_range(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x < c for every x that the type, an iota, or what it is computed by lets x have is true; and the like."""
    known = compared(instruction)
    return None if known is None else constant_like(computation, instruction, known)


def compared(compare: Instruction, known: Mapping[Instruction, Range] | None = None) -> bool | None:
    """The constant that a comparison of integers gives, if their ranges tell."""
    lhs, rhs = compare.operands
    if not isinstance(compare.op, Compare) or not lhs.shape.dtype.is_integral:
        return None
    a, b = value_range(lhs, known), value_range(rhs, known)
    below, not_above = a[1] < b[0], a[1] <= b[0]
    above, not_below = a[0] > b[1], a[0] >= b[1]
    equal = a == b and a[0] == a[1]
    true, false = {
        "LT": (below, not_below),
        "LE": (not_above, above),
        "GT": (above, not_above),
        "GE": (not_below, below),
        "EQ": (equal, below or above),
        "NE": (below or above, equal),
    }[compare.op.direction]
    return true if true or false else None


@simplifies(Convert)
def convert_of_iota(instruction: Instruction, computation: Computation) -> Instruction | None:
    """An iota of integers that do not wrap, converted to another integral type, is one of that type."""
    inner, dtype = instruction.operands[0], instruction.shape.dtype
    if not isinstance(inner.op, Iota) or not inner.shape.dtype.is_integral or not dtype.is_integral:
        return None
    last = inner.shape.dimensions[inner.op.iota_dimension] - 1
    if last > range_of_type(inner.shape.dtype)[1]:
        return None
    return like(instruction, Iota(inner.op.iota_dimension, instruction.shape.logical))


@simplifies(ShiftRightLogical)
def shift_of_small(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x >> k == 0 for every x that is not negative and below 2^k."""
    return constant_like(computation, instruction, 0) if value_range(instruction) == (0, 0) else None


@simplifies(GetDimensionSize, dynamic=True)
def size_of_static_dimension(instruction: Instruction, computation: Computation) -> Instruction | None:
    """The size of a static dimension is a constant (GDS-2)."""
    operand = instruction.operands[0]
    assert isinstance(instruction.op, GetDimensionSize)
    if operand.shape.dynamic[instruction.op.dimension] or operand.shape.is_unbounded:
        return None
    return constant_like(computation, instruction, operand.shape.dimensions[instruction.op.dimension])


@simplifies(SetDimensionSize)
def size_that_stays(instruction: Instruction, computation: Computation) -> Instruction | None:
    """set-dimension-size(x, n) == x, where both are static: the only size is the one it has (SDS-7)."""
    operand, size = instruction.operands
    assert isinstance(instruction.op, SetDimensionSize)
    return operand if scalar_of(size) == operand.shape.dimensions[instruction.op.dimension] else None
