"""Functions made of other ops: XlaBuilder's client library of mathematics (xla/hlo/builder/lib/math.h, BEY-6, BEY-80).

Here are the predicates and the functions that look at bits; the others come from the modules imported below.
Types of less than 32 bits are computed in f32. The errors that tests/rules/test_math.py allows f32 and f64, in units in
the last place, given exp, log, sin, ... of 1 ULP:

    acos acosh asin asinh atan atanh cosh sinh                       3 (each part of a complex result: 5)
    erfc erf_inv bessel_i0e bessel_i1e                               4
    lgamma digamma, x > 0                                            4 (x < 0: 20 ULP of the terms that cancel)
    zeta polygamma                                                  16
    igamma igammac igamma_grad_a random_gamma_grad                  64 (shapes from 10 to 500: 200)
    regularized_incomplete_beta                                    300

Where XLA's own expansions give NaN for want of a limit (igamma of an infinite shape, zeta at infinity), these give the
limit; where theirs define a value (igammac outside its domain: 1), these agree.
"""

from __future__ import annotations

import numpy as np

from hlokit.builder.constants import full_like, has_infinity
from hlokit.builder.core import XlaOp, handles
from hlokit.builder.domain import reject
from hlokit.builder.elementwise import (
    abs,
    and_,
    bitcast_convert_type,
    conj,
    eq,
    gt,
    ne,
    not_,
    or_,
    round_nearest_even,
    select,
)
from hlokit.builder.error_functions import bessel_i0e, bessel_i1e, erf_inv, erfc
from hlokit.builder.gamma import digamma, lgamma, polygamma, zeta
from hlokit.builder.hyperbolic import acos, acosh, asin, asinh, atan, atanh, cosh, sinh
from hlokit.builder.incomplete import igamma, igamma_grad_a, igammac, random_gamma_grad, regularized_incomplete_beta
from hlokit.builder.polynomials import evaluate_chebyshev_polynomial, evaluate_polynomial
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import unsigned_of

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bessel_i0e",
    "bessel_i1e",
    "cosh",
    "digamma",
    "erf_inv",
    "erfc",
    "evaluate_chebyshev_polynomial",
    "evaluate_polynomial",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "is_inf",
    "is_nan",
    "is_neg_inf",
    "is_neg_zero",
    "is_pos_inf",
    "lgamma",
    "maybe_conjugate",
    "next_after",
    "polygamma",
    "random_gamma_grad",
    "reciprocal",
    "regularized_incomplete_beta",
    "round_to_even",
    "sinh",
    "square",
    "zeta",
]


def square(operand: XlaOp) -> XlaOp:
    """x * x, of any type that can be multiplied (BEY-80, BIN rules).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.square(b.constant([-3, 4]))))
    array([ 9, 16], dtype=int32)
    """
    return operand * operand


def reciprocal(operand: XlaOp) -> XlaOp:
    """1 / x. Floating or complex (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.reciprocal(b.constant([2.0, 4.0]))))
    array([0.5 , 0.25], dtype=float32)
    """
    if not (operand.dtype.is_floating or operand.dtype.is_complex):
        raise reject("BEY-80", "reciprocal", "operand", "floating or complex", operand)
    return 1.0 / operand


def maybe_conjugate(operand: XlaOp, conjugate: bool) -> XlaOp:
    """The complex conjugate if `conjugate` and the operand is complex, else the operand (BEY-80).

    Parameters
    ----------
    operand : XlaOp
        An array of any shape.
    conjugate : bool
        Whether to conjugate.

    Raises
    ------
    BuildError
        `operand` belongs to another builder, or its builder has been built (BUILDER-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.maybe_conjugate(b.constant([1 + 2j]), True)))
    array([1.-2.j], dtype=complex64)
    """
    return conj(operand) if conjugate and operand.dtype.is_complex else operand


def round_to_even(operand: XlaOp) -> XlaOp:
    """The nearest integral value, ties to even: round_nearest_even under its older name (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.round_to_even(b.constant([0.5, 1.5, -2.5]))))
    array([ 0.,  2., -2.], dtype=float32)
    """
    return round_nearest_even(operand)


def is_nan(operand: XlaOp) -> XlaOp:
    """Whether x is NaN, as pred. Real floating (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.is_nan(b.constant([1.0, float("-inf"), float("nan")]))))
    array([False, False,  True])
    """
    _check_real("is_nan", operand)
    return ne(operand, operand)


