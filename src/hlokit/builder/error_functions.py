"""erfc, erf_inv and the scaled modified Bessel functions of real operands (BEY-80)."""

from __future__ import annotations

import math

import numpy as np

from hlokit.builder.constants import full_like
from hlokit.builder.core import XlaOp
from hlokit.builder.domain import real_function
from hlokit.builder.elementwise import abs, exp, log, min, reduce_precision, select, sqrt
from hlokit.builder.polynomials import by_type, copy_sign, evaluate_polynomial
from hlokit.builder.tables import (
    BESSEL_I0_FAR,
    BESSEL_I0_NEAR,
    BESSEL_I1_FAR,
    BESSEL_I1_NEAR,
    ERF_INV_CENTRE,
    ERF_INV_TAIL,
    ERFCX,
    Table,
)

__all__ = ["bessel_i0e", "bessel_i1e", "erf_inv", "erfc"]

_BESSEL_SPLIT = 9.0


@real_function
def erfc(operand: XlaOp) -> XlaOp:
    """1 - erf(x), without cancellation where it is small. Real floating (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.erfc(b.constant([0.0, 1.0])))).round(3)
    array([1.   , 0.157], dtype=float32)
    """
    size = min(abs(operand), full_like(operand, 30.0))  # erfc(30) is 0 in every type; 30^2 does not overflow
    scaled = evaluate_polynomial((size - 4.0) / (size + 4.0), ERFCX) / (1.0 + 2.0 * size)
    value = scaled * _exp_of_minus_square(size)
    return select(operand < 0.0, 2.0 - value, value)


@real_function
def erf_inv(operand: XlaOp) -> XlaOp:
    """The number whose erf is the operand; +-inf at +-1, NaN beyond. Real floating (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.erf_inv(b.constant([0.0, 0.5, 1.0])))).round(3)
    array([0.   , 0.477,   inf], dtype=float32)
    """
    w = -log((1.0 - operand) * (1.0 + operand))
    low, high = math.sqrt(8), math.sqrt(by_type(operand, 17, 37))
    position = (sqrt(w) - (low + high) / 2) * (2 / (high - low))
    centre = evaluate_polynomial(0.25 * w - 1.0, ERF_INV_CENTRE)
    value = operand * select(w < 8.0, centre, evaluate_polynomial(position, ERF_INV_TAIL))
    return select(abs(operand) == 1.0, operand * np.inf, value)


@real_function
def bessel_i0e(operand: XlaOp) -> XlaOp:
    """exp(-|x|) I0(x), I0 the modified Bessel function of order 0. Real floating (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.bessel_i0e(b.constant([0.0, 1.0, 100.0])))).round(3)
    array([1.   , 0.466, 0.04 ], dtype=float32)
    """
    size = abs(operand)
    near = exp(-size) * evaluate_polynomial(size * size, BESSEL_I0_NEAR)
    return select(size <= _BESSEL_SPLIT, near, _bessel_far(size, BESSEL_I0_FAR))


@real_function
def bessel_i1e(operand: XlaOp) -> XlaOp:
    """exp(-|x|) I1(x), I1 the modified Bessel function of order 1. Real floating (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.bessel_i1e(b.constant([0.0, 1.0, 100.0])))).round(3)
    array([0.   , 0.208, 0.04 ], dtype=float32)
    """
    size = abs(operand)
    near = size * exp(-size) * evaluate_polynomial(size * size, BESSEL_I1_NEAR)
    return copy_sign(select(size <= _BESSEL_SPLIT, near, _bessel_far(size, BESSEL_I1_FAR)), operand)


def _bessel_far(size: XlaOp, table: Table) -> XlaOp:
    return evaluate_polynomial((2 * _BESSEL_SPLIT) / size - 1.0, table) / sqrt(size)


def _exp_of_minus_square(x: XlaOp) -> XlaOp:
    """exp(-x^2): the leading half of x squares exactly, so that rounding x^2 costs nothing."""
    head = reduce_precision(x, *((11, 25) if x.dtype.bits == 64 else (8, 11)))
    return exp(-(head * head)) * exp(-((x - head) * (x + head)))
