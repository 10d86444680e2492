"""References in the lines of a function: to symbols, to integer constants, to instructions that a target may lack.

A line is a string, since nothing is faster to make. Each reference in it stands between two marks, spelled as LLVM
spells it, so that a line without its marks is what is printed. A Definition takes lines apart at the marks:

    @name   the address of a symbol
    @name(  what a call calls; of a call without result ) is a reference too, where more operands may be put
    12      an i64 constant in whose place a variable may stand
    others  the beginning and the end of an Operation
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from hlokit.cpu.llvm.types import Type

MARK = "\0"
_DIGITS = frozenset("-0123456789")


class Operation(NamedTuple):
    """A conversion or an intrinsic that some targets have no instruction for.

    name  "fpext" from f16, "fptrunc" from f32 to f16, "fma" of f32, "roundeven", "floor", "ceil", "trunc"
    """

    name: str
    operand: Type
    result: Type


_conversions: dict[tuple[str, str], Operation] = {}
_intrinsics: dict[str, Operation] = {}
_ROUNDING = ("roundeven", "floor", "ceil", "trunc")
_LACKED = {("fma", "float"), *((name, scalar) for name in _ROUNDING for scalar in ("float", "double"))}
"""Intrinsics that are Operations: names and scalars."""
_CONVERTED = {("fpext", "half", "float"), ("fpext", "half", "double"), ("fptrunc", "float", "half")}
"""Conversions that are."""


@cache
def conversion(name: str, operand: Type, result: Type) -> tuple[str, str]:
    """The text before the operand of a conversion, and after it."""
    before, after = f"{name} {operand.text}", f" to {result.text}"
    if (name, operand.scalar, result.scalar) not in _CONVERTED:
        return before, after
    _conversions[before, after] = Operation(name, operand, result)
    return f"{MARK}{before}{MARK}", f"{MARK}{after}{MARK}"


@cache
def intrinsic(name: str, type: Type) -> str:
    """The text between `call` and the operands of the intrinsic that is overloaded by this type."""
    text = f"@llvm.{name}.{type.suffix}("
    if (name, type.scalar) not in _LACKED:
        return f"{type.text} {text}"
    _intrinsics[text] = Operation(name, type, type)
    return f"{type.text} {MARK}{text}{MARK}"


def operation(references: list[str], place: int) -> Operation | None:
    """The Operation that the reference begins, if it does."""
    found = _intrinsics.get(references[place])
    if found is None and place + 1 < len(references):
        return _conversions.get((references[place], references[place + 1]))
    return found


def is_constant(reference: str) -> bool:
    return reference[0] in _DIGITS