def is_inf(operand: XlaOp) -> XlaOp:
    """Whether x is +inf or -inf, as pred. Real floating (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.is_inf(b.constant([1.0, float("-inf"), float("nan")]))))
    array([False,  True, False])
    """
    _check_real("is_inf", operand)
    return _equals(abs(operand), np.inf)


def is_pos_inf(operand: XlaOp) -> XlaOp:
    """Whether x is +inf, as pred. Real floating (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.is_pos_inf(b.constant([float("inf"), float("-inf")]))))
    array([ True, False])
    """
    _check_real("is_pos_inf", operand)
    return _equals(operand, np.inf)


def is_neg_inf(operand: XlaOp) -> XlaOp:
    """Whether x is -inf, as pred. Real floating (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.is_neg_inf(b.constant([float("inf"), float("-inf")]))))
    array([False,  True])
    """
    _check_real("is_neg_inf", operand)
    return _equals(operand, -np.inf)


def is_neg_zero(operand: XlaOp) -> XlaOp:
    """Whether x is -0, as pred; nowhere in types without it. Real floating (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.is_neg_zero(b.constant([0.0, -0.0]))))
    array([False,  True])
    """
    _check_real("is_neg_zero", operand)
    if not _has_negative_zero(operand.dtype):
        return _nowhere(operand)
    bits = bitcast_convert_type(operand, _unsigned(operand))
    return eq(bits, full_like(bits, 1 << (operand.dtype.bits - 1)))


def next_after(from_: XlaOp, to: XlaOp) -> XlaOp:
    """The number nearest to `from_` in the direction of `to`; `to` where they are equal, NaN where either is NaN.

    Floating with a sign and of 8 bits or more, of one type and shape (BEY-80).

    Parameters
    ----------
    from_ : XlaOp
        The numbers to start from, floating.
    to : XlaOp
        The numbers to go towards, of the element type and shape of `from_`.

    Returns
    -------
    XlaOp
        An array of that shape and element type.

    Raises
    ------
    ShapeError
        The operands are not of one shape and one signed floating type of 8 bits or more (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.next_after(b.constant([1.0, 1.0]), b.constant([2.0, 1.0])) - 1.0))
    array([1.1920929e-07, 0.0000000e+00], dtype=float32)
    """
    from_, to = handles(from_, to)
    dtype = from_.dtype
    fits = dtype.is_floating and dtype.bits >= 8 and dtype is not dtypes.f8e8m0fnu
    if from_.shape.static is not to.shape.static or not fits:
        expected = "floating with a sign and of 8 bits or more, of one type and shape"
        raise reject("BEY-80", "next_after", "operands", expected, from_, to)
    unsigned = _unsigned(from_)
    sign_mask = 1 << (from_.dtype.bits - 1)
    start, end = bitcast_convert_type(from_, unsigned), bitcast_convert_type(to, unsigned)
    start_size, end_size = and_(start, full_like(start, sign_mask - 1)), and_(end, full_like(end, sign_mask - 1))
    start_sign, end_sign = and_(start, full_like(start, sign_mask)), and_(end, full_like(end, sign_mask))
    smaller = or_(gt(start_size, end_size), ne(start_sign, end_sign))
    stepped = select(smaller, start - 1, start + 1)
    stepped = select(eq(start_size, full_like(start, 0)), or_(end_sign, full_like(start, 1)), stepped)
    if not _has_negative_zero(dtype):  # its bits are NaN's
        stepped = select(eq(stepped, full_like(start, sign_mask)), full_like(start, 0), stepped)
    result = bitcast_convert_type(select(eq(from_, to), end, stepped), from_.dtype)
    return select(or_(is_nan(from_), is_nan(to)), full_like(from_, np.nan), result)


def _check_real(function: str, operand: XlaOp) -> None:
    if not operand.dtype.is_floating:
        raise reject("BEY-80", function, "operand", "real floating", operand)


def _equals(operand: XlaOp, infinity: float) -> XlaOp:
    if not has_infinity(operand.dtype):
        return _nowhere(operand)
    return eq(operand, full_like(operand, infinity))


def _nowhere(operand: XlaOp) -> XlaOp:
    everywhere = or_(eq(operand, operand), ne(operand, operand))
    return not_(everywhere)


def _has_negative_zero(dtype: dtypes.DType) -> bool:
    return bool(np.signbit(np.array(-0.0).astype(dtype.numpy).astype(np.float64))) and dtype is not dtypes.f8e8m0fnu


def _unsigned(operand: XlaOp) -> dtypes.DType:
    unsigned = unsigned_of(operand.dtype.bits)
    assert unsigned is not None
    return unsigned
