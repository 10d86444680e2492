"""Identities of arithmetic that preserve every bit."""

from __future__ import annotations

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.comparison import Compare
from hlokit.ops.elementwise import (
    Add,
    And,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Negate,
    Not,
    Or,
    Power,
    Remainder,
    Select,
    ShiftRightLogical,
    Subtract,
    Xor,
)
from hlokit.passes.simplify.rules import constant_like, is_negative_zero, is_scalar, like, scalar_of, simplifies


def _other(instruction: Instruction, value: int) -> Instruction | None:
    """The operand whose fellow is `value` everywhere."""
    lhs, rhs = instruction.operands
    return lhs if is_scalar(rhs, value) else rhs if is_scalar(lhs, value) else None


@simplifies(Add)
def add_of_zero(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x + 0 == x for integers and pred; x + -0 == x for floats (x + +0 is not: -0 + +0 is +0)."""
    if instruction.shape.dtype.is_integral or instruction.shape.dtype.kind == "pred":
        return _other(instruction, 0)
    lhs, rhs = instruction.operands
    return lhs if is_negative_zero(rhs) else rhs if is_negative_zero(lhs) else None


@simplifies(Subtract)
def subtract_of_zero(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x - 0 == x, also for floats: -0 - +0 is -0, and NaN stays NaN."""
    lhs, rhs = instruction.operands
    return lhs if is_scalar(rhs, 0) else None


@simplifies(Subtract)
def subtract_of_itself(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x - x == 0 for integers (for floats Inf - Inf is NaN)."""
    lhs, rhs = instruction.operands
    if lhs is not rhs or not instruction.shape.dtype.is_integral:
        return None
    return constant_like(computation, instruction, 0)


@simplifies(Multiply)
def multiply_by_one(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x * 1 == x, also for floats; not for complex, where Inf * (1 + 0i) has NaN parts."""
    return None if instruction.shape.dtype.is_complex else _other(instruction, 1)


@simplifies(Multiply)
def multiply_by_zero(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x * 0 == 0 for integers and pred (for floats NaN, Inf and -x forbid it)."""
    if not (instruction.shape.dtype.is_integral or instruction.shape.dtype.kind == "pred"):
        return None
    lhs, rhs = instruction.operands
    return rhs if is_scalar(rhs, 0) else lhs if is_scalar(lhs, 0) else None


@simplifies(Divide)
def divide_by_one(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x / 1 == x, for integers and floats."""
    lhs, rhs = instruction.operands
    return lhs if is_scalar(rhs, 1) and not instruction.shape.dtype.is_complex else None


@simplifies(Negate, Not)
def twice_is_nothing(instruction: Instruction, computation: Computation) -> Instruction | None:
    """-(-x) == x and not(not(x)) == x: bits flipped twice; integers wrap both times."""
    inner = instruction.operands[0]
    return inner.operands[0] if inner.op is instruction.op else None


@simplifies(Maximum, Minimum, And, Or)
def of_itself(instruction: Instruction, computation: Computation) -> Instruction | None:
    """f(x, x) == x; max and min of NaN and NaN are NaN."""
    lhs, rhs = instruction.operands
    return lhs if lhs is rhs else None


@simplifies(And)
def and_of_constant(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x & 0 == 0; x & true == x for pred."""
    lhs, rhs = instruction.operands
    for one, other in ((lhs, rhs), (rhs, lhs)):
        if is_scalar(one, 0):
            return one
        if instruction.shape.dtype.kind == "pred" and is_scalar(one, 1):
            return other
    return None


@simplifies(Or, Xor)
def or_of_zero(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x | 0 == x and x ^ 0 == x."""
    return _other(instruction, 0)


@simplifies(Select)
def select_of_constant(instruction: Instruction, computation: Computation) -> Instruction | None:
    """select(true, a, b) == a, select(false, a, b) == b, select(p, a, a) == a."""
    predicate, on_true, on_false = instruction.operands
    if on_true is on_false and predicate.shape.dimensions in ((), on_true.shape.dimensions):
        return on_true
    chosen = scalar_of(predicate)
    return None if chosen is None else on_true if chosen else on_false


@simplifies(Compare)
def compare_of_itself(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x == x, x >= x, x <= x are true and x != x, x > x, x < x false, for integers and pred (not for floats: NaN)."""
    lhs, rhs = instruction.operands
    if lhs is not rhs or not (lhs.shape.dtype.is_integral or lhs.shape.dtype.kind == "pred"):
        return None
    return constant_like(computation, instruction, instruction.op.direction in ("EQ", "GE", "LE"))  # type: ignore[attr-defined]


def _is_lowest(instruction: Instruction, sign: int) -> bool:
    """All elements are what no other value lies below (sign -1) or above (sign 1)."""
    value, dtype = scalar_of(instruction), instruction.shape.dtype
    if value is None:
        return False
    if dtype.is_floating:
        return bool(np.isinf(float(value)) and float(value) * sign > 0)
    highest = 1 if dtype.kind == "pred" else 2 ** (dtype.bits - (dtype.kind == "signed")) - 1
    lowest = -highest - 1 if dtype.kind == "signed" else 0
    return not dtype.is_complex and int(value) == (lowest if sign < 0 else highest)


@simplifies(Maximum)
def maximum_of_lowest(instruction: Instruction, computation: Computation) -> Instruction | None:
    """max(x, -inf) == x, also for NaN; max(x, least integer) == x; what nothing exceeds exceeds all integers."""
    lhs, rhs = instruction.operands
    for one, other in ((lhs, rhs), (rhs, lhs)):
        if _is_lowest(one, -1):
            return other
        if _is_lowest(one, 1) and not instruction.shape.dtype.is_floating:
            return one
    return None


@simplifies(Minimum)
def minimum_of_highest(instruction: Instruction, computation: Computation) -> Instruction | None:
    """min(x, inf) == x, also for NaN; min(x, greatest integer) == x; min(x, least integer) is the least."""
    lhs, rhs = instruction.operands
    for one, other in ((lhs, rhs), (rhs, lhs)):
        if _is_lowest(one, 1):
            return other
        if _is_lowest(one, -1) and not instruction.shape.dtype.is_floating:
            return one
    return None


@simplifies(Add, Multiply)
def constants_together(instruction: Instruction, computation: Computation) -> Instruction | None:
    """(x + c) + d == x + (c + d) and (x * c) * d == x * (c * d) for integers, which wrap either way."""
    if not instruction.shape.dtype.is_integral:
        return None
    inner, outer = instruction.operands
    if scalar_of(outer) is None:
        inner, outer = outer, inner
    if scalar_of(outer) is None or inner.op is not instruction.op or len(inner.users) > 1:
        return None
    x, constant = inner.operands
    if scalar_of(constant) is None:
        x, constant = constant, x
    if scalar_of(constant) is None or scalar_of(x) is not None:
        return None
    return like(instruction, instruction.op, x, computation.add(instruction.op, [constant, outer]))


@simplifies(Subtract)
def subtract_of_constant(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x - c == x + (-c) for integers, which wrap: one form for constants to come together in."""
    x, constant = instruction.operands
    value, dtype = scalar_of(constant), instruction.shape.dtype
    if value is None or not dtype.is_integral or scalar_of(x) is not None:
        return None
    wrapped = -int(value) % 2**dtype.bits
    if dtype.kind == "signed" and wrapped >= 2 ** (dtype.bits - 1):
        wrapped -= 2**dtype.bits
    return like(instruction, Add(), x, constant_like(computation, instruction, wrapped))


@simplifies(Divide)
def divide_by_power_of_two(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x / 2^k == x * 2^-k for floats while 2^-k is a normal number: both round the same real number once."""
    lhs, rhs = instruction.operands
    value, dtype = scalar_of(rhs), instruction.shape.dtype
    if value is None or dtype.name not in ("f16", "bf16", "f32", "f64"):
        return None
    mantissa, exponent = np.frexp(float(value))
    limit = 13 if dtype.name == "f16" else 1000 if dtype.name == "f64" else 120
    if abs(mantissa) != 0.5 or abs(exponent) > limit:
        return None
    return like(instruction, Multiply(), lhs, constant_like(computation, instruction, 1 / float(value)))


@simplifies(Divide)
def divide_of_unsigned_by_power_of_two(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x / 2^k == x >> k for unsigned integers."""
    lhs, rhs = instruction.operands
    value = scalar_of(rhs)
    if value is None or instruction.shape.dtype.kind != "unsigned" or int(value).bit_count() != 1:
        return None
    amount = constant_like(computation, instruction, int(value).bit_length() - 1)
    return like(instruction, ShiftRightLogical(), lhs, amount)


@simplifies(Remainder)
def remainder_of_unsigned_by_power_of_two(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x % 2^k == x & (2^k - 1) for unsigned integers."""
    lhs, rhs = instruction.operands
    value = scalar_of(rhs)
    if value is None or instruction.shape.dtype.kind != "unsigned" or int(value).bit_count() != 1:
        return None
    return like(instruction, And(), lhs, constant_like(computation, instruction, int(value) - 1))


@simplifies(Power)
def power_of_simple(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x^1 == x and x^0 == 1, also for NaN (IEEE 754); for floats and integers."""
    base, exponent = instruction.operands
    if instruction.shape.dtype.is_complex:
        return None
    if is_scalar(exponent, 1):
        return base
    value = scalar_of(exponent)
    return constant_like(computation, instruction, 1) if value is not None and float(value) == 0 else None
