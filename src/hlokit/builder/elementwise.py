"""Elementwise op functions: arithmetic, transcendental functions, comparisons, conversions, select and clamp.

Operands are handles; one of them may be a number or an array, which becomes a constant. `result_accuracy` is None,
"highest" or ("tolerance", atol, rtol, ulps) (BEY-17). `broadcast_dimensions` is as broadcasting.py says (BCAST).
All raise ShapeError, with the rule's label: UN-3 or BIN-3 for an operand that is not an array; for an element type that
the op does not take, the rule named with the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlokit.builder.broadcasting import broadcast_operands, scalar_to
from hlokit.builder.core import XlaOp, emit, handles, rejected
from hlokit.builder.handle import first_handle
from hlokit.errors import ShapeError
from hlokit.hlo.op import Op, infer_shape
from hlokit.ops import comparison, conversion, elementwise, transcendental
from hlokit.types.attributes import Accuracy
from hlokit.types.dtype import DType, dtype

__all__ = [
    "abs",
    "add",
    "and_",
    "atan2",
    "bitcast_convert_type",
    "cbrt",
    "ceil",
    "clamp",
    "clz",
    "compare",
    "complex",
    "conj",
    "convert_element_type",
    "copy",
    "cos",
    "div",
    "eq",
    "eq_total_order",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "ge",
    "ge_total_order",
    "gt",
    "gt_total_order",
    "imag",
    "is_finite",
    "le",
    "le_total_order",
    "log",
    "log1p",
    "log2",
    "logistic",
    "lt",
    "lt_total_order",
    "max",
    "min",
    "mul",
    "mulhi",
    "ne",
    "ne_total_order",
    "neg",
    "not_",
    "or_",
    "population_count",
    "pow",
    "real",
    "reduce_precision",
    "rem",
    "round",
    "round_nearest_even",
    "rsqrt",
    "select",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sqrt",
    "stochastic_convert_type",
    "sub",
    "tan",
    "tanh",
    "xor",
]


# -- one operand


def abs(operand: XlaOp) -> XlaOp:
    """|x|; a complex operand gives its component type (ABS-1 to ABS-4).

    Returns
    -------
    XlaOp
        An array of the operand's shape, of the component type where the operand is complex.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.abs(b.constant([-1.5, 2.0]))))
    array([1.5, 2. ], dtype=float32)
    """
    return emit(elementwise.Abs(), operand)


def neg(operand: XlaOp) -> XlaOp:
    """-x (NEG-1 to NEG-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.neg(b.constant([1, -2]))))
    array([-1,  2], dtype=int32)
    """
    return emit(elementwise.Negate(), operand)


def sign(operand: XlaOp) -> XlaOp:
    """-1, 0 or 1; x/|x| for complex (SIGN-1 to SIGN-4).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.sign(b.constant([-1.5, 0.0, 3.0]))))
    array([-1.,  0.,  1.], dtype=float32)
    """
    return emit(elementwise.Sign(), operand)


def ceil(operand: XlaOp) -> XlaOp:
    """The smallest integral value not below x (CEIL-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.ceil(b.constant([-1.5, 1.5]))))
    array([-1.,  2.], dtype=float32)
    """
    return emit(elementwise.Ceil(), operand)


def floor(operand: XlaOp) -> XlaOp:
    """The largest integral value not above x (FLOOR-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.floor(b.constant([-1.5, 1.5]))))
    array([-2.,  1.], dtype=float32)
    """
    return emit(elementwise.Floor(), operand)


def round(operand: XlaOp) -> XlaOp:
    """The nearest integral value, ties away from zero (ROUND-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.round(b.constant([0.5, 1.5, -2.5]))))
    array([ 1.,  2., -3.], dtype=float32)
    """
    return emit(elementwise.RoundNearestAfz(), operand)


def round_nearest_even(operand: XlaOp) -> XlaOp:
    """The nearest integral value, ties to even (ROUND-3, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.round_nearest_even(b.constant([0.5, 1.5, -2.5]))))
    array([ 0.,  2., -2.], dtype=float32)
    """
    return emit(elementwise.RoundNearestEven(), operand)


def is_finite(operand: XlaOp) -> XlaOp:
    """Whether x is neither infinite nor NaN, as pred (ISFINITE-1, ISFINITE-2).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.is_finite(b.constant([1.0, float("inf"), float("nan")]))))
    array([ True, False, False])
    """
    return emit(elementwise.IsFinite(), operand)


def real(operand: XlaOp) -> XlaOp:
    """The real part, in the component type (REAL-1, REAL-2).

    Returns
    -------
    XlaOp
        An array of the operand's shape, of the component type.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.real(b.constant([1 + 2j]))))
    array([1.], dtype=float32)
    """
    return emit(elementwise.Real(), operand)


def imag(operand: XlaOp) -> XlaOp:
    """The imaginary part, in the component type (IMAG-1, REAL-2).

    Returns
    -------
    XlaOp
        An array of the operand's shape, of the component type.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.imag(b.constant([1 + 2j]))))
    array([2.], dtype=float32)
    """
    return emit(elementwise.Imag(), operand)


def not_(operand: XlaOp) -> XlaOp:
    """Logical not of pred, bitwise not of integers (NOT-1, NOT-2).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.not_(b.constant([0, 5]))))
    array([-1, -6], dtype=int32)
    """
    return emit(elementwise.Not(), operand)


def population_count(operand: XlaOp) -> XlaOp:
    """The number of 1 bits, in the operand's type (POPCNT-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.population_count(b.constant([7, -1]))))
    array([ 3, 32], dtype=int32)
    """
    return emit(elementwise.PopulationCount(), operand)


def clz(operand: XlaOp) -> XlaOp:
    """The number of leading 0 bits, in the operand's type (BEY-14, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.clz(b.constant([1, 0, -1]))))
    array([31, 32,  0], dtype=int32)
    """
    return emit(elementwise.CountLeadingZeros(), operand)


def copy(operand: XlaOp) -> XlaOp:
    """A copy of the operand (BEY-19).

    Parameters
    ----------
    operand : XlaOp
        A value of any shape; tuples and tokens too.

    Returns
    -------
    XlaOp
        The same value.

    Raises
    ------
    BuildError
        `operand` belongs to another builder, or its builder has been built (BUILDER-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.copy(b.constant([1, 2]))))
    array([1, 2], dtype=int32)
    """
    return emit(elementwise.Copy(), operand)


def conj(operand: XlaOp) -> XlaOp:
    """The complex conjugate; a real operand becomes complex (BEY-11). f32, f64, c64, c128 only (BEY-10, REAL-2).

    Returns
    -------
    XlaOp
        A complex array of the operand's shape.

    Raises
    ------
    ShapeError
        `operand` is not an array (UN-3), or not of type f32, f64, c64 or c128 (BEY-10, REAL-2).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.conj(b.constant([1 + 2j]))))
    array([1.-2.j], dtype=complex64)
    """
    return complex(real(operand), neg(imag(operand)))


def exp(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """e to the power of x (EXP-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.exp(b.constant([0.0, 1.0])))).round(3)
    array([1.   , 2.718], dtype=float32)
    """
    return _function(transcendental.Exponential, operand, result_accuracy)


def exp2(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """2 to the power of x, for floating values (BEY-81, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[3])
    >>> hk.evaluate(b.build(hk.exp2(x)), [3.0, 0.5, -1.0])
    array([8.       , 1.4142135, 0.5      ], dtype=float32)
    """
    return _function(transcendental.Exp2, operand, result_accuracy)


def expm1(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """exp(x) - 1 without cancellation (BEY-4, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.expm1(b.constant([0.0, 1.0])))).round(3)
    array([0.   , 1.718], dtype=float32)
    """
    return _function(transcendental.ExponentialMinusOne, operand, result_accuracy)


def log(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """The natural logarithm (LOG-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.log(b.constant([1.0, 2.0])))).round(3)
    array([0.   , 0.693], dtype=float32)
    """
    return _function(transcendental.Log, operand, result_accuracy)


def log2(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """The logarithm to the base 2, for floating values (BEY-81, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2])
    >>> hk.evaluate(b.build(hk.log2(x)), [8.0, 0.25])
    array([ 3., -2.], dtype=float32)
    """
    return _function(transcendental.Log2, operand, result_accuracy)


def log1p(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """log(1 + x) without cancellation (BEY-5, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.log1p(b.constant([0.0, 1.0])))).round(3)
    array([0.   , 0.693], dtype=float32)
    """
    return _function(transcendental.LogPlusOne, operand, result_accuracy)


def logistic(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """1 / (1 + exp(-x)) (LOGISTIC-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.logistic(b.constant([0.0, 1.0])))).round(3)
    array([0.5  , 0.731], dtype=float32)
    """
    return _function(transcendental.Logistic, operand, result_accuracy)


def sqrt(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """The square root (SQRT-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.sqrt(b.constant([4.0, 2.0])))).round(3)
    array([2.   , 1.414], dtype=float32)
    """
    return _function(transcendental.Sqrt, operand, result_accuracy)


def rsqrt(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """1 / sqrt(x) (RSQRT-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.rsqrt(b.constant([4.0, 16.0])))).round(3)
    array([0.5 , 0.25], dtype=float32)
    """
    return _function(transcendental.Rsqrt, operand, result_accuracy)


def cbrt(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """The real cube root (CBRT-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.cbrt(b.constant([-8.0, 27.0])))).round(3)
    array([-2.,  3.], dtype=float32)
    """
    return _function(transcendental.Cbrt, operand, result_accuracy)


def sin(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """sin(x) (BEY-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.sin(b.constant([0.0, 1.0])))).round(3)
    array([0.   , 0.841], dtype=float32)
    """
    return _function(transcendental.Sine, operand, result_accuracy)


def cos(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """cos(x) (COS-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.cos(b.constant([0.0, 1.0])))).round(3)
    array([1.  , 0.54], dtype=float32)
    """
    return _function(transcendental.Cosine, operand, result_accuracy)


def tan(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """tan(x) (BEY-2, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.tan(b.constant([0.0, 1.0])))).round(3)
    array([0.   , 1.557], dtype=float32)
    """
    return _function(transcendental.Tan, operand, result_accuracy)


def tanh(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """The hyperbolic tangent (TANH-1, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.tanh(b.constant([0.0, 1.0])))).round(3)
    array([0.   , 0.762], dtype=float32)
    """
    return _function(transcendental.Tanh, operand, result_accuracy)


def erf(operand: XlaOp, result_accuracy: Accuracy = None) -> XlaOp:
    """The error function (BEY-3, UN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.erf(b.constant([0.0, 1.0])))).round(3)
    array([0.   , 0.843], dtype=float32)
    """
    return _function(transcendental.Erf, operand, result_accuracy)


def _function(op: type[Op], operand: XlaOp, result_accuracy: Accuracy) -> XlaOp:
    if isinstance(result_accuracy, XlaOp):
        from hlokit.builder import advice

        instead = f"hk.{advice.function_of(op())}(x)"
        error = ShapeError("HINST-5", "operands", 2, 1, instead)
        raise rejected(error, op.opcode, first_handle(operand), result_accuracy)
    return emit(op(result_accuracy), operand)


# -- two operands


def add(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """x + y; logical or of pred (BIN-6, BIN-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.add(b.constant([[1.0, 2.0], [3.0, 4.0]]), b.constant([10.0, 20.0]), [1])))
    array([[11., 22.],
           [13., 24.]], dtype=float32)
    """
    return _binary(elementwise.Add(), lhs, rhs, broadcast_dimensions)


def sub(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """x - y (BIN-4, BIN-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.sub(b.constant([5, 6]), b.constant([1, 2]))))
    array([4, 4], dtype=int32)
    """
    return _binary(elementwise.Subtract(), lhs, rhs, broadcast_dimensions)


def mul(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """x * y; logical and of pred (BIN-6, BIN-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.mul(b.constant([1, 2, 3]), 10)))
    array([10, 20, 30], dtype=int32)
    """
    return _binary(elementwise.Multiply(), lhs, rhs, broadcast_dimensions)


def div(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """x / y; for integers rounded towards zero (DIV-1 to DIV-6, BIN-4).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.div(b.constant([7, -7]), 2)))
    array([ 3, -3], dtype=int32)
    """
    return _binary(elementwise.Divide(), lhs, rhs, broadcast_dimensions)


def rem(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The remainder of a division rounded towards zero (REM-1 to REM-5, BIN-4).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.rem(b.constant([7, -7]), 3)))
    array([ 1, -1], dtype=int32)
    """
    return _binary(elementwise.Remainder(), lhs, rhs, broadcast_dimensions)


