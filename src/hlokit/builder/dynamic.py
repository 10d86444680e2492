"""Builder functions: run-time sizes of dynamic dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.builder.core import XlaOp, emit
from hlokit.builder.custom_calls import custom_call
from hlokit.builder.handle import first_handle
from hlokit.builder.movement import check_call
from hlokit.ops.dynamic import GetDimensionSize, SetDimensionSize
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape

__all__ = [
    "get_dimension_size",
    "mhlo_dynamic_broadcast_in_dim",
    "mhlo_dynamic_reshape",
    "remove_dynamic_dimension",
    "set_dimension_size",
]


def get_dimension_size(operand: XlaOp, dimension: int) -> XlaOp:
    """The run-time size of a dimension, s32[]; a constant where the dimension is static.

    Rules GDS.

    Parameters
    ----------
    operand : XlaOp
        An array.
    dimension : int
        One of its dimensions.

    Returns
    -------
    XlaOp
        An s32[].

    Raises
    ------
    ShapeError
        A constraint does not hold: GDS-3 to GDS-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.get_dimension_size(b.constant([[1, 2, 3], [4, 5, 6]]), 1)))
    array(3, dtype=int32)
    """
    shape = first_handle(operand).shape
    if not 0 <= dimension < shape.rank or shape.dynamic[dimension] or shape.dimensions[dimension] > 2**31 - 1:
        return emit(GetDimensionSize(dimension), operand)
    return operand.builder.constant(operand.shape.dimensions[dimension], dtypes.s32)


def set_dimension_size(operand: XlaOp, val: Any, dimension: int) -> XlaOp:
    """The operand with a dynamic dimension of run-time size `val`, an s32[]; the data do not change.

    Rules SDS.

    Parameters
    ----------
    operand : XlaOp
        An array.
    val : XlaOp, number or array
        The size, s32[], at most the dimension's bound.
    dimension : int
        One of its dimensions.

    Returns
    -------
    XlaOp
        An array of the operand's dimensions, of which this one is dynamic.

    Raises
    ------
    ShapeError
        A constraint does not hold: SDS-3, SDS-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.set_dimension_size(b.constant([1, 2, 3, 4]), b.constant(2), 0)))
    array([1, 2], dtype=int32)
    """
    return emit(SetDimensionSize(dimension), operand, _size(operand, val))


def remove_dynamic_dimension(operand: XlaOp, dimension: int) -> XlaOp:
    """The operand with a dynamic dimension made static again, with its bound as size (BEY-25, SDS-7). Rules SDS.

    Parameters
    ----------
    operand : XlaOp
        An array.
    dimension : int
        One of its dimensions.

    Returns
    -------
    XlaOp
        An array of the operand's dimensions, of which this one is static.

    Raises
    ------
    ShapeError
        A constraint does not hold: SDS-3, SDS-4, BEY-25.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.remove_dynamic_dimension(hk.set_dimension_size(b.constant([1, 2, 3]), b.constant(2), 0), 0)
    >>> hk.evaluate(b.build(result))
    array([1, 2, 3], dtype=int32)
    """
    shape = first_handle(operand).shape.logical
    if not 0 <= dimension < shape.rank:
        return set_dimension_size(operand, 0, dimension)  # which says what is wrong
    fixed = shape.with_dynamic([f and d != dimension for d, f in enumerate(shape.dynamic)])
    return emit(SetDimensionSize(dimension), operand, _size(operand, shape.dimensions[dimension]), shape=fixed)


def mhlo_dynamic_broadcast_in_dim(
    operand: XlaOp, output_dimensions: XlaOp, broadcast_dimensions: Sequence[int], output_shape: Shape
) -> XlaOp:
    """broadcast_in_dim to sizes known at run time, a vector of integers; for export, as a custom call.

    Rule BEY-28.

    Parameters
    ----------
    operand : XlaOp
        An array.
    output_dimensions : XlaOp
        The result's sizes: a vector of integers.
    broadcast_dimensions : sequence of int
        For each dimension of the operand the dimension of the result that it becomes.
    output_shape : Shape
        The result's shape.

    Returns
    -------
    XlaOp
        A value of `output_shape`.

    Raises
    ------
    ShapeError
        The arguments do not match (BEY-28).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.constant([1, 2])
    >>> hk.mhlo_dynamic_broadcast_in_dim(x, b.constant([3, 2]), [1], hk.s32["<=4", 2]).shape
    s32[<=4,2]
    """
    target = "mhlo.dynamic_broadcast_in_dim"
    _check_sizes(operand, output_dimensions, output_shape, target)
    fits = len(broadcast_dimensions) == operand.rank and all(0 <= d < output_shape.rank for d in broadcast_dimensions)
    check_call(fits, operand, target, "BEY-28", "broadcast_dimensions", broadcast_dimensions, "one per dimension")
    opaque = f"{{broadcast_dimensions=[{','.join(map(str, broadcast_dimensions))}]}}"
    return custom_call(operand.builder, target, [operand, output_dimensions], output_shape, opaque)


def mhlo_dynamic_reshape(operand: XlaOp, output_shape: XlaOp, shape: Shape) -> XlaOp:
    """reshape to sizes known at run time, a vector of integers; for export, as a custom call.

    Rule BEY-28.

    Parameters
    ----------
    operand : XlaOp
        An array.
    output_shape : XlaOp
        The result's sizes: a vector of integers.
    shape : Shape
        The result's shape.

    Returns
    -------
    XlaOp
        A value of `shape`.

    Raises
    ------
    ShapeError
        The arguments do not match (BEY-28).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.constant([[1, 2], [3, 4]])
    >>> hk.mhlo_dynamic_reshape(x, b.constant([4]), hk.s32["<=4"]).shape
    s32[<=4]
    """
    _check_sizes(operand, output_shape, shape, "mhlo.dynamic_reshape")
    return custom_call(operand.builder, "mhlo.dynamic_reshape", [operand, output_shape], shape)


def _check_sizes(operand: XlaOp, sizes: XlaOp, shape: Shape, target: str) -> None:
    same_type = shape.is_array and shape.dtype is operand.dtype
    check_call(same_type, operand, target, "BEY-28", "shape", shape, f"an array of {operand.dtype}")
    found = sizes.shape
    is_vector = found.dtype.is_integral and found.dimensions == (shape.rank,)
    check_call(is_vector, operand, target, "BEY-28", "sizes", found, f"{shape.rank} integers")


def _size(operand: XlaOp, value: Any) -> XlaOp:
    return value if isinstance(value, XlaOp) else first_handle(operand).builder.constant(value, dtypes.s32)
