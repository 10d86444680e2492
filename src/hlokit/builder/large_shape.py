"""The incomplete gamma functions of large shapes a with x near a, uniformly in x / a (DLMF 8.12, BEY-80).

With mu = x / a - 1 and eta^2 / 2 = mu - log(1 + mu), eta of the sign of mu:
Q(a, x) = erfc(eta sqrt(a / 2)) / 2 + exp(-a eta^2 / 2) / sqrt(2 pi a) T, T = c_0(eta) + c_1(eta) / a + ...
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlokit.builder.core import XlaOp
from hlokit.builder.elementwise import abs, and_, exp, sqrt
from hlokit.builder.error_functions import erfc
from hlokit.builder.polynomials import copy_sign, evaluate_polynomial, excess_over_logarithm, stirling_correction
from hlokit.builder.tables import LARGE_SHAPE, Table

_FROM = 500.0
_REACH = 0.3


def applies(a: XlaOp, x: XlaOp) -> XlaOp:
    """Whether these formulas are exact to the last bits: a >= 500 and |x / a - 1| <= 0.3."""
    return and_(a >= _FROM, abs(x - a) <= _REACH * a)


def lower_gamma(a: XlaOp, x: XlaOp) -> XlaOp:
    """P(a, x) where `applies`."""
    return _tail(a, x, lower=True)


def upper_gamma(a: XlaOp, x: XlaOp) -> XlaOp:
    """Q(a, x) where `applies`."""
    return _tail(a, x, lower=False)


def upper_gamma_slope(a: XlaOp, x: XlaOp) -> XlaOp:
    """dQ/da divided by x^a exp(-x) / gamma(a), where `applies`.

    From d(a eta^2 / 2)/da = -log(x / a) and d(eta)/da = -(mu / eta) / a, with mu / eta = 1 / (1 + eta c_0).
    """
    eta = _eta(a, x)
    inverse = 1.0 / a
    values = [evaluate_polynomial(eta, c) for c in LARGE_SHAPE]
    slopes = [evaluate_polynomial(eta, _derivative(c)) for c in LARGE_SHAPE]
    ratio = 1.0 / (1.0 + eta * values[0])
    logarithm = eta * (ratio - 0.5 * eta)
    total, eta_slope = _series(values, inverse), _series(slopes, inverse)
    a_slope = _series([-float(k) * v for k, v in enumerate(values)][1:], inverse) * inverse
    rest = (a_slope - eta_slope * ratio - 0.5 * total) * inverse
    return (ratio - 0.5 * eta + logarithm * total + rest) * exp(stirling_correction(a)) * inverse


def _tail(a: XlaOp, x: XlaOp, lower: bool) -> XlaOp:
    sign = -1.0 if lower else 1.0
    eta = _eta(a, x)
    total = _series([evaluate_polynomial(eta, c) for c in LARGE_SHAPE], 1.0 / a)
    correction = exp(-0.5 * a * eta * eta) / sqrt((2.0 * math.pi) * a) * total
    return 0.5 * erfc(sign * eta * sqrt(0.5 * a)) + sign * correction


def _eta(a: XlaOp, x: XlaOp) -> XlaOp:
    mu = (x - a) / a
    return copy_sign(sqrt(2.0 * excess_over_logarithm(mu, x / a)), mu)


def _series(values: Sequence[XlaOp], inverse: XlaOp) -> XlaOp:
    """values[0] + values[1] / a + values[2] / a^2 + ..."""
    total = values[-1]
    for value in values[-2::-1]:
        total = total * inverse + value
    return total


def _derivative(table: Table) -> Table:
    return Table(*(tuple(k * c for k, c in zip(range(len(t) - 1, 0, -1), t)) for t in table))