def max(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The larger of the two; NaN if either is NaN (MAX-1 to MAX-4).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.max(b.constant([1.0, float("nan")]), b.constant([3.0, 3.0]))))
    array([ 3., nan], dtype=float32)
    """
    return _binary(elementwise.Maximum(), lhs, rhs, broadcast_dimensions)


def min(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The smaller of the two; NaN if either is NaN (MAX-1 to MAX-4).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.min(b.constant([1.0, float("nan")]), b.constant([3.0, 3.0]))))
    array([ 1., nan], dtype=float32)
    """
    return _binary(elementwise.Minimum(), lhs, rhs, broadcast_dimensions)


def pow(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs to the power of rhs (BEY-8, BEY-9).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.pow(b.constant([2.0, 3.0]), b.constant([10.0, 2.0]))))
    array([1024.,    9.], dtype=float32)
    """
    return _binary(elementwise.Power(), lhs, rhs, broadcast_dimensions)


def atan2(y: Any, x: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The angle of the point (x, y) (BEY-7).

    Parameters
    ----------
    y : XlaOp, number or array
        The second coordinates, floating or complex.
    x : XlaOp, number or array
        The first coordinates, of the element type of `y`; the shapes broadcast together as those of `add`.

    Returns
    -------
    XlaOp
        An array of the operands' element type, and of the shape that they broadcast to.

    Raises
    ------
    ShapeError
        The operands are not arrays (BIN-3) of one element type (BIN-2), floating or complex (BEY-7), or do not
        broadcast together (BCAST-3, BCAST-13).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.atan2(b.constant([1.0, -1.0]), b.constant([1.0, -1.0])))).round(3)
    array([ 0.785, -2.356], dtype=float32)
    """
    return _binary(elementwise.Atan2(), y, x, broadcast_dimensions)


