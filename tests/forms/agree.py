"""How near a form's value must come to the reference's: bit for bit, or so many units in the last place."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from hlokit.hlo.op import Op
from hlokit.ops.numerics import element_type, signed_bits_of

Array = np.ndarray[Any, np.dtype[Any]]

ULP = {
    # primitives that the evaluator computes in f64: f32 is exact, narrower types are rounded twice
    "exponential": 1, "exponential-minus-one": 1, "log": 1, "log-plus-one": 1, "cbrt": 1, "sine": 1, "cosine": 1,
    "tanh": 1, "erf": 1, "power": 1, "atan2": 1, "atan": 1, "sqrt": 0,
    "abs": 2,  # of complex numbers; of others it has no error to make
    # composites: the error bounds of ops/scalar_rules.py
    "rsqrt": 1, "exp2": 1, "log2": 3, "logistic": 2, "tan": 2, "acos": 2, "asin": 2, "sinh": 3, "cosh": 3, "asinh": 3, "acosh": 3, "atanh": 3,
}  # fmt: skip
"""Units in the last place by opcode; others agree bit for bit (all NaNs being one)."""

COMPLEX_ULP = {
    "add": 0, "subtract": 0, "negate": 0, "real": 0, "imag": 0, "complex": 0, "select": 0, "multiply": 2, "divide": 4,
    "power": 256,  # of c128: the exponent multiplies the error of the logarithm; c64 is computed in f64
}  # fmt: skip
"""Of the modulus of the result, for complex numbers; others 16: a chain of roundings, each at most the modulus's."""


def difference(op: Op, got: Array, want: Array) -> str:
    """What is wrong with `got`; nothing if it agrees with the reference's `want`."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
    if want.dtype.kind == "c":
        if op.opcode == "atan2":  # on the cut rounding decides which side
            around = np.round((want.real.astype(np.float64) - got.real) / (2 * np.pi), 6)
            got = np.where(np.abs(around) == 1, got + (2 * np.pi * around), got).astype(got.dtype)
        ulp, least = COMPLEX_ULP.get(op.opcode, 0 if op.form == "index" else 16), float(op.opcode == "atan2")
        return _complex_difference(got, want, ulp, least)  # atan2 is the logarithm of a number of modulus 1
    element = element_type(want.dtype)
    if not element.is_floating:
        wrong = got != want
    elif op.form == "expand" and op.opcode.startswith("batch-norm"):
        return _statistic_difference(got, want)
    elif op.form != "index":
        apart = distance(got, want)
        wrong = apart > ULP.get(op.opcode, 0)
    else:
        wrong = signed_bits_of(got) != signed_bits_of(want)
    return _shown(got, want, wrong)


def distance(got: Array, want: Array) -> Array:
    """How many representable numbers lie between; NaNs are one, and -0 lies next to +0."""
    a, b = (_ordered(x).astype(np.int64) for x in (got, want))
    same_side = (a < 0) == (b < 0)  # else the difference may not fit 64 bits
    apart = np.where(same_side, np.abs(a - b).astype(np.float64), np.abs(a.astype(np.float64) - b.astype(np.float64)))
    is_nan = np.isnan(got.astype(np.float64)), np.isnan(want.astype(np.float64))
    both, either = is_nan[0] & is_nan[1], is_nan[0] | is_nan[1]
    return np.where(both, 0, np.where(either, np.inf, apart))


def _ordered(array: Array) -> Array:
    signed = signed_bits_of(array)
    greatest = (1 << (element_type(array.dtype).bits - 1)) - 1
    return np.where(signed < 0, signed ^ greatest, signed)


def _complex_difference(got: Array, want: Array, ulp: int, least: float) -> str:
    finite = np.isfinite(want)
    eps = float(ml_dtypes.finfo(want.real.dtype).eps)
    with np.errstate(all="ignore"):
        wide = want.astype(np.complex128)
        error = np.where(got == want, 0.0, np.abs(got.astype(np.complex128) - wide))
        bound = ulp * eps * np.maximum(np.abs(wide), least) + np.finfo(want.real.dtype).tiny
    infinite = ~finite & ~np.isnan(want)  # where the reference has a NaN its own formula has no answer
    wrong = (got != want) & ((finite & ~(error <= bound)) | (infinite & np.isfinite(got)))
    return _shown(got, want, wrong)


def _statistic_difference(got: Array, want: Array) -> str:
    """Sums in the type itself against sums in f64: a relative error of many additions, of the largest element."""
    wide, exact = got.astype(np.float64), want.astype(np.float64)
    scale = np.max(np.abs(exact), initial=0.0, where=np.isfinite(exact))
    eps = max(float(ml_dtypes.finfo(want.dtype).eps), 2.0**-52)
    near = np.abs(wide - exact) <= 64 * eps * scale
    return _shown(got, want, ~(near | (wide == exact) | (np.isnan(wide) & np.isnan(exact))))


def _shown(got: Array, want: Array, wrong: Array) -> str:
    if not np.any(wrong):
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))
    first = np.atleast_1d(got)[at], np.atleast_1d(want)[at]
    return f"{int(np.sum(wrong))} of {want.size} differ, at {at}: got {first[0]!r}, reference {first[1]!r}"
