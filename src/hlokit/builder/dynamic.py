"""Builder functions: run-time sizes of dynamic dimensions."""

from __future__ import annotations

from typing import Any

from hlokit.builder.core import XlaOp, emit
from hlokit.ops.dynamic import GetDimensionSize, SetDimensionSize
from hlokit.types import dtype as dtypes

__all__ = ["get_dimension_size", "remove_dynamic_dimension", "set_dimension_size"]


def get_dimension_size(operand: XlaOp, dimension: int) -> XlaOp:
    """The run-time size of a dimension, s32[]; a constant where the dimension is static.

    Rules GDS. Raises ShapeError.
    """
    shape = operand.shape
    if not 0 <= dimension < shape.rank or shape.dynamic[dimension] or shape.dimensions[dimension] > 2**31 - 1:
        return emit(GetDimensionSize(dimension), operand)
    return operand.builder.constant(operand.shape.dimensions[dimension], dtypes.s32)


def set_dimension_size(operand: XlaOp, val: Any, dimension: int) -> XlaOp:
    """The operand with a dimension dynamic, of run-time size `val`, an s32[]; the data stays.

    Rules SDS. Raises ShapeError.
    """
    return emit(SetDimensionSize(dimension), operand, _size(operand, val))


def remove_dynamic_dimension(operand: XlaOp, dimension: int) -> XlaOp:
    """The operand with a dynamic dimension static again, at its bound (BEY-25, SDS-7). Rules SDS. Raises ShapeError."""
    shape = operand.shape.logical
    if not 0 <= dimension < shape.rank:
        return set_dimension_size(operand, 0, dimension)  # which says what is wrong
    fixed = shape.with_dynamic([f and d != dimension for d, f in enumerate(shape.dynamic)])
    return emit(SetDimensionSize(dimension), operand, _size(operand, shape.dimensions[dimension]), shape=fixed)


def _size(operand: XlaOp, value: Any) -> XlaOp:
    return value if isinstance(value, XlaOp) else operand.builder.constant(value, dtypes.s32)