def xor(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Exclusive or of pred, bitwise of integers (BEY-12).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.xor(b.constant([12, 10]), b.constant([10, 10]))))
    array([6, 0], dtype=int32)
    """
    return _binary(elementwise.Xor(), lhs, rhs, broadcast_dimensions)


def shift_left(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs shifted up by rhs bits (BEY-13).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.shift_left(b.constant([1, 3]), 4)))
    array([16, 48], dtype=int32)
    """
    return _binary(elementwise.ShiftLeft(), lhs, rhs, broadcast_dimensions)


def shift_right_arithmetic(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs shifted down by rhs bits, the sign repeated (BEY-13).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.shift_right_arithmetic(b.constant([-16, 16]), 2)))
    array([-4,  4], dtype=int32)
    """
    return _binary(elementwise.ShiftRightArithmetic(), lhs, rhs, broadcast_dimensions)


def shift_right_logical(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs shifted down by rhs bits, zeros from above (BEY-13).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.shift_right_logical(b.constant([-16, 16]), 2)))
    array([1073741820,          4], dtype=int32)
    """
    return _binary(elementwise.ShiftRightLogical(), lhs, rhs, broadcast_dimensions)


def complex(real: Any, imag: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The complex number real + i imag of f32 or f64 parts (BEY-10).

    Parameters
    ----------
    real : XlaOp, number or array
        The real parts, f32 or f64.
    imag : XlaOp, number or array
        The imaginary parts, of the element type of `real`; the shapes broadcast together as those of `add`.

    Returns
    -------
    XlaOp
        A c64 or c128 array of the shape that the operands broadcast to.

    Raises
    ------
    ShapeError
        The operands are not arrays (BIN-3) of one element type (BIN-2), f32 or f64 (BEY-10), or do not broadcast
        together (BCAST-3, BCAST-5 to BCAST-8, BCAST-13, BCAST-16).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.complex(b.constant([1.0, 2.0]), b.constant([0.0, -1.0]))))
    array([1.+0.j, 2.-1.j], dtype=complex64)
    """
    return _binary(elementwise.Complex(), real, imag, broadcast_dimensions)


def mulhi(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The upper half of the integer product at twice the width (BEY-15).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.mulhi(b.constant([2**30, -1]), b.constant([8, 8]))))
    array([ 2, -1], dtype=int32)
    """
    return _binary(elementwise.Mulhi(), lhs, rhs, broadcast_dimensions)


