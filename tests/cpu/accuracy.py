"""Arguments, exact values and errors in ULPs of the transcendental primitives: for test_math and math_table."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np

from hlokit.cpu.llvm import Value
from hlokit.cpu.math.primitives import emit
from hlokit.cpu.target import Target
from hlokit.types.dtype import DType, f32
from tests.cpu.native import map_arrays

Array = np.ndarray[Any, Any]

SPECIAL = [0.0, 1.0, 2.0, 3.0, 0.5, 2.5, 1e-45, 1e-40, 5e-324, 1e-310, 88.72, 88.73, 103.9, 709.7, 745.1, 1e30, 1e300]
SPECIAL = [sign * v for v in [*SPECIAL, math.inf, math.nan, math.pi / 2, 355.0, 1e22] for sign in (1.0, -1.0)]


@cache
def arguments(name: str, dtype: DType, count: int) -> list[Array]:
    """Every exponent, both signs, the usual sizes, the special values: of pairs, each special with each."""
    rng = np.random.default_rng(7)
    with np.errstate(over="ignore"):
        special = np.array(SPECIAL).astype(dtype.numpy)
    bits = rng.integers(0, 1 << dtype.bits, count, dtype=np.uint64)
    parts = [bits.astype(f"u{dtype.bits // 8}").view(dtype.numpy)]
    parts += [rng.standard_normal(count), rng.uniform(-100, 100, count), 1 + rng.standard_normal(count // 4) / 1000]
    parts += [
        rng.uniform(-750, 750, count // 2),
        rng.standard_normal(count // 2) * 2.0 ** -rng.uniform(0, 60, count // 2),
    ]
    first = np.concatenate([p.astype(dtype.numpy) for p in parts])
    if name not in ("atan2", "pow"):
        return [np.concatenate([first, special])]
    second = rng.permutation(first)
    table = np.meshgrid(special, special)
    x, y = rng.uniform(0, 10, count).astype(dtype.numpy), rng.uniform(-30, 30, count).astype(dtype.numpy)
    return [np.concatenate([first, x, table[0].ravel()]), np.concatenate([second, y, table[1].ravel()])]


def computed(name: str, dtype: DType, operands: list[Array], lanes: int, target: Target | None = None) -> Array:
    def body(values: list[Value]) -> Value:
        return emit(name, dtype, values, dtype)

    return map_arrays(body, operands, [dtype] * len(operands), dtype, lanes, target)


def in_f64(name: str) -> Callable[..., Array]:
    """The function in NumPy's or SciPy's f64."""
    from scipy.special import erf

    def rsqrt(x: Array) -> Array:
        return 1 / np.sqrt(x)

    return {"atan2": np.arctan2, "pow": np.power, "erf": erf, "rsqrt": rsqrt}.get(name) or getattr(np, name)


_EXACT: dict[str, Callable[..., Any]] = {
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "pow": mp.power,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
}


def exact(name: str, *operands: float) -> Any:
    """The value in mpmath; None where it is a special one, which NumPy's f64 gives: zero, infinite, NaN, out of range."""
    if not all(map(math.isfinite, operands)) or operands[0] == 0 or operands[-1] == 0:
        return None
    x = operands[0]
    out_of_range = {
        "exp": abs(x) > 800,
        "expm1": abs(x) > 800,
        "tanh": abs(x) > 100,
        "erf": abs(x) > 30,
        "log": x <= 0,
        "rsqrt": x < 0,
        "log1p": x <= -1,
        "pow": x < 0 or abs(operands[-1] * math.log(abs(x))) > 800,
    }
    if out_of_range.get(name, False):
        return None
    with mp.workprec(1300 if name in ("sin", "cos") or abs(x) < 1e-40 else 180):
        return _EXACT.get(name, getattr(mp, name, None))(*map(mp.mpf, operands))  # type: ignore[misc]


def errors_in_ulp(name: str, dtype: DType, operands: list[Array], result: Array) -> Array:
    """|result - exact| / ulp for each element; infinite where a special value is wrong. exp has 0 for denormals."""
    with np.errstate(all="ignore"):
        reference = in_f64(name)(*(a.astype(np.float64) for a in operands))
    if dtype is f32:
        errors = _errors_against_f64(result, reference)
    else:
        values = [exact(name, *(float(v) for v in row)) for row in zip(*operands, strict=True)]
        errors = np.array([_error(float(g), e, float(w)) for g, e, w in zip(result, values, reference, strict=True)])
    if name == "exp":
        is_denormal = reference < np.finfo(dtype.numpy).tiny
        errors = np.where(is_denormal, np.where((result == 0) & ~np.signbit(result), 0.0, np.inf), errors)
    return errors


def _errors_against_f64(result: Array, reference: Array) -> Array:
    with np.errstate(all="ignore"):
        rounded = reference.astype(np.float32)
        unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(reference), 2.0**-126))) - 23)
        errors = np.abs(result.astype(np.float64) - reference) / unit
        # next to the greatest float, infinity counts as the number that follows it
        close_to_infinity = np.isinf(result) & (np.abs(reference) < 2.0**128) & (np.abs(reference) > 3.4028232e38)
        errors = np.where(close_to_infinity, (2.0**128 - np.abs(reference)) / 2.0**104, errors)
        same = (result == rounded) & ((rounded != 0) | (np.signbit(result) == np.signbit(rounded)))
    errors = np.where(np.isnan(errors), np.inf, errors)
    return np.where((same & (np.isinf(rounded) | (rounded == 0))) | (np.isnan(result) & np.isnan(rounded)), 0.0, errors)


def _error(result: float, value: Any, reference: float) -> float:
    if value is None:
        same = result == reference and math.copysign(1.0, result) == math.copysign(1.0, reference)
        near = math.isfinite(reference) and abs(result - reference) <= math.ulp(reference)
        return 0.0 if same or (near and reference != 0) or (math.isnan(result) and math.isnan(reference)) else math.inf
    if math.isnan(result):
        return math.inf
    least_exponent = -1022
    exponent = max(int(mp.floor(mp.log(abs(value), 2))) if value else least_exponent, least_exponent)
    shown = mp.mpf(2) ** 1024 * mp.sign(result) if math.isinf(result) else mp.mpf(result)
    if math.isinf(result) and abs(value) > shown:
        return 0.0
    return float(abs(shown - value) / mp.mpf(2) ** (exponent - 52))
