"""Polynomials of a handle, and small pieces that the special functions share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlokit.builder.constants import full_like
from hlokit.builder.core import XlaOp
from hlokit.builder.elementwise import abs, bitcast_convert_type, log, neg, select
from hlokit.builder.tables import Table
from hlokit.types.dtype import signed_of

__all__ = ["evaluate_chebyshev_polynomial", "evaluate_polynomial"]

LOG_2 = 0.6931471805599453
HALF_LOG_2_PI = 0.9189385332046727
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
"""B2, B4, B6, ..."""
_STIRLING = tuple(b / ((2 * k + 1) * (2 * k + 2)) for k, b in enumerate(BERNOULLI[:8]))


def evaluate_polynomial(x: XlaOp, coefficients: Sequence[float] | Table) -> XlaOp:
    """coefficients[0] x^(n-1) + ... + coefficients[n-1], by Horner's rule; a Table gives those of x's type (BEY-80).

    Parameters
    ----------
    x : XlaOp
        The arguments, real.
    coefficients : sequence of float
        The coefficients, of the highest degree first.

    Returns
    -------
    XlaOp
        An array of the shape and element type of `x`.

    Raises
    ------
    ShapeError
        `x` is not an array (BIN-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.evaluate_polynomial(b.constant([1.0, 2.0]), [1.0, 0.0, 3.0])))
    array([4., 7.], dtype=float32)
    """
    if isinstance(coefficients, Table):
        coefficients = coefficients.f64 if x.dtype.bits == 64 else coefficients.f32
    result = full_like(x, coefficients[0]) if len(coefficients) else full_like(x, 0)
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def evaluate_chebyshev_polynomial(x: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """The sum of coefficients[k] T_(n-1-k)(x / 2) where the last term counts half, by Clenshaw's rule (BEY-80).

    Parameters
    ----------
    x : XlaOp
        The arguments, real.
    coefficients : sequence of float
        The coefficients, of the highest degree first.

    Returns
    -------
    XlaOp
        An array of the shape and element type of `x`.

    Raises
    ------
    ShapeError
        `x` is not an array (BIN-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.evaluate_chebyshev_polynomial(b.constant([0.0, 2.0]), [1.0, 3.0, 4.0])))
    array([1., 6.], dtype=float32)
    """
    b0 = b1 = b2 = full_like(x, 0)
    for coefficient in coefficients:
        b0, b1, b2 = x * b0 - b1 + coefficient, b0, b1
    return (b0 - b2) * 0.5


def inverse_powers(x: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """coefficients[0] / x + coefficients[1] / x^3 + ..."""
    inverse = 1.0 / x
    return evaluate_polynomial(inverse * inverse, coefficients[::-1]) * inverse


def stirling_correction(x: XlaOp) -> XlaOp:
    """lgamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2 for x >= 10."""
    return inverse_powers(x, _STIRLING)


def excess_over_logarithm(m: XlaOp, successor: XlaOp) -> XlaOp:
    """m - log(1 + m) without cancellation: with r = m / (2 + m), r m - 2 (r^3 / 3 + r^5 / 5 + ...).

    `successor` is 1 + m, which is not the rounded sum where m is near -1.
    """
    r = m / (2.0 + m)
    square = r * r
    odd = [1.0 / (2 * k + 3) for k in range(13)]
    near = r * (m - 2.0 * square * evaluate_polynomial(square, odd[::-1]))
    return select(abs(m) < 0.4, near, m - log(successor))


def sign_bit(x: XlaOp) -> XlaOp:
    """Whether the sign bit is set: true for -0 and for negative NaNs."""
    signed = signed_of(x.dtype.bits)
    assert signed is not None
    return bitcast_convert_type(x, signed) < 0


def copy_sign(magnitude: XlaOp, sign: XlaOp) -> XlaOp:
    """`magnitude`, which is not negative, with the sign of `sign`."""
    return select(sign_bit(sign), neg(magnitude), magnitude)


def epsilon_of(x: XlaOp) -> float:
    """The distance from 1 to the next number of x's type (f32 or f64)."""
    return float(np.finfo(x.dtype.numpy).eps)


def by_type(x: XlaOp, f32: float, f64: float) -> float:
    """The constant for x's type."""
    return f64 if x.dtype.bits == 64 else f32