def and_(lhs: Any, rhs: Any, *more: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Logical and of pred, bitwise and of integers (BIN-5, BIN-8); more operands are folded from the right (BEY-12).

    The third argument may be `broadcast_dimensions` instead of an operand.

    Parameters
    ----------
    more : XlaOp, number or array
        Further operands, of the same element type.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.and_(b.constant([12, 10]), b.constant([10, 10]))))
    array([ 8, 10], dtype=int32)
    """
    return _fold_right(elementwise.And(), lhs, rhs, more, broadcast_dimensions)


def or_(lhs: Any, rhs: Any, *more: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Logical or of pred, bitwise or of integers (BIN-5, BIN-8); more operands are folded from the right (BEY-12).

    The third argument may be `broadcast_dimensions` instead of an operand.

    Parameters
    ----------
    more : XlaOp, number or array
        Further operands, of the same element type.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.or_(b.constant([12, 10]), b.constant([10, 10]))))
    array([14, 10], dtype=int32)
    """
    return _fold_right(elementwise.Or(), lhs, rhs, more, broadcast_dimensions)


def _fold_right(op: Op, lhs: Any, rhs: Any, more: tuple[Any, ...], broadcast_dimensions: Sequence[int]) -> XlaOp:
    if len(more) == 1 and not isinstance(more[0], XlaOp):
        more, broadcast_dimensions = (), more[0]
    if more:
        rhs = _fold_right(op, rhs, more[0], more[1:], ())
    return _binary(op, lhs, rhs, broadcast_dimensions)


