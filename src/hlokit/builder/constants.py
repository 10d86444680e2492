"""Constants by element type, arrays of one value in the shape of another (xla/hlo/builder/lib/constants.h, BEY-80)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.builder.broadcasting import scalar_to
from hlokit.builder.core import Builder, XlaOp
from hlokit.errors import ShapeError
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

__all__ = [
    "epsilon",
    "full_like",
    "max_finite_value",
    "max_value",
    "min_finite_value",
    "min_positive_normal_value",
    "min_value",
    "nan_value",
    "one",
    "ones_like",
    "scalar_like",
    "zero",
    "zeros",
    "zeros_like",
]


def scalar_like(prototype: XlaOp, value: Any) -> XlaOp:
    """`value` as a scalar of the prototype's element type.

    Parameters
    ----------
    prototype : XlaOp
        The array whose element type the result has.
    value : number
        The value.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        The prototype is not an array, or the value does not fit its type (BUILDER-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.scalar_like(b.constant([1.0, 2.0]), 7)))
    array(7., dtype=float32)
    """
    return prototype.builder.constant(value, prototype.dtype)


def full_like(prototype: XlaOp, value: Any) -> XlaOp:
    """An array of the prototype's shape and element type, all `value`; dynamic dimensions keep their run-time sizes.

    Parameters
    ----------
    value : number
        The value of all elements.

    Returns
    -------
    XlaOp
        An array of the prototype's shape and element type.

    Raises
    ------
    ShapeError
        The prototype is not an array, or the value does not fit its type (BUILDER-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.full_like(b.constant([1.0, 2.0]), 7)))
    array([7., 7.], dtype=float32)
    """
    scalar, shape = scalar_like(prototype, value), prototype.shape
    if not shape.rank:
        return scalar
    result = scalar_to(scalar, shape.dimensions)
    if not shape.is_dynamic:
        return result
    from hlokit.builder.dynamic import get_dimension_size, set_dimension_size

    for i, dynamic in enumerate(shape.dynamic):
        if dynamic:
            result = set_dimension_size(result, get_dimension_size(prototype, i), i)
    return result


def zeros_like(prototype: XlaOp) -> XlaOp:
    """Zeros of the prototype's shape and element type.

    Returns
    -------
    XlaOp
        An array of the prototype's shape and element type.

    Raises
    ------
    ShapeError
        The prototype is not an array (BUILDER-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.zeros_like(b.constant([1.5, 2.5]))))
    array([0., 0.], dtype=float32)
    """
    return full_like(prototype, 0)


def ones_like(prototype: XlaOp) -> XlaOp:
    """Ones of the prototype's shape and element type.

    Returns
    -------
    XlaOp
        An array of the prototype's shape and element type.

    Raises
    ------
    ShapeError
        The prototype is not an array (BUILDER-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.ones_like(b.constant([1.5, 2.5]))))
    array([1., 1.], dtype=float32)
    """
    return full_like(prototype, 1)


def zeros(builder: Builder, shape: Shape) -> XlaOp:
    """Zeros of a shape.

    Returns
    -------
    XlaOp
        An array of `shape`.

    Raises
    ------
    ShapeError
        `shape` is not an array's (BUILDER-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.zeros(b, hk.s32[2, 2])))
    array([[0, 0],
           [0, 0]], dtype=int32)
    """
    return scalar_to(zero(builder, shape.dtype), shape.dimensions)


def zero(builder: Builder, dtype: DType) -> XlaOp:
    """The scalar 0.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        `dtype` is not an array's element type (BUILDER-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.zero(b, hk.f32)))
    array(0., dtype=float32)
    """
    return builder.constant(0, dtype)


def one(builder: Builder, dtype: DType) -> XlaOp:
    """The scalar 1.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        `dtype` is not an array's element type (BUILDER-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.one(b, hk.s32)))
    array(1, dtype=int32)
    """
    return builder.constant(1, dtype)


def epsilon(builder: Builder, dtype: DType) -> XlaOp:
    """The distance from 1 to the next larger number of a floating type.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        `dtype` is not a floating type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.epsilon(b, hk.bf16)))
    array(0.0078125, dtype=bfloat16)
    """
    return builder.constant(finfo_of(dtype).eps, dtype)


def min_value(builder: Builder, dtype: DType) -> XlaOp:
    """The least value: minus infinity where the type has it.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        `dtype` is not a type of real numbers (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.min_value(b, hk.f32)))
    array(-inf, dtype=float32)
    """
    return _limit(builder, dtype, -1)


def max_value(builder: Builder, dtype: DType) -> XlaOp:
    """The greatest value: infinity where the type has it.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        `dtype` is not a type of real numbers (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.max_value(b, hk.s8)))
    array(127, dtype=int8)
    """
    return _limit(builder, dtype, 1)


def min_finite_value(builder: Builder, dtype: DType) -> XlaOp:
    """The least finite value.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        `dtype` is not a type of real numbers (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.min_finite_value(b, hk.f16)))
    array(-6.55e+04, dtype=float16)
    """
    return builder.constant(_finite_limit(dtype, -1), dtype)


def max_finite_value(builder: Builder, dtype: DType) -> XlaOp:
    """The greatest finite value.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        `dtype` is not a type of real numbers (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.max_finite_value(b, hk.f16)))
    array(6.55e+04, dtype=float16)
    """
    return builder.constant(_finite_limit(dtype, 1), dtype)


def min_positive_normal_value(builder: Builder, dtype: DType) -> XlaOp:
    """The least positive normal number of a floating type.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        `dtype` is not a floating type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.min_positive_normal_value(b, hk.f16)))
    array(6.104e-05, dtype=float16)
    """
    return builder.constant(finfo_of(dtype).smallest_normal, dtype)


def nan_value(builder: Builder, dtype: DType) -> XlaOp:
    """A NaN of a floating type.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.nan_value(b, hk.f32)))
    array(nan, dtype=float32)
    """
    _check_floating(dtype)
    if not has_nan(dtype):
        raise ShapeError("BEY-80", "element type", dtype, "a type with NaN")
    return builder.constant(np.array(np.nan, dtype.numpy))


def has_infinity(dtype: DType) -> bool:
    """Whether a floating type has infinities."""
    return dtype.is_floating and bool(np.isinf(np.array(np.inf).astype(dtype.numpy).astype(np.float64)))


def has_nan(dtype: DType) -> bool:
    """Whether a floating type has a NaN."""
    return dtype.is_floating and bool(np.isnan(np.array(np.nan).astype(dtype.numpy).astype(np.float64)))


def _limit(builder: Builder, dtype: DType, sign: int) -> XlaOp:
    if has_infinity(dtype):
        return builder.constant(np.array(sign * np.inf).astype(dtype.numpy))
    return builder.constant(_finite_limit(dtype, sign), dtype)


def _finite_limit(dtype: DType, sign: int) -> Any:
    if dtype.kind == "pred":
        return sign > 0
    if dtype.is_integral:
        bits = dtype.bits - (dtype.kind == "signed")
        return (1 << bits) - 1 if sign > 0 else -(1 << bits) if dtype.kind == "signed" else 0
    return finfo_of(dtype).max if sign > 0 else finfo_of(dtype).min


def finfo_of(dtype: DType) -> Any:
    """The limits of a floating type, as numpy.finfo gives them."""
    import ml_dtypes

    _check_floating(dtype)
    finfo: Any = ml_dtypes.finfo
    return finfo(dtype.numpy)


def _check_floating(dtype: DType) -> None:
    if not dtype.is_floating:
        raise ShapeError("BEY-80", "element type", dtype, "a floating type")
