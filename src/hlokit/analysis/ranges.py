"""The smallest and the largest value that an integer of a program can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import is_ndarray
from hlokit.ops.movement import Iota
from hlokit.ops.structure import Constant
from hlokit.types.dtype import DType

Range: TypeAlias = tuple[int, int]
"""Least and greatest, both included."""

_DEPTH = 5
_SMALL = 64
"""Constants of more elements are not looked through."""


def range_of_type(dtype: DType) -> Range:
    """All values of an integral type, or of pred."""
    if dtype.kind == "pred":
        return 0, 1
    half = 1 << (dtype.bits - 1)
    return (-half, half - 1) if dtype.kind == "signed" else (0, 2 * half - 1)


def value_range(instruction: Instruction, known: Mapping[Instruction, Range] | None = None) -> Range:
    """Bounds on the elements of an integral array; those of its type where nothing is seen.

    `known`: bounds of instructions that somebody else has found.
    """
    return _range(instruction, known or {}, _DEPTH)


def _range(instruction: Instruction, known: Mapping[Instruction, Range], depth: int) -> Range:
    while instruction not in known and instruction.op.same_elements:
        instruction = instruction.operands[0]
    if instruction in known:
        return known[instruction]
    everything = range_of_type(instruction.shape.dtype)
    found = _seen(instruction, known, depth)
    if found is None or found[0] < everything[0] or found[1] > everything[1]:
        return everything  # it may wrap
    return found


def _seen(instruction: Instruction, known: Mapping[Instruction, Range], depth: int) -> Range | None:
    """The range that the op gives, without regard to the type."""
    op = instruction.op
    if isinstance(op, Constant):
        value = op.literal.value
        if not is_ndarray(value) or not 0 < value.size <= _SMALL:
            return None
        numbers = [int(v) for v in value.reshape(-1)]
        return min(numbers), max(numbers)
    if isinstance(op, Iota):
        return 0, max(0, instruction.shape.dimensions[op.iota_dimension] - 1)
    if not depth or op.opcode not in _OPS:
        return None
    operands = instruction.operands
    if instruction.shape.dtype.kind == "pred" or not all(
        o.shape.dtype.is_integral or o.shape.dtype.kind == "pred" for o in operands
    ):
        return None
    ranges = [_range(o, known, depth - 1) for o in operands]
    return _OPS[op.opcode](*ranges)


def _product(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _and(a: Range, b: Range) -> Range | None:
    if a[0] < 0 and b[0] < 0:
        return None
    return 0, min(limit for low, limit in (a, b) if low >= 0)


def _shifted(a: Range, b: Range) -> Range | None:
    """A logical shift by one amount of what is not negative; by the width and more it gives 0 (SHIFT rules)."""
    return (a[0] >> b[0], a[1] >> b[0]) if a[0] >= 0 and b[0] == b[1] >= 0 else None


def _remainder(a: Range, b: Range) -> Range | None:
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None


def _quotient(a: Range, b: Range) -> Range | None:
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None


def _sum(a: Range, b: Range) -> Range:
    return a[0] + b[0], a[1] + b[1]


def _difference(a: Range, b: Range) -> Range:
    return a[0] - b[1], a[1] - b[0]


def _greater(a: Range, b: Range) -> Range:
    return max(a[0], b[0]), max(a[1], b[1])


def _less(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), min(a[1], b[1])


def _clamped(low: Range, x: Range, high: Range) -> Range:
    return _less(_greater(x, low), high)


def _either(predicate: Range, a: Range, b: Range) -> Range:
    return min(a[0], b[0]), max(a[1], b[1])


def _same(a: Range) -> Range:
    return a


_OPS: dict[str, Callable[..., Range | None]] = {
    "convert": _same,
    "add": _sum,
    "subtract": _difference,
    "multiply": _product,
    "maximum": _greater,
    "minimum": _less,
    "clamp": _clamped,
    "select": _either,
    "and": _and,
    "shift-right-logical": _shifted,
    "remainder": _remainder,
    "divide": _quotient,
}
"""Bounds of the result by bounds of the operands; None where they say nothing."""
