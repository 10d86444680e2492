"""Incomplete gamma and beta functions of real operands (BEY-80).

Small x: power series. Large x: continued fractions by Lentz's method. Both are loops until every element has converged,
at most 2000 steps: enough for the gamma functions, whose shapes from 500 up have formulas of their own near x = a
(large_shape.py), and for the beta function with parameters up to some 100,000.
"""

from __future__ import annotations

import math

import numpy as np

from hlokit.builder import large_shape
from hlokit.builder.constants import full_like, ones_like, zeros_like
from hlokit.builder.core import XlaOp
from hlokit.builder.domain import real_function
from hlokit.builder.elementwise import abs, and_, exp, log, log1p, max, min, not_, or_, select, sqrt
from hlokit.builder.gamma import digamma, lgamma
from hlokit.builder.loops import any, while_loop
from hlokit.builder.polynomials import epsilon_of, excess_over_logarithm, stirling_correction

__all__ = ["igamma", "igamma_grad_a", "igammac", "random_gamma_grad", "regularized_incomplete_beta"]

_LIMIT = 2000
_STIRLING_FROM = 10.0


@real_function
def igamma(a: XlaOp, x: XlaOp) -> XlaOp:
    """P(a, x), the regularized lower incomplete gamma function. Real floating, one type and shape (BEY-80).

    NaN unless a > 0 and x >= 0.

    Parameters
    ----------
    a : XlaOp
        The shape parameters, real floating.
    x : XlaOp
        The arguments, of the element type and shape of `a`.

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
    >>> hk.evaluate(b.build(hk.igamma(b.constant([1.0, 2.0]), b.constant([1.0, 1.0])))).round(3)
    array([0.632, 0.264], dtype=float32)
    """
    outside = _outside_gamma_domain(a, x)
    uses_series, series, fraction = _gamma_sums(a, x)
    power = _power_over_gamma(a, x)
    value = select(uses_series, power * series, max(1.0 - a * power * fraction, zeros_like(x)))
    value = select(large_shape.applies(a, x), large_shape.lower_gamma(a, x), value)
    value = select(x == 0.0, zeros_like(x), value)
    value = select(a == np.inf, zeros_like(x), value)
    value = select(x == np.inf, ones_like(x), value)
    return select(outside, full_like(x, np.nan), value)


@real_function
def igammac(a: XlaOp, x: XlaOp) -> XlaOp:
    """Q(a, x) = 1 - P(a, x), without cancellation for large x. Real floating, one type and shape (BEY-80).

    1 where a <= 0 or x <= 0, as in XLA.

    Parameters
    ----------
    a : XlaOp
        The shape parameters, real floating.
    x : XlaOp
        The arguments, of the element type and shape of `a`.

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
    >>> hk.evaluate(b.build(hk.igammac(b.constant([1.0, 2.0]), b.constant([1.0, 1.0])))).round(3)
    array([0.368, 0.736], dtype=float32)
    """
    uses_series, series, fraction = _gamma_sums(a, x)
    power = _power_over_gamma(a, x)
    value = select(uses_series, max(1.0 - power * series, zeros_like(x)), a * power * fraction)
    value = select(large_shape.applies(a, x), large_shape.upper_gamma(a, x), value)
    value = select(x == np.inf, zeros_like(x), select(a == np.inf, ones_like(x), value))
    value = select(or_(a != a, x != x), full_like(x, np.nan), value)
    return select(or_(a <= 0.0, x <= 0.0), ones_like(x), value)


@real_function
def igamma_grad_a(a: XlaOp, x: XlaOp) -> XlaOp:
    """The derivative of P(a, x) with respect to a. Real floating, one type and shape (BEY-80).

    NaN unless a > 0 and x >= 0.

    Parameters
    ----------
    a : XlaOp
        The shape parameters, real floating.
    x : XlaOp
        The arguments, of the element type and shape of `a`.

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
    >>> hk.evaluate(b.build(hk.igamma_grad_a(b.constant([1.0, 2.0]), b.constant([1.0, 1.0])))).round(3)
    array([-0.432, -0.276], dtype=float32)
    """
    slope = -_power_over_gamma(a, x) * a * _scaled_gamma_slope(a, x)
    value = select(or_(x == 0.0, x == np.inf), zeros_like(x), slope)
    return select(_outside_gamma_domain(a, x), full_like(x, np.nan), value)


