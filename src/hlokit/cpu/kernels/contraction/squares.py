"""Squares of vectors in registers, transposed, for writers whose values are text."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu import llvm
from hlokit.cpu.llvm import Function, Value, type_of


def transposed(f: Function, rows: Sequence[str], scalar: str, unit: int = 1) -> list[str]:
    """See hlokit.cpu.llvm.transposed."""
    values = [Value(f, type_of(scalar, len(rows) * unit), row) for row in rows]
    return [value.text for value in llvm.transposed(values, unit)]


def shuffled(f: Function, type: str, pair: Sequence[str], order: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {i}" for i in order)
    return f.let(f"shufflevector {type} {pair[0]}, {type} {pair[1]}, <{len(order)} x i32> <{mask}>")
