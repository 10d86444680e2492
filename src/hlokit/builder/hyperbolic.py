"""Inverse circular functions, hyperbolic functions and their inverses, of real and complex operands (BEY-6).

Largest error of real results and of each part of complex ones: 4 ULP, given exp, log, sin, ... of 1 ULP. Branch cuts,
signed zeros and infinities are those of C99, Annex G; a NaN in one part of a complex operand makes both parts NaN.
"""

from __future__ import annotations

import numpy as np

from hlokit.builder.constants import full_like, ones_like, zeros_like
from hlokit.builder.core import XlaOp
from hlokit.builder.domain import elementary
from hlokit.builder.elementwise import (
    abs,
    and_,
    atan2,
    complex,
    cos,
    exp,
    expm1,
    imag,
    log,
    log1p,
    max,
    min,
    neg,
    or_,
    real,
    select,
    sin,
    sqrt,
    xor,
)
from hlokit.builder.polynomials import LOG_2, by_type, copy_sign, epsilon_of, sign_bit

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh"]

_HALF_PI = 1.5707963267948966


# -- complex operands


def _complex_acos(z: XlaOp) -> XlaOp:
    x, y = real(z), imag(z)
    adjacent, height = _triangle(abs(x), abs(y))
    return complex(atan2(adjacent, x), copy_sign(height, neg(y)))


def _complex_acosh(z: XlaOp) -> XlaOp:
    x, y = real(z), imag(z)
    adjacent, height = _triangle(abs(x), abs(y))
    return complex(height, copy_sign(atan2(adjacent, x), y))


def _complex_asin(z: XlaOp) -> XlaOp:
    x, y = real(z), imag(z)
    adjacent, height = _triangle(abs(x), abs(y))
    return complex(copy_sign(atan2(abs(x), adjacent), x), copy_sign(height, y))


def _complex_asinh(z: XlaOp) -> XlaOp:
    """asinh(z) = -i asin(iz)."""
    x, y = real(z), imag(z)
    adjacent, height = _triangle(abs(y), abs(x))
    return complex(copy_sign(height, x), copy_sign(atan2(abs(y), adjacent), y))


def _complex_atanh(z: XlaOp) -> XlaOp:
    x, y = real(z), imag(z)
    along, across = _two_logarithms(abs(x), abs(y))
    return complex(copy_sign(along, x), copy_sign(across, y))


def _complex_atan(z: XlaOp) -> XlaOp:
    """atan(z) = -i atanh(iz)."""
    x, y = real(z), imag(z)
    along, across = _two_logarithms(abs(y), abs(x))
    return complex(copy_sign(across, x), copy_sign(along, y))


def _complex_cosh(z: XlaOp) -> XlaOp:
    x, y = real(z), imag(z)
    return complex(_product(cosh(x), x, cos(y)), _product(sinh(x), x, sin(y)))


def _complex_sinh(z: XlaOp) -> XlaOp:
    x, y = real(z), imag(z)
    return complex(_product(sinh(x), x, cos(y)), _product(cosh(x), x, sin(y)))


def _triangle(a: XlaOp, b: XlaOp) -> tuple[XlaOp, XlaOp]:
    """For asin(a + ib) = u + iv with a, b >= 0: (t, v) where u = atan2(a, t).

    With the distances r, s to -1 and 1 and A = (r + s) / 2, the ellipse through the point with these foci gives
    t = sqrt((A + a)(A - a)) and v = log(A + sqrt((A - 1)(A + 1))); A - a and A - 1 are written without
    subtracting numbers that nearly agree, and b is taken out of the roots lest b^2 underflow.
    """
    r, s = _hypotenuse(a + 1.0, b), _hypotenuse(a - 1.0, b)
    mean = 0.5 * (r + s)
    outer, inner = r + (a + 1.0), s + abs(a - 1.0)
    flat = b * b / outer
    adjacent = select(
        a <= 1.0,
        sqrt(0.5 * (mean + a) * (flat + inner)),
        b * sqrt(0.5 * ((mean + a) / outer + (mean + a) / inner)),
    )
    excess = 0.5 * (flat + select(a < 1.0, b * (b / inner), inner))
    root = select(
        a < 1.0,
        b * sqrt(0.5 * ((mean + 1.0) / outer + (mean + 1.0) / inner)),
        sqrt(excess * (mean + 1.0)),
    )
    far = max(a, b) > 1.0 / epsilon_of(a)
    return select(far, b, adjacent), select(far, _log_twice_modulus(a, b), log1p(excess + root))


def _two_logarithms(a: XlaOp, b: XlaOp) -> tuple[XlaOp, XlaOp]:
    """The parts of atanh(a + ib) for a, b >= 0: half the difference of the logarithms of 1 + z and 1 - z."""
    gap = _hypotenuse(1.0 - a, b)
    at_pole = 0.5 * log(_hypotenuse(1.0 + a, b) / gap)
    along = select(gap < 1e-4, at_pole, 0.25 * log1p(4.0 * a / (gap * gap)))
    across = 0.5 * atan2(2.0 * b, (1.0 - a) * (1.0 + a) - b * b)
    modulus, infinite = _hypotenuse(a, b), _either_infinite(a, b)
    infinite = and_(infinite, and_(a == a, b == b))
    far_along = select(infinite, zeros_like(a), a / modulus / modulus)
    far = or_(infinite, max(a, b) > 1.0 / epsilon_of(a))
    return select(far, far_along, along), select(far, full_like(a, _HALF_PI), across)


