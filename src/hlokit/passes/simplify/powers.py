"""Powers and quotients by constants, replaced by cheaper operations. They round differently: only for `fast`."""

from __future__ import annotations

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.comparison import Compare
from hlokit.ops.elementwise import Add, Divide, Multiply, Power, Select
from hlokit.ops.transcendental import Rsqrt, Sqrt
from hlokit.passes.simplify.rules import constant_like, like, scalar_of, simplifies

_FLOATS = ("f16", "bf16", "f32", "f64")


@simplifies(Power, fast=True)
def power_by_squaring(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x^n for n = 2..8 by products, x^-n by products of 1/x: a few roundings instead of one.

    No product leaves the range before the result does; signs, zeros, infinities and NaN come out right.
    """
    base, exponent = instruction.operands
    n = _exponent(instruction, exponent)
    if n is None or not 1 <= abs(n) <= 8 or n != int(n) or n == 1:
        return None
    if n < 0:
        base = computation.add(Divide(), [constant_like(computation, instruction, 1), base])
    return _to_the(base, abs(int(n)), computation)


@simplifies(Power, fast=True)
def power_by_roots(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x^(k/2) for odd k up to 5 by sqrt or rsqrt of x + 0, and products; (-inf)^(k/2) is inf or 0, -0 counts as 0."""
    base, exponent = instruction.operands
    value = _exponent(instruction, exponent)
    if value is None or abs(value) > 2.5 or value * 2 % 2 != 1:
        return None
    plus = computation.add(Add(), [base, constant_like(computation, instruction, 0)])  # -0 becomes 0
    root = computation.add(Sqrt(None) if value > 0 else Rsqrt(None), [plus])
    whole = int(abs(value) - 0.5)
    result = root
    if whole and value > 0:
        result = computation.add(Multiply(), [_to_the(plus, whole, computation), root])
    elif whole:
        result = _to_the(root, 2 * whole + 1, computation)
    lowest = constant_like(computation, instruction, float("-inf"))
    pred = computation.add(Compare("EQ", None, None), [base, lowest])
    at_lowest = constant_like(computation, instruction, float("inf") if value > 0 else 0.0)
    return like(instruction, Select(), pred, at_lowest, result)


@simplifies(Divide, fast=True)
def divide_by_constant(instruction: Instruction, computation: Computation) -> Instruction | None:
    """x / c == x * (1 / c) within one rounding, for c whose reciprocal is a normal number, and so is c."""
    lhs, rhs = instruction.operands
    value = scalar_of(rhs)
    if value is None or instruction.shape.dtype.name not in ("f32", "f64") or scalar_of(lhs) is not None:
        return None
    if not 1e-30 < abs(float(value)) < 1e30:
        return None
    return like(instruction, Multiply(), lhs, constant_like(computation, instruction, 1 / float(value)))


def _exponent(instruction: Instruction, exponent: Instruction) -> float | None:
    value = scalar_of(exponent)
    return None if value is None or instruction.shape.dtype.name not in _FLOATS else float(value)


def _to_the(base: Instruction, n: int, computation: Computation) -> Instruction:
    """base^n by squaring, n >= 1."""
    if n == 1:
        return base
    half = _to_the(base, n // 2, computation)
    square = computation.add(Multiply(), [half, half])
    return computation.add(Multiply(), [square, base]) if n % 2 else square
