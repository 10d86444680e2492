"""Laws of arithmetic that keep every bit."""

from __future__ import annotations

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.comparison import Compare
from hlokit.ops.elementwise import Add, And, Divide, Maximum, Minimum, Multiply, Negate, Not, Or, Select, Subtract, Xor
from hlokit.passes.simplify.rules import constant_like, is_negative_zero, is_scalar, scalar_of, simplifies


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
    if lhs is not rhs or not instruction.shape.dtype.is_integral or instruction.shape.is_dynamic:
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
    if on_true is on_false and predicate.shape.static.dimensions in ((), on_true.shape.static.dimensions):
        return on_true
    chosen = scalar_of(predicate)
    return None if chosen is None else on_true if chosen else on_false


@simplifies(Compare)
def compare_of_itself(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x == x, x >= x, x <= x are true and x != x, x > x, x < x false, for integers and pred (not for floats: NaN)."""
    lhs, rhs = instruction.operands
    if lhs is not rhs or lhs.shape.is_dynamic or not (lhs.shape.dtype.is_integral or lhs.shape.dtype.kind == "pred"):
        return None
    return constant_like(computation, instruction, instruction.op.direction in ("EQ", "GE", "LE"))  # type: ignore[attr-defined]