@real_function
def random_gamma_grad(a: XlaOp, x: XlaOp) -> XlaOp:
    """The derivative with respect to a of a sample x of the gamma distribution with shape a, at a fixed quantile.

    Real floating, one type and shape (BEY-80). NaN unless a > 0 and x >= 0.

    Parameters
    ----------
    a : XlaOp
        The shape parameters, real floating.
    x : XlaOp
        The samples, of the element type and shape of `a`.

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
    >>> hk.evaluate(b.build(hk.random_gamma_grad(b.constant([1.0, 2.0]), b.constant([1.0, 1.0])))).round(3)
    array([1.174, 0.751], dtype=float32)
    """
    value = select(x == 0.0, zeros_like(x), x * _scaled_gamma_slope(a, x))
    return select(_outside_gamma_domain(a, x), full_like(x, np.nan), value)


@real_function
def regularized_incomplete_beta(a: XlaOp, b: XlaOp, x: XlaOp) -> XlaOp:
    """I_x(a, b), the distribution function of the beta distribution. Real floating, one type and shape (BEY-80).

    NaN unless a and b are positive and finite and 0 <= x <= 1.

    Parameters
    ----------
    a, b : XlaOp
        The parameters of the distribution, real floating, of one element type and shape.
    x : XlaOp
        The arguments, of the element type and shape of `a`.

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
    >>> result = hk.regularized_incomplete_beta(
    ...     b.constant([1.0, 2.0]), b.constant([1.0, 3.0]), b.constant([0.25, 0.5])
    ... )
    >>> hk.evaluate(b.build(result)).round(3)
    array([0.25 , 0.688], dtype=float32)
    """
    swaps = x > (a + 1.0) / (a + b + 2.0)
    p, q = select(swaps, b, a), select(swaps, a, b)
    y = 1.0 - x
    near = select(swaps, y, x)
    far = select(swaps, x, y)
    power = exp(_log_beta_power(p, q, near, far, select(swaps, log(x), log1p(-x))))
    inside = _inside_beta_domain(a, b, x)
    runs = and_(inside, near > 0.0)
    value = power / _beta_fraction(p, q, select(runs, near, zeros_like(near)), select(runs, far, ones_like(far)))
    value = select(near == 0.0, zeros_like(value), value)
    return select(inside, select(swaps, 1.0 - value, value), full_like(x, np.nan))


# -- gamma


def _outside_gamma_domain(a: XlaOp, x: XlaOp) -> XlaOp:
    return not_(and_(a > 0.0, x >= 0.0))


def _power_over_gamma(a: XlaOp, x: XlaOp) -> XlaOp:
    """x^a exp(-x) / gamma(a + 1). From a = 10 up in Stirling's form, whose exponent does not cancel."""
    small = exp(a * log(x) - x - lgamma(a + 1.0))
    exponent = -a * excess_over_logarithm((x - a) / a, x / a) - stirling_correction(a)
    return select(a < _STIRLING_FROM, small, exp(exponent) / sqrt((2.0 * math.pi) * a))


