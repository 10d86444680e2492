"""lgamma, digamma, zeta and polygamma of real operands (BEY-80).

The positive axis is covered by a polynomial on one unit interval, by the recurrences that lead there from (0, 10),
and by Stirling's series from 10 up. Negative numbers are reflected. Largest errors are in tests/rules/test_math.py.
"""

from __future__ import annotations

import math

import numpy as np

from hlokit.builder.constants import full_like, ones_like, zeros_like
from hlokit.builder.core import XlaOp
from hlokit.builder.domain import real_function
from hlokit.builder.elementwise import (
    abs,
    and_,
    exp,
    floor,
    log,
    min,
    ne,
    neg,
    or_,
    pow,
    rem,
    round_nearest_even,
    select,
    sin,
    tan,
)
from hlokit.builder.loops import any, while_loop
from hlokit.builder.polynomials import (
    BERNOULLI,
    HALF_LOG_2_PI,
    evaluate_polynomial,
    inverse_powers,
    stirling_correction,
)
from hlokit.builder.tables import DIGAMMA, DIGAMMA_ROOT, LOG_GAMMA

__all__ = ["digamma", "lgamma", "polygamma", "zeta"]

_LARGE = 10.0
"""From here up Stirling's series is exact to the last bit of f64."""

_DIGAMMA_SERIES = tuple(b / (2 * k + 2) for k, b in enumerate(BERNOULLI[:8]))
_ZETA_RATIOS = tuple(b / math.factorial(2 * k + 2) for k, b in enumerate(BERNOULLI))
_ZETA_TERMS = 10
_ZETA_LOWEST = -1000.0


@real_function
def lgamma(operand: XlaOp) -> XlaOp:
    """log |gamma(x)|; +inf at 0, -1, -2, ... and at +-inf. Real floating (BEY-80).

    Parameters
    ----------
    operand : XlaOp
        The argument x, real floating.

    Returns
    -------
    XlaOp
        An array of the operand's shape and element type.

    Raises
    ------
    ShapeError
        `operand` is not an array of a real floating type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.lgamma(b.constant([1.0, 4.0, 0.0])))).round(3)
    array([0.   , 1.792,   inf], dtype=float32)
    """
    negative = operand < 0.0
    value = _log_gamma_of_positive(select(negative, 1.0 - operand, operand))
    distance = abs(operand - round_nearest_even(operand))
    reflected = math.log(math.pi) - log(sin(math.pi * distance)) - value
    pole = and_(negative, distance == 0.0)  # as all of the most negative numbers, where the two terms are infinite
    infinite = or_(abs(operand) == np.inf, pole)
    return select(infinite, full_like(operand, np.inf), select(negative, reflected, value))


@real_function
def digamma(operand: XlaOp) -> XlaOp:
    """The derivative of log(gamma(x)); NaN at 0, -1, -2, ... and at -inf. Real floating (BEY-80).

    Parameters
    ----------
    operand : XlaOp
        The argument x, real floating.

    Returns
    -------
    XlaOp
        An array of the operand's shape and element type.

    Raises
    ------
    ShapeError
        `operand` is not an array of a real floating type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.digamma(b.constant([1.0, 2.0, 0.0])))).round(3)
    array([-0.577,  0.423,    nan], dtype=float32)
    """
    reflects = operand <= 0.0
    value = _digamma_of_positive(select(reflects, 1.0 - operand, operand))
    distance = operand - round_nearest_even(operand)
    reflected = value - math.pi / tan(math.pi * distance)
    reflected = select(distance == 0.0, full_like(operand, np.nan), reflected)
    return select(reflects, reflected, value)


@real_function
def zeta(x: XlaOp, q: XlaOp) -> XlaOp:
    """Hurwitz's zeta function, the sum of 1 / (q + k)^x over k >= 0. Real floating, one type and shape (BEY-80).

    Infinite for x = 1, NaN for x < 1. At the poles q = 0, -1, -2, ... infinite if x is an even integer, else NaN.
    Elsewhere q < 0 needs an integer x, else NaN; q < -1000 is not summed: NaN.

    Parameters
    ----------
    x : XlaOp
        The exponents, real floating.
    q : XlaOp
        The offsets, of the element type and shape of `x`.

    Returns
    -------
    XlaOp
        An array of that shape and element type.

    Raises
    ------
    ShapeError
        The operands are not real floating arrays of one type and shape (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.zeta(b.constant([2.0]), b.constant([1.0])))).round(3)
    array([1.645], dtype=float32)
    """
    total, end = _leading_terms(x, q)
    value = total + _euler_maclaurin_tail(x, end)
    nan, infinity = full_like(x, np.nan), full_like(x, np.inf)
    pole = and_(q <= 0.0, q == floor(q))
    value = select(and_(q == np.inf, x > 1.0), zeros_like(q), value)
    value = select(q < _ZETA_LOWEST, nan, value)
    value = select(x < 1.0, nan, select(x == 1.0, infinity, value))
    return select(pole, select(rem(x, full_like(x, 2.0)) == 0.0, infinity, nan), value)