def _binary(op: Op, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int], types_rule: str = "BIN-2") -> XlaOp:
    first, second = handles(lhs, rhs)
    if first.shape is not second.shape or np.size(broadcast_dimensions):
        try:
            first, second = broadcast_operands(op.opcode, first, second, broadcast_dimensions, types_rule)
        except ShapeError as error:
            from hlokit.builder import advice

            written = [isinstance(operand, XlaOp) for operand in (lhs, rhs)]
            error.instead = advice.of_two(op, (first.shape, second.shape), written, broadcast_dimensions)
            raise
    return emit(op, first, second)


# -- comparisons


def compare(
    lhs: Any,
    rhs: Any,
    broadcast_dimensions: Sequence[int] | str = (),
    direction: str = "",
    compare_type: str | None = None,
) -> XlaOp:
    """lhs `direction` rhs, as pred: EQ, NE, GE, GT, LE or LT (CMP-1 to CMP-11, BEY-18).

    `compare_type` is FLOAT, SIGNED or UNSIGNED according to the element type (the default, CMP-6), or TOTALORDER for
    floats. `broadcast_dimensions` may be omitted: compare(lhs, rhs, direction).

    Parameters
    ----------
    direction : str, optional
        "EQ", "NE", "GE", "GT", "LE" or "LT"; it may take the place of `broadcast_dimensions`.
    compare_type : str, optional
        The order of the elements: "FLOAT", "TOTALORDER", "SIGNED" or "UNSIGNED"; by default that of their type.

    Returns
    -------
    XlaOp
        A pred array of the shape that the operands broadcast to.

    Raises
    ------
    ShapeError
        The operands are not arrays (BIN-3) of one element type (CMP-2), do not broadcast together (BCAST-3, BCAST-13),
        or the direction or the kind of comparison is not valid for them (CMP-8, CMP-11, HINST-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.compare(b.constant([1, 2, 3]), 2, "GE")))
    array([False,  True,  True])
    """
    if isinstance(broadcast_dimensions, str):
        broadcast_dimensions, direction, compare_type = (), broadcast_dimensions, direction or compare_type
    shape = first_handle(lhs, rhs).shape
    if shape.is_array and compare_type == comparison.default_comparison_type(shape.dtype):
        compare_type = None
    return _binary(comparison.Compare(direction, compare_type, None), lhs, rhs, broadcast_dimensions, "CMP-2")