def _gamma_sums(a: XlaOp, x: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """Whether the series is the one to use, the sum of the series, the value of the fraction."""
    uses_series, series, fraction = _run_gamma(a, x, with_slopes=False)
    return uses_series, series[0], fraction[0]


def _scaled_gamma_slope(a: XlaOp, x: XlaOp) -> XlaOp:
    """dQ/da divided by x^a exp(-x) / gamma(a)."""
    uses_series, (series, series_slope), (fraction, fraction_slope) = _run_gamma(a, x, with_slopes=True)
    logarithm = log(x)
    of_series = -((logarithm - digamma(a + 1.0)) * series + series_slope) / a
    slope = select(uses_series, of_series, (logarithm - digamma(a)) * fraction + fraction_slope)
    return select(large_shape.applies(a, x), large_shape.upper_gamma_slope(a, x), slope)


def _run_gamma(a: XlaOp, x: XlaOp, with_slopes: bool) -> tuple[XlaOp, list[XlaOp], list[XlaOp]]:
    """The sums, with their derivatives by a if asked for; elements that need none stop at once."""
    runs = and_(and_(a > 0.0, x > 0.0), and_(a < np.inf, x < np.inf))
    runs = and_(runs, not_(large_shape.applies(a, x)))
    uses_series = x < a + 1.0
    one = ones_like(x)
    in_series, in_fraction = and_(runs, uses_series), and_(runs, not_(uses_series))
    series = _gamma_series(select(in_series, a, one), select(in_series, x, zeros_like(x)), with_slopes)
    fraction = _gamma_fraction(select(in_fraction, a, one), select(in_fraction, x, 2.0 * one), with_slopes)
    return uses_series, series, fraction


def _gamma_series(a: XlaOp, x: XlaOp, with_slopes: bool) -> list[XlaOp]:
    """The sum of x^n / ((a + 1) ... (a + n)) over n >= 0, and its derivative by a."""
    epsilon = epsilon_of(x)

    def unfinished(count: XlaOp, a: XlaOp, x: XlaOp, term: XlaOp, total: XlaOp, *slopes: XlaOp) -> XlaOp:
        moves = abs(term) > epsilon * abs(total)
        if slopes:
            moves = or_(moves, abs(slopes[0]) > epsilon * abs(slopes[1]))
        return and_(count < _LIMIT, any(moves))

    def step(count: XlaOp, a: XlaOp, x: XlaOp, term: XlaOp, total: XlaOp, *slopes: XlaOp) -> list[XlaOp]:
        a = a + 1.0
        term = term * (x / a)
        state = [count + 1, a, x, term, total + term]
        if slopes:
            slope = slopes[0] * (x / a) - term / a
            state += [slope, slopes[1] + slope]
        return state

    one, zero = ones_like(x), zeros_like(x)
    start = [x.builder.constant_r0(0), a, x, one, one] + ([zero, zero] if with_slopes else [])
    end = while_loop(unfinished, step, start)
    return [end[4], *end[6:]]


def _gamma_fraction(a: XlaOp, x: XlaOp, with_slopes: bool) -> list[XlaOp]:
    """1/(x+1-a- 1(1-a)/(x+3-a- 2(2-a)/(x+5-a- ...))), and its derivative by a.

    Lentz: c and d are the ratios of successive numerators and of successive denominators (inverted).
    """
    epsilon = epsilon_of(x)

    def unfinished(n: XlaOp, a: XlaOp, b: XlaOp, c: XlaOp, d: XlaOp, h: XlaOp, moves: XlaOp, *slopes: XlaOp) -> XlaOp:
        return and_(n < float(_LIMIT), any(moves))

    def step(
        n: XlaOp, a: XlaOp, b: XlaOp, c: XlaOp, d: XlaOp, h: XlaOp, moves: XlaOp, *slopes: XlaOp
    ) -> list[XlaOp]:
        factor, b = n * (a - n), b + 2.0
        new_c = b + factor / c
        new_d = 1.0 / (factor * d + b)
        change = new_c * new_d
        new_h = h * change
        moves = abs(change - 1.0) > epsilon
        state = [n + 1.0, a, b, new_c, new_d, new_h]
        if not slopes:
            return [*state, moves]
        c_slope, d_slope, h_slope = slopes
        new_c_slope = (n - factor * (c_slope / c)) / c - 1.0
        new_d_slope = -new_d * new_d * (n * d + factor * d_slope - 1.0)
        new_h_slope = h_slope * change + h * (new_c_slope * new_d + new_c * new_d_slope)
        moves = or_(moves, abs(new_h_slope - h_slope) > epsilon * abs(new_h_slope))
        return [*state, moves, new_c_slope, new_d_slope, new_h_slope]

    b = x + 1.0 - a
    d = 1.0 / b
    start = [x.builder.constant_r0(1.0, x.dtype), a, b, full_like(x, np.inf), d, d, x == x]
    end = while_loop(unfinished, step, start + ([zeros_like(x), d * d, d * d] if with_slopes else []))
    return [end[5], *end[9:]]


# -- beta


def _inside_beta_domain(a: XlaOp, b: XlaOp, x: XlaOp) -> XlaOp:
    positive = and_(min(a, b) > 0.0, max(a, b) < np.inf)
    return and_(positive, and_(x >= 0.0, x <= 1.0))


def _log_beta_power(a: XlaOp, b: XlaOp, x: XlaOp, y: XlaOp, log_y: XlaOp) -> XlaOp:
    """log(x^a y^b / B(a, b)) where y = 1 - x."""
    least, most = min(a, b), max(a, b)
    total = a + b
    direct = lgamma(least) + lgamma(most) - lgamma(total)
    shift = stirling_correction(total) - stirling_correction(most)
    ratio = (most - 0.5) * log1p(least / most) + least * (log(total) - 1.0) + shift
    log_beta = select(most < _STIRLING_FROM, direct, lgamma(least) - ratio)
    small = a * log(x) + b * log_y - log_beta
    distance = x * b - y * a
    exponent = a * excess_over_logarithm(distance / a, x / (a / total))
    exponent = exponent + b * excess_over_logarithm(-distance / b, y / (b / total))
    large = 0.5 * log(a / total * b / (2.0 * math.pi)) - exponent
    large = large + stirling_correction(total) - stirling_correction(a) - stirling_correction(b)
    return select(least < _STIRLING_FROM, small, large)


def _beta_fraction(a: XlaOp, b: XlaOp, x: XlaOp, y: XlaOp) -> XlaOp:
    """The even part of DLMF 8.17.22, b0 + a1/(b1 + a2/(b2 + ...)), by Lentz's method; y = 1 - x.

    Its terms have a y - b x in them, where the fraction itself subtracts numbers that nearly agree.
    """
    epsilon = epsilon_of(x)

    def denominator(n: XlaOp, a: XlaOp, b: XlaOp, x: XlaOp, y: XlaOp) -> XlaOp:
        middle = a + 2.0 * n
        excess = a * y - b * x + (1.0 + n * (1.0 + y))
        return n + (n * (b - n) / (middle - 1.0) * x + (a + n) / (middle + 1.0) * excess)

    def unfinished(n: XlaOp, c: XlaOp, d: XlaOp, h: XlaOp, moves: XlaOp, *parameters: XlaOp) -> XlaOp:
        return and_(n < float(_LIMIT), any(moves))

    def step(n: XlaOp, c: XlaOp, d: XlaOp, h: XlaOp, moves: XlaOp, *parameters: XlaOp) -> list[XlaOp]:
        a, b, x, _ = parameters
        middle = a + (2.0 * n - 1.0)
        numerator = (a + n - 1.0) / middle * ((a + b + n - 1.0) / middle) * x * (n * (b - n) * x)
        bottom = denominator(n, *parameters)
        d = 1.0 / (bottom + numerator * d)
        c = bottom + numerator / c
        change = c * d
        return [n + 1.0, c, d, h * change, abs(change - 1.0) > epsilon, *parameters]

    first = a / (a + 1.0) * (a * y - b * x + 1.0)
    start = [x.builder.constant_r0(1.0, x.dtype), first, zeros_like(x), first, x == x, a, b, x, y]
    return while_loop(unfinished, step, start)[3]
