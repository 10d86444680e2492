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
    # composites: the error bounds of ops/scalar_rules.py
    "rsqrt": 1, "logistic": 2, "tan": 2, "acos": 2, "asin": 2, "sinh": 3, "cosh": 3, "asinh": 3, "acosh": 3, "atanh": 3,
}  # fmt: skip
"""Units in the last place by opcode; others agree bit for bit (all NaNs being one)."""

COMPLEX_ULP = {
    "add": 0, "subtract": 0, "negate": 0, "real": 0, "imag": 0, "complex": 0, "select": 0, "multiply": 2, "divide": 4,
}  # fmt: skip
"""Of the modulus of the result, for complex numbers; others 16: a chain of roundings, each at most the modulus's."""


def difference(op: Op, got: Array, want: Array) -> str:
    """What is wrong with `got`; nothing if it agrees with the reference's `want`."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
    if want.dtype.kind == "c":
        return _complex_difference(got, want, COMPLEX_ULP.get(op.opcode, 16 if op.form == "map" else 0))
    element = element_type(want.dtype)
    if not element.is_floating:
        wrong = got != want
    elif op.form == "expand" and op.opcode.startswith("batch-norm"):
        return _statistic_difference(got, want)
    elif op.form == "map":
        apart = distance(got, want)
        wrong = apart > ULP.get(op.opcode, 0)
    else:
        wrong = signed_bits_of(got) != signed_bits_of(want)
    return _shown(got, want, wrong)


def distance(got: Array, want: Array) -> Array:
    """How many representable numbers lie between; NaNs are one, and -0 lies next to +0."""
    a, b = (_ordered(x).astype(np.float64) for x in (got, want))
    is_nan = np.isnan(got.astype(np.float64)), np.isnan(want.astype(np.float64))
    both, either = is_nan[0] & is_nan[1], is_nan[0] | is_nan[1]
    return np.where(both, 0, np.where(either, np.inf, np.abs(a - b)))


def _ordered(array: Array) -> Array:
    signed = signed_bits_of(array)
    greatest = (1 << (element_type(array.dtype).bits - 1)) - 1
    return np.where(signed < 0, signed ^ greatest, signed)


def _complex_difference(got: Array, want: Array, ulp: int) -> str:
    finite = np.isfinite(want)
    eps = float(ml_dtypes.finfo(want.real.dtype).eps)
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.complex128) - want.astype(np.complex128))
        wrong = np.where(
            finite, ~(error <= ulp * eps * np.abs(want) + np.finfo(want.real.dtype).tiny), np.isfinite(got)
        )
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