def eq(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs == rhs, as pred (CMP-3, CMP-10).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.eq(b.constant([1.0, float("nan")]), b.constant([1.0, float("nan")]))))
    array([ True, False])
    """
    return compare(lhs, rhs, broadcast_dimensions, "EQ")


def ne(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs != rhs, as pred (CMP-3, CMP-10).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.ne(b.constant([1.0, float("nan")]), b.constant([1.0, float("nan")]))))
    array([False,  True])
    """
    return compare(lhs, rhs, broadcast_dimensions, "NE")


def ge(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs >= rhs, as pred (CMP-3, CMP-11).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.ge(b.constant([1, 2, 3]), 2)))
    array([False,  True,  True])
    """
    return compare(lhs, rhs, broadcast_dimensions, "GE")


def gt(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs > rhs, as pred (CMP-3, CMP-11).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.gt(b.constant([1, 2, 3]), 2)))
    array([False, False,  True])
    """
    return compare(lhs, rhs, broadcast_dimensions, "GT")


def le(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs <= rhs, as pred (CMP-3, CMP-11).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.le(b.constant([1, 2, 3]), 2)))
    array([ True,  True, False])
    """
    return compare(lhs, rhs, broadcast_dimensions, "LE")


def lt(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs < rhs, as pred (CMP-3, CMP-11).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.lt(b.constant([1, 2, 3]), 2)))
    array([ True, False, False])
    """
    return compare(lhs, rhs, broadcast_dimensions, "LT")