@real_function
def polygamma(n: XlaOp, x: XlaOp) -> XlaOp:
    """The n-th derivative of digamma at x; NaN unless n is 0, 1, 2, ... Real floating, one type and shape (BEY-80).

    Parameters
    ----------
    n : XlaOp
        The orders of the derivatives, real floating.
    x : XlaOp
        The arguments, of the element type and shape of `n`.

    Returns
    -------
    XlaOp
        An array of that shape and element type.

    Raises
    ------
    ShapeError
        The operands are not real floating arrays of one type and shape (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.polygamma(b.constant([1.0]), b.constant([1.0])))).round(3)
    array([1.645], dtype=float32)
    """
    magnitude = exp(lgamma(n + 1.0)) * zeta(n + 1.0, x)
    value = select(rem(n, full_like(n, 2.0)) == 0.0, neg(magnitude), magnitude)
    value = select(n == 0.0, digamma(x), value)
    return select(or_(n < 0.0, ne(n, floor(n))), full_like(n, np.nan), value)


def _log_gamma_of_positive(x: XlaOp) -> XlaOp:
    """gamma(2 + s) times or divided by the factors that lead from 2 + s, s in [-1/2, 1/2], to x."""
    tiny, small = x < 0.5, x < 1.5
    s = select(tiny, x, select(small, x - 1.0, x - 2.0))
    factors = select(tiny, x * (x + 1.0), select(small, x, ones_like(x)))
    for _ in range(8):
        above = s > 0.5
        s = select(above, s - 1.0, s)
        factors = select(above, factors * (s + 2.0), factors)
    logarithm = log(factors)
    near = s * evaluate_polynomial(2.0 * s, LOG_GAMMA) + select(small, neg(logarithm), logarithm)
    far = (x - 0.5) * (log(x) - 1.0) + ((HALF_LOG_2_PI - 0.5) + stirling_correction(x))
    return select(x < _LARGE, near, far)


def _digamma_of_positive(x: XlaOp) -> XlaOp:
    """The polynomial on [1, 2] plus the reciprocals that lead from there to x."""
    small = x < 1.0
    y = select(small, x + 1.0, x)
    steps = select(small, -1.0 / x, zeros_like(x))
    for _ in range(8):
        above = y > 2.0
        y = select(above, y - 1.0, y)
        steps = select(above, steps + 1.0 / y, steps)
    root, rest = DIGAMMA_ROOT
    near = ((y - root) - rest) * evaluate_polynomial(2.0 * y - 3.0, DIGAMMA) + steps
    inverse = 1.0 / x
    far = log(x) - (0.5 * inverse + inverse * inverse_powers(x, _DIGAMMA_SERIES))
    return select(x < _LARGE, near, far)


def _leading_terms(x: XlaOp, q: XlaOp) -> tuple[XlaOp, XlaOp]:
    """The sum of the terms up to the first q + k that is at least 10 (ten terms at least), and that q + k."""

    def unfinished(count: XlaOp, term: XlaOp, total: XlaOp, exponent: XlaOp) -> XlaOp:
        return or_(count < _ZETA_TERMS, any(term < _LARGE))

    def step(count: XlaOp, term: XlaOp, total: XlaOp, exponent: XlaOp) -> list[XlaOp]:
        active = or_(count < _ZETA_TERMS, term < _LARGE)
        added = select(active, total + pow(term, exponent), total)
        return [count + 1, select(active, term + 1.0, term), added, exponent]

    start = select(q < _ZETA_LOWEST, full_like(q, _LARGE), q)
    count = q.builder.constant_r0(0)
    _, end, total, _ = while_loop(unfinished, step, [count, start, zeros_like(q), neg(x)])
    return total, end


def _euler_maclaurin_tail(x: XlaOp, a: XlaOp) -> XlaOp:
    """The sum of 1 / (a + k)^x over k >= 0 by Euler and Maclaurin's formula, for a >= 10.

    Where x is so large that the formula diverges, the tail is negligible beside the terms before it; there x is cut.
    """
    last = pow(a, neg(x))
    cut = min(x, 6.0 * a)
    factor = cut / a
    series = 0.5 + factor * _ZETA_RATIOS[0]
    for k, ratio in enumerate(_ZETA_RATIOS[1:], start=1):
        factor = factor * ((cut + (2.0 * k - 1.0)) / a) * ((cut + 2.0 * k) / a)
        series = series + factor * ratio
    return last * (a / (x - 1.0) + series)