def _log_twice_modulus(a: XlaOp, b: XlaOp) -> XlaOp:
    large, small = max(a, b), min(a, b)
    ratio = small / large
    value = log(large) + (LOG_2 + 0.5 * log1p(ratio * ratio))
    return select(_either_infinite(a, b), full_like(a, np.inf), value)


def _hypotenuse(a: XlaOp, b: XlaOp) -> XlaOp:
    return abs(complex(a, b))


def _either_infinite(a: XlaOp, b: XlaOp) -> XlaOp:
    return or_(a == np.inf, b == np.inf)


def _product(hyperbolic: XlaOp, x: XlaOp, circular: XlaOp) -> XlaOp:
    """hyperbolic(x) * circular where the product may be finite although the first factor overflows.

    An exact zero wins over an infinity or NaN.
    """
    half = exp(0.5 * abs(x))
    large = copy_sign(half * 0.5, hyperbolic) * circular * half
    product = select(abs(x) > _exp_limit(x), large, hyperbolic * circular)
    zero = select(xor(sign_bit(hyperbolic), sign_bit(circular)), full_like(x, -0.0), zeros_like(x))
    return select(or_(hyperbolic == 0.0, circular == 0.0), zero, product)


def _exp_limit(x: XlaOp) -> float:
    """Below this exp does not overflow."""
    return by_type(x, 88.0, 709.0)


# -- real operands


@elementary(_complex_acos)
def acos(operand: XlaOp) -> XlaOp:
    """The angle in [0, pi] whose cosine is the operand; NaN outside [-1, 1]. Floating or complex (BEY-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.acos(b.constant([1.0, 0.0, -1.0])))).round(3)
    array([0.   , 1.571, 3.142], dtype=float32)
    """
    return atan2(sqrt((1.0 - operand) * (1.0 + operand)), operand)


@elementary(_complex_asin)
def asin(operand: XlaOp) -> XlaOp:
    """The angle in [-pi/2, pi/2] whose sine is the operand; NaN outside [-1, 1]. Floating or complex (BEY-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.asin(b.constant([0.0, 1.0, 2.0])))).round(3)
    array([0.   , 1.571,   nan], dtype=float32)
    """
    return atan2(operand, sqrt((1.0 - operand) * (1.0 + operand)))


@elementary(_complex_atan)
def atan(operand: XlaOp) -> XlaOp:
    """The angle in [-pi/2, pi/2] whose tangent is the operand. Floating or complex (BEY-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.atan(b.constant([0.0, 1.0])))).round(3)
    array([0.   , 0.785], dtype=float32)
    """
    return atan2(operand, ones_like(operand))


@elementary(_complex_acosh)
def acosh(operand: XlaOp) -> XlaOp:
    """The number from 0 up whose cosh is the operand; NaN below 1. Floating or complex (BEY-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.acosh(b.constant([1.0, 2.0])))).round(3)
    array([0.   , 1.317], dtype=float32)
    """
    excess = operand - 1.0
    near = log1p(excess + sqrt(excess * (excess + 2.0)))
    value = select(operand > 1.0 / epsilon_of(operand), log(operand) + LOG_2, near)
    return select(operand < 1.0, full_like(operand, np.nan), value)


@elementary(_complex_asinh)
def asinh(operand: XlaOp) -> XlaOp:
    """The number whose sinh is the operand. Floating or complex (BEY-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.asinh(b.constant([0.0, 1.0])))).round(3)
    array([0.   , 0.881], dtype=float32)
    """
    size = abs(operand)
    square = size * size
    near = log1p(size + square / (1.0 + sqrt(square + 1.0)))
    return copy_sign(select(size > 1.0 / epsilon_of(operand), log(size) + LOG_2, near), operand)


@elementary(_complex_atanh)
def atanh(operand: XlaOp) -> XlaOp:
    """The number whose tanh is the operand; +-inf at +-1, NaN beyond. Floating or complex (BEY-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.atanh(b.constant([0.0, 0.5, 1.0])))).round(3)
    array([0.   , 0.549,   inf], dtype=float32)
    """
    size = abs(operand)
    return copy_sign(0.5 * log1p(2.0 * (size / (1.0 - size))), operand)


@elementary(_complex_cosh)
def cosh(operand: XlaOp) -> XlaOp:
    """(exp(x) + exp(-x)) / 2. Floating or complex (BEY-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.cosh(b.constant([0.0, 1.0])))).round(3)
    array([1.   , 1.543], dtype=float32)
    """
    size = abs(operand)
    grown, half = exp(size), exp(0.5 * size)
    return select(size > _exp_limit(operand), 0.5 * half * half, 0.5 * (grown + 1.0 / grown))


@elementary(_complex_sinh)
def sinh(operand: XlaOp) -> XlaOp:
    """(exp(x) - exp(-x)) / 2, without cancellation near 0. Floating or complex (BEY-6).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.sinh(b.constant([0.0, 1.0])))).round(3)
    array([0.   , 1.175], dtype=float32)
    """
    size = abs(operand)
    grown, half = expm1(size), exp(0.5 * size)
    value = select(size > _exp_limit(operand), 0.5 * half * half, 0.5 * (grown + grown / (grown + 1.0)))
    return copy_sign(value, operand)