def eq_total_order(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs == rhs in the total order of bits; for other types than floats, the plain comparison (CMP-4, CMP-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.eq_total_order(b.constant([0.0, float("nan")]), b.constant([-0.0, float("nan")]))
    >>> hk.evaluate(b.build(result))
    array([False,  True])
    """
    return _compare_total_order(lhs, rhs, broadcast_dimensions, "EQ")


def ne_total_order(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs != rhs in the total order of bits; for other types than floats, the plain comparison (CMP-4, CMP-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.ne_total_order(b.constant([0.0, float("nan")]), b.constant([-0.0, float("nan")]))
    >>> hk.evaluate(b.build(result))
    array([ True, False])
    """
    return _compare_total_order(lhs, rhs, broadcast_dimensions, "NE")


def ge_total_order(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs >= rhs in the total order of bits; for other types than floats, the plain comparison (CMP-4, CMP-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.ge_total_order(b.constant([-0.0, 0.0]), b.constant([0.0, -0.0]))))
    array([False,  True])
    """
    return _compare_total_order(lhs, rhs, broadcast_dimensions, "GE")


def gt_total_order(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs > rhs in the total order of bits; for other types than floats, the plain comparison (CMP-4, CMP-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.gt_total_order(b.constant([0.0, float("nan")]), b.constant([-0.0, float("inf")]))
    >>> hk.evaluate(b.build(result))
    array([ True,  True])
    """
    return _compare_total_order(lhs, rhs, broadcast_dimensions, "GT")


def le_total_order(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs <= rhs in the total order of bits; for other types than floats, the plain comparison (CMP-4, CMP-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.le_total_order(b.constant([-0.0, 0.0]), b.constant([0.0, -0.0]))))
    array([ True, False])
    """
    return _compare_total_order(lhs, rhs, broadcast_dimensions, "LE")


def lt_total_order(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """lhs < rhs in the total order of bits; for other types than floats, the plain comparison (CMP-4, CMP-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.lt_total_order(b.constant([-0.0, 0.0]), b.constant([0.0, -0.0]))))
    array([ True, False])
    """
    return _compare_total_order(lhs, rhs, broadcast_dimensions, "LT")


def _compare_total_order(lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int], direction: str) -> XlaOp:
    element = first_handle(lhs, rhs).dtype
    kind = "TOTALORDER" if element.is_floating or element.is_complex else None
    return compare(lhs, rhs, broadcast_dimensions, direction, kind)


# -- three operands


def select(pred: Any, on_true: Any, on_false: Any) -> XlaOp:
    """on_true where pred holds, else on_false (SEL-1 to SEL-9); scalars are expanded to the others' shape (SEL-7).

    With a scalar pred on_true and on_false may be tuples of one shape: the result is one of them (SEL-8). A Python
    number in place of one of those two takes the other's element type.

    Parameters
    ----------
    pred : XlaOp, number or array
        Whether the result has the element of `on_true`: pred, of the others' shape or a scalar.
    on_true : XlaOp, number or array
        The elements where `pred` holds; for a scalar `pred` a tuple may be given too.
    on_false : XlaOp, number or array
        The elements elsewhere, of the shape and element type of `on_true`; either may be a scalar.

    Returns
    -------
    XlaOp
        An array of the shape and element type of `on_true` and `on_false`.

    Raises
    ------
    ShapeError
        `pred` is not pred (SEL-3), or the shapes or element types differ (SEL-4, SEL-5, SEL-9).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.select(b.constant([True, False]), b.constant([1, 2]), 0)))
    array([1, 0], dtype=int32)
    """
    builder = first_handle(pred, on_true, on_false).builder
    pred, on_true = builder.handle(pred), builder.handle(on_true, on_false if isinstance(on_false, XlaOp) else None)
    on_false = builder.handle(on_false, on_true)
    if on_true.shape.is_tuple or on_false.shape.is_tuple:
        return _select_tuple(pred, on_true, on_false)
    return _of_three(elementwise.Select(), pred, on_true, on_false)


def _select_tuple(pred: XlaOp, on_true: XlaOp, on_false: XlaOp) -> XlaOp:
    from hlokit.builder.control import conditional

    if on_true.shape.static is not on_false.shape.static or not pred.shape.is_scalar:
        error = ShapeError(
            "SEL-9", "operands", (pred.shape, on_true.shape, on_false.shape), "pred[] and tuples of one shape"
        )
        raise rejected(error, "select", pred, on_true, on_false)
    identity: Callable[[XlaOp], XlaOp] = lambda value: value  # noqa: E731
    return conditional(pred, on_true, identity, on_false, identity)


def clamp(min: Any, operand: Any, max: Any) -> XlaOp:
    """The operand limited to the range from min to max (CLAMP-1 to CLAMP-10); scalars are expanded (CLAMP-5).

    Parameters
    ----------
    min : XlaOp, number or array
        The lower bounds: a scalar, or an array of the operand's shape.
    operand : XlaOp, number or array
        The values, an array.
    max : XlaOp, number or array
        The upper bounds: a scalar, or an array of the operand's shape.

    Returns
    -------
    XlaOp
        An array of the shape and element type of `operand`.

    Raises
    ------
    ShapeError
        An operand is not an array (UN-3), the element types differ or are complex (CLAMP-3, CLAMP-10), or a bound is
        neither a scalar nor of the operand's shape (CLAMP-4).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.clamp(0.0, b.constant([-1.0, 0.5, 2.0]), 1.0)))
    array([0. , 0.5, 1. ], dtype=float32)
    """
    return _of_three(elementwise.Clamp(), *handles(min, operand, max))


def _of_three(op: Op, *operands: XlaOp) -> XlaOp:
    """`op` of these operands, scalars expanded."""
    try:
        return emit(op, *_scalars_expanded(*operands))
    except ShapeError as error:
        from hlokit.builder import advice

        error.instead = advice.of_three(op.opcode, [o.shape for o in operands])
        raise


def _scalars_expanded(*operands: XlaOp) -> tuple[XlaOp, ...]:
    """Scalars brought to the sizes of the first operand that is none; what does not fit the op refuses."""
    sizes = next((o.shape.dimensions for o in operands if o.shape.dimensions), ())
    if not sizes or all(o.shape.dimensions for o in operands):
        return operands
    return tuple(scalar_to(o, sizes) if o.shape.is_scalar else o for o in operands)


# -- conversions


def convert_element_type(operand: XlaOp, new_element_type: DType | Any) -> XlaOp:
    """The values converted to another element type, by the rules CONV-TYPE-2 to CONV-TYPE-13.

    Parameters
    ----------
    operand : XlaOp
        An array of any shape.
    new_element_type : DType, or what `hk.dtype` takes
        The element type of the result.

    Returns
    -------
    XlaOp
        An array of the operand's shape.

    Raises
    ------
    ShapeError
        `operand` is not an array, or the type is not one of arrays (CONV-TYPE-2).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.convert_element_type(b.constant([1.75, -1.75]), hk.s32)))
    array([ 1, -1], dtype=int32)
    """
    target = _array_type(operand, new_element_type, "convert", "CONV-TYPE-2")
    if operand.dtype.is_complex and not target.is_complex:
        operand = real(operand)
    return emit(conversion.Convert(operand.shape.logical.with_dtype(target)), operand)


def bitcast_convert_type(operand: XlaOp, new_element_type: DType | Any) -> XlaOp:
    """The bits as another element type; the last dimension holds the parts of a wider one (BITCAST-1 to BITCAST-10).

    Parameters
    ----------
    operand : XlaOp
        An array. Where the new type is wider by k, its last dimension has size k.
    new_element_type : DType, or what `hk.dtype` takes
        The element type of the result.

    Returns
    -------
    XlaOp
        An array of the operand's dimensions; where the new type is narrower by k, with a last dimension of size k,
        where it is wider, without the last one.

    Raises
    ------
    ShapeError
        The operand is not an array, or one width or size is not a multiple of the other (BITCAST-4 to BITCAST-7,
        BITCAST-10).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.bitcast_convert_type(b.constant([1.0, -2.0]), hk.u32)))
    array([1065353216, 3221225472], dtype=uint32)
    """
    target = _array_type(operand, new_element_type, "bitcast-convert", "BITCAST-6")
    try:
        result = infer_shape(conversion.BitcastConvert(target[()]), [operand.shape])
    except ShapeError as error:
        raise rejected(error, "bitcast-convert", operand) from None
    return emit(conversion.BitcastConvert(result.logical), operand)


def reduce_precision(operand: XlaOp, exponent_bits: int, mantissa_bits: int) -> XlaOp:
    """The values rounded to a floating type with these widths (RPREC-1 to RPREC-8).

    Parameters
    ----------
    operand : XlaOp
        A real floating array.
    exponent_bits : int
        Bits of the exponent, 1 or more.
    mantissa_bits : int
        Bits of the mantissa without the leading one, 0 or more.

    Raises
    ------
    ShapeError
        `operand` is not an array (UN-3) of a floating type (RPREC-2), or a width is out of range (RPREC-3, RPREC-4).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.reduce_precision(b.constant([1.1, 2.0]), 5, 2)))
    array([1., 2.], dtype=float32)
    """
    return emit(conversion.ReducePrecision(exponent_bits, mantissa_bits), operand)


def stochastic_convert_type(operand: XlaOp, random: XlaOp, new_element_type: DType | Any) -> XlaOp:
    """The values in a narrower type, rounded away from zero with the lost fraction as probability (BEY-16).

    `random`: unsigned integers of the operand's dimensions and bit width.

    Parameters
    ----------
    operand : XlaOp
        A real floating array.
    random : XlaOp
        Unsigned integers of the operand's shape and width: the random bits.
    new_element_type : DType, or what `hk.dtype` takes
        The element type of the result.

    Returns
    -------
    XlaOp
        An array of the operand's shape.

    Raises
    ------
    ShapeError
        The operands and the new type do not match (BEY-16).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.stochastic_convert_type(b.constant([1.0]), b.constant([7], hk.u32), hk.bf16)))
    array([1], dtype=bfloat16)
    """
    target = _array_type(operand, new_element_type, "stochastic-convert", "BEY-16")
    return emit(conversion.StochasticConvert(operand.shape.logical.with_dtype(target)), operand, random)


def _array_type(operand: XlaOp, new_element_type: DType | Any, opcode: str, label: str) -> DType:
    """The new element type. Refuses, before a shape is made of it, what is not an array or not a type of arrays."""
    target = dtype(new_element_type)
    if not target.is_array or not first_handle(operand).shape.is_array:
        error = ShapeError(
            label, "operand and new element type", (operand.shape, target), "an array and an array's type"
        )
        raise rejected(error, opcode, operand)
    return target
