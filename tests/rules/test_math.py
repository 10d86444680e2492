"""The mathematical functions of the builder against mpmath: errors in units in the last place, and special points."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

import hlokit as hk
from hlokit.types import dtype as dtypes
from tests.rules.labels import rejects, rule

mp.dps = 40
INF, NAN = math.inf, math.nan
RANDOM = np.random.default_rng(20260)
COUNT = 80
pytestmark = pytest.mark.filterwarnings("ignore:Descending")  # mpmath 1.4 calls its own old interface


def run(function: Callable[..., Any], *arrays: Any) -> Any:
    """The function's value on arrays."""
    builder = hk.Builder("test", source_info=False)
    values = [np.asarray(a) for a in arrays]
    parameters = [builder.parameter(i, hk.dtype(v.dtype)[v.shape]) for i, v in enumerate(values)]
    return hk.evaluate(builder.build(function(*parameters)), *values)


def magnitudes(low: float, high: float, signed: bool = False) -> Any:
    """Numbers whose logarithm to base 10 is spread evenly."""
    values = 10 ** RANDOM.uniform(low, high, COUNT)
    return values * RANDOM.choice([-1, 1], COUNT) if signed else values


def between(low: float, high: float) -> Any:
    return RANDOM.uniform(low, high, COUNT)


def ulps(found: Any, wanted: Any, dtype: Any) -> float:
    """The distance in units in the last place of `wanted`; results below the normal numbers are not measured."""
    info = np.finfo(dtype)
    if abs(wanted) < float(info.smallest_normal):
        return 0.0 if abs(found) <= 2 * float(info.smallest_normal) else INF
    unit = mpf(2) ** mp.floor(mp.log(abs(wanted), 2)) * float(info.eps)
    return float(abs(mpf(float(found)) - wanted) / unit)


def worst(function: Callable[..., Any], witness: Callable[..., Any], columns: Sequence[Any], dtype: Any) -> float:
    """The largest error over the points; every witness has to be in the type's range."""
    points = [np.asarray(c).astype(dtype) for c in columns]
    found = run(function, *points)
    wanted = [witness(*(mpf(float(v)) for v in point)) for point in zip(*points)]
    return max(ulps(f, w, dtype) for f, w in zip(found, wanted))


def log_abs_gamma(x: Any) -> Any:
    return mp.log(abs(mp.gamma(x)))


def lower_gamma(a: Any, x: Any) -> Any:
    return mp.gammainc(a, 0, x, regularized=True)


def upper_gamma(a: Any, x: Any) -> Any:
    return mp.gammainc(a, x, mp.inf, regularized=True)


def lower_gamma_slope(a: Any, x: Any) -> Any:
    return mp.diff(lambda t: lower_gamma(t, x), a, h=mpf(10) ** -15)


def gamma_sample_slope(a: Any, x: Any) -> Any:
    return -lower_gamma_slope(a, x) * mp.gamma(a) * mp.exp(x) / x ** (a - 1)


def incomplete_beta(a: Any, b: Any, x: Any) -> Any:
    return mp.betainc(a, b, 0, x, regularized=True)


def polygamma(n: Any, x: Any) -> Any:
    return mp.psi(int(n), x)


def scaled_bessel(order: int) -> Callable[[Any], Any]:
    return lambda x: mp.besseli(order, x) * mp.exp(-abs(x))


def shapes_and_quantiles(low: float, high: float, count: int) -> tuple[Any, Any]:
    """Shapes a of the gamma distribution, and values within a few deviations of their means."""
    a = magnitudes(low, high)[:count]
    return a, abs(a + np.sqrt(a) * RANDOM.normal(0, 2, count)) + 1e-3


_SHAPES, _QUANTILES = shapes_and_quantiles(-1, 1, 60)
_LARGE_SHAPES, _LARGE_QUANTILES = shapes_and_quantiles(1, 2.3, 60)
_HUGE_SHAPES, _HUGE_QUANTILES = shapes_and_quantiles(2.75, 4, 20)
_BETA = (magnitudes(-1, 2), magnitudes(-1, 2), between(0.01, 0.99))

# rule, function, witness, points, largest error in ULP allowed for f32 and for f64
ACCURACY: list[tuple[str, str, Any, Sequence[Any], float, float]] = [
    ("BEY-6: acos", "acos", mp.acos, [between(-1, 1)], 3, 3),
    ("BEY-6: acos near 1", "acos", mp.acos, [1 - magnitudes(-6, -1)], 3, 3),
    ("BEY-6: asin", "asin", mp.asin, [between(-1, 1)], 3, 3),
    ("BEY-6: asin of small numbers", "asin", mp.asin, [magnitudes(-30, 0, True)], 3, 3),
    ("BEY-6: atan", "atan", mp.atan, [magnitudes(-30, 30, True)], 2, 2),
    ("BEY-6: acosh", "acosh", mp.acosh, [1 + magnitudes(-6, 30)], 3, 3),
    ("BEY-6: asinh", "asinh", mp.asinh, [magnitudes(-30, 30, True)], 3, 3),
    ("BEY-6: atanh", "atanh", mp.atanh, [between(-1, 1)], 3, 3),
    ("BEY-6: atanh of small numbers", "atanh", mp.atanh, [magnitudes(-30, 0, True)], 3, 3),
    ("BEY-6: sinh", "sinh", mp.sinh, [magnitudes(-10, 1.9, True)], 3, 3),
    ("BEY-6: sinh where exp overflows in f32", "sinh", mp.sinh, [between(88, 89.3)], 3, 3),
    ("BEY-6: cosh", "cosh", mp.cosh, [magnitudes(-10, 1.9, True)], 3, 3),
    ("BEY-6: cosh where exp overflows in f32", "cosh", mp.cosh, [between(-89.3, -88)], 3, 3),
    ("BEY-80: erfc", "erfc", mp.erfc, [between(-3, 9)], 4, 4),
    ("BEY-80: erfc to the end of f64", "erfc", mp.erfc, [between(0, 27)], 4, 4),
    ("BEY-80: erf_inv", "erf_inv", mp.erfinv, [between(-0.999, 0.999)], 4, 4),
    ("BEY-80: erf_inv near 1", "erf_inv", mp.erfinv, [1 - magnitudes(-7, -1)], 4, 4),
    ("BEY-80: erf_inv of small numbers", "erf_inv", mp.erfinv, [magnitudes(-30, 0, True)], 4, 4),
    ("BEY-80: lgamma", "lgamma", mp.loggamma, [between(0, 20)], 4, 4),
    ("BEY-80: lgamma of small and large numbers", "lgamma", mp.loggamma, [magnitudes(-30, 30)], 4, 4),
    ("BEY-80: lgamma near its zero 1", "lgamma", mp.loggamma, [1 + magnitudes(-7, -1, True)], 4, 4),
    ("BEY-80: lgamma near its zero 2", "lgamma", mp.loggamma, [2 + magnitudes(-7, -1, True)], 4, 4),
    ("BEY-80: digamma", "digamma", mp.digamma, [between(0, 20)], 4, 4),
    ("BEY-80: digamma of small and large numbers", "digamma", mp.digamma, [magnitudes(-30, 30)], 4, 4),
    ("BEY-80: digamma near its zero", "digamma", mp.digamma, [1.4616321 + magnitudes(-7, -1, True)], 4, 4),
    ("BEY-80: bessel_i0e", "bessel_i0e", scaled_bessel(0), [between(-30, 30)], 4, 4),
    ("BEY-80: bessel_i0e of large numbers", "bessel_i0e", scaled_bessel(0), [magnitudes(0, 5)], 4, 4),
    ("BEY-80: bessel_i1e", "bessel_i1e", scaled_bessel(1), [between(-30, 30)], 4, 4),
    ("BEY-80: bessel_i1e of small and large numbers", "bessel_i1e", scaled_bessel(1), [magnitudes(-10, 5, True)], 4, 4),
    ("BEY-80: zeta", "zeta", mp.zeta, [1 + magnitudes(-2, 1.2), magnitudes(-1, 2)], 16, 16),
    ("BEY-80: polygamma", "polygamma", polygamma, [np.arange(COUNT) % 6, magnitudes(-1, 2)], 16, 16),
    ("BEY-80: igamma", "igamma", lower_gamma, [_SHAPES, _QUANTILES], 64, 64),
    ("BEY-80: igamma of large shapes", "igamma", lower_gamma, [_LARGE_SHAPES, _LARGE_QUANTILES], 200, 200),
    ("BEY-80: igammac", "igammac", upper_gamma, [_SHAPES, _QUANTILES], 64, 64),
    ("BEY-80: igammac of large shapes", "igammac", upper_gamma, [_LARGE_SHAPES, _LARGE_QUANTILES], 200, 200),
    ("BEY-80: igamma_grad_a", "igamma_grad_a", lower_gamma_slope, [_SHAPES[:20], _QUANTILES[:20]], 64, 64),
    ("BEY-80: random_gamma_grad", "random_gamma_grad", gamma_sample_slope, [_SHAPES[:20], _QUANTILES[:20]], 64, 64),
    ("BEY-80: random_gamma_grad of large shapes", "random_gamma_grad", gamma_sample_slope,
     [_LARGE_SHAPES[:20], _LARGE_QUANTILES[:20]], 200, 200),
    ("BEY-80: igamma of shapes above 500", "igamma", lower_gamma, [_HUGE_SHAPES, _HUGE_QUANTILES], 64, 64),
    ("BEY-80: igammac of shapes above 500", "igammac", upper_gamma, [_HUGE_SHAPES, _HUGE_QUANTILES], 64, 64),
    ("BEY-80: igamma_grad_a of shapes above 500", "igamma_grad_a", lower_gamma_slope,
     [_HUGE_SHAPES, _HUGE_QUANTILES], 64, 64),
    ("BEY-80: regularized_incomplete_beta", "regularized_incomplete_beta", incomplete_beta, _BETA, 300, 300),
]  # fmt: skip


@rule("BEY-6", "BEY-80")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("row", ACCURACY, ids=[row[0] for row in ACCURACY])
def test_error_in_ulps(row: Any, dtype: Any) -> None:
    _, function, witness, points, f32, f64 = row
    assert worst(getattr(hk, function), witness, points, dtype) <= (f32 if dtype is np.float32 else f64)


@rule("BEY-80")
@pytest.mark.parametrize(("function", "witness"), [("lgamma", log_abs_gamma), ("digamma", mp.digamma)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reflected_functions_have_a_small_absolute_error(function: str, witness: Any, dtype: Any) -> None:
    """They have zeros between the poles: there the error is relative to the terms that cancel."""
    points = np.linspace(-19.97, -0.03, COUNT).astype(dtype)
    found = run(getattr(hk, function), points)
    for point, value in zip(points, found):
        wanted = witness(mpf(float(point)))
        assert abs(float(value) - wanted) <= 20 * np.finfo(dtype).eps * (3 + abs(wanted) + abs(point))


# rule, function, operands, results
SPECIAL: list[tuple[str, str, Sequence[Sequence[float]], Sequence[float]]] = [
    ("BEY-6: acos", "acos", [[1, -1, 0, 2, -INF, NAN]], [0, math.pi, math.pi / 2, NAN, NAN, NAN]),
    ("BEY-6: asin", "asin", [[1, -1, -0.0, 2, INF, NAN]], [math.pi / 2, -math.pi / 2, -0.0, NAN, NAN, NAN]),
    ("BEY-6: atan", "atan", [[INF, -INF, -0.0, NAN]], [math.pi / 2, -math.pi / 2, -0.0, NAN]),
    ("BEY-6: acosh", "acosh", [[1, 0.5, -3, -INF, INF, NAN, -1e30]], [0, NAN, NAN, NAN, INF, NAN, NAN]),
    ("BEY-6: asinh", "asinh", [[INF, -INF, -0.0, NAN]], [INF, -INF, -0.0, NAN]),
    ("BEY-6: atanh", "atanh", [[1, -1, -0.0, 1.5, -INF, NAN, 3e38]], [INF, -INF, -0.0, NAN, NAN, NAN, NAN]),
    ("BEY-6: sinh", "sinh", [[INF, -INF, -0.0, NAN, 1e4, -1e4]], [INF, -INF, -0.0, NAN, INF, -INF]),
    ("BEY-6: cosh", "cosh", [[INF, -INF, -0.0, NAN, -1e4]], [INF, INF, 1, NAN, INF]),
    ("BEY-80: erfc", "erfc", [[INF, -INF, 0, NAN, 1e30, -40]], [0, 2, 1, NAN, 0, 2]),
    ("BEY-80: erf_inv", "erf_inv", [[1, -1, -0.0, 1.5, -INF, NAN]], [INF, -INF, -0.0, NAN, NAN, NAN]),
    ("BEY-80: lgamma", "lgamma", [[0, -0.0, -3, INF, -INF, NAN, 1, 2, -5e36, -3e38]], [*[INF] * 5, NAN, 0, 0, INF, INF]),
    ("BEY-80: digamma", "digamma", [[0, -0.0, -3, INF, -INF, NAN]], [NAN, NAN, NAN, INF, NAN, NAN]),
    ("BEY-80: bessel_i0e", "bessel_i0e", [[0, INF, -INF, NAN]], [1, 0, 0, NAN]),
    ("BEY-80: bessel_i1e", "bessel_i1e", [[-0.0, INF, -INF, NAN]], [-0.0, 0, -0.0, NAN]),
    ("BEY-80: igamma", "igamma", [[1, 1, 0, -1, 2, NAN, INF, 2], [0, INF, 1, 1, -1, 1, 1, NAN]],
     [0, 1, NAN, NAN, NAN, NAN, 0, NAN]),
    ("BEY-80: igammac", "igammac", [[1, 1, 0, -1, 2, NAN, INF, 2], [0, INF, 1, 1, -1, 1, 1, NAN]],
     [1, 0, 1, 1, 1, NAN, 1, NAN]),
    ("BEY-80: igamma_grad_a", "igamma_grad_a", [[1, 1, 0, 2, NAN], [0, INF, 1, -1, 1]], [0, 0, NAN, NAN, NAN]),
    ("BEY-80: random_gamma_grad", "random_gamma_grad", [[1, 0, 2, NAN], [0, 1, -1, 1]], [0, NAN, NAN, NAN]),
    ("BEY-80: regularized_incomplete_beta", "regularized_incomplete_beta",
     [[2, 2, 0, 2, 2, 2, INF, 2], [3, 3, 1, -1, 1, 1, 1, NAN], [0, 1, 0.5, 0.5, 1.5, -0.5, 0.5, 0.5]],
     [0, 1, NAN, NAN, NAN, NAN, NAN, NAN]),
    ("BEY-80: zeta", "zeta", [[1, 0.5, 2, 3, 2.5, 2, INF, NAN, 2, NAN], [2, 2, 0, -1, -0.5, INF, 1, 2, -1000.5, INF]],
     [INF, NAN, INF, NAN, NAN, 0, 1, NAN, NAN, NAN]),
    ("BEY-80: polygamma", "polygamma", [[-1, 0.5, 0, 1, NAN], [1, 1, 0, 0, 1]], [NAN, NAN, NAN, INF, NAN]),
    ("BEY-80: reciprocal", "reciprocal", [[2, 0, -0.0, INF, NAN]], [0.5, INF, -INF, 0, NAN]),
    ("BEY-80: square", "square", [[-3, INF, NAN]], [9, INF, NAN]),
    ("BEY-80: round_to_even", "round_to_even", [[0.5, 1.5, -2.5]], [0, 2, -2]),
    ("BEY-80: is_inf", "is_inf", [[INF, -INF, NAN, 1]], [1, 1, 0, 0]),
    ("BEY-80: is_pos_inf", "is_pos_inf", [[INF, -INF, NAN, 1]], [1, 0, 0, 0]),
    ("BEY-80: is_neg_inf", "is_neg_inf", [[INF, -INF, NAN, 1]], [0, 1, 0, 0]),
    ("BEY-80: is_nan", "is_nan", [[INF, -INF, NAN, 1]], [0, 0, 1, 0]),
    ("BEY-80: is_neg_zero", "is_neg_zero", [[0, -0.0, -NAN, -1]], [0, 1, 0, 0]),
]  # fmt: skip


@rule("BEY-6", "BEY-80")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("row", SPECIAL, ids=[row[0] for row in SPECIAL])
def test_special_points(row: Any, dtype: Any) -> None:
    _, function, columns, wanted = row
    with np.errstate(over="ignore"):
        found = run(getattr(hk, function), *(np.array(c).astype(dtype) for c in columns)).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=2 * np.finfo(dtype).eps, atol=0)
    zeros = np.array(wanted) == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(np.array(wanted)[zeros]))


@rule("BEY-80")
@pytest.mark.parametrize("x", [2.0, 4.0, 7.0])
def test_zeta_and_polygamma_at_negative_numbers(x: float) -> None:
    """BEY-80: the terms before q + k becomes positive are summed one by one."""
    q = -np.linspace(0.03, 29.97, COUNT)
    found = run(hk.zeta, np.full(COUNT, x), q)
    wanted = [mp.nsum(lambda k, q=v: 1 / (q + k) ** x, [0, 40]) + mp.zeta(x, v + 41) for v in q.tolist()]
    np.testing.assert_allclose(found, np.array(wanted, float), rtol=1e-12)


# -- complex operands

COMPLEX = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh"]


def complex_points() -> Any:
    """Of every size, and near the branch points 1, -1, i and -i."""
    wide = magnitudes(-12, 2, True) + 1j * magnitudes(-12, 0.5, True)
    near = RANDOM.choice([1, -1, 1j, -1j], COUNT) * (1 + magnitudes(-6, -1, True) + 1j * magnitudes(-6, -1, True))
    return np.concatenate([wide, near])


_POINTS = complex_points()


@rule("BEY-6")
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("function", COMPLEX, ids=[f"BEY-6: {name} of complex operands" for name in COMPLEX])
def test_each_part_of_a_complex_result(function: str, dtype: Any) -> None:
    points = _POINTS[abs(_POINTS.real) < 88].astype(dtype)
    found = run(getattr(hk, function), points)
    component = np.finfo(dtype).dtype
    for point, value in zip(points, found):
        wanted = getattr(mp, function)(mp.mpc(float(point.real), float(point.imag)))
        assert ulps(value.real, wanted.real, component) <= 5
        assert ulps(value.imag, wanted.imag, component) <= 5


@rule("BEY-6")
@pytest.mark.parametrize("function", COMPLEX, ids=[f"BEY-6: branch cuts and infinities of {name}" for name in COMPLEX])
def test_branch_cuts_signed_zeros_and_infinities(function: str) -> None:
    """Python's cmath follows C99, Annex G; where it raises there is nothing to compare."""
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, INF, -INF, 1e300, -1e300]
    points = [complex(a, b) for a in values for b in values]
    for point, value in zip(points, run(getattr(hk, function), np.array(points))):
        try:
            wanted = getattr(cmath, function)(point)
        except (ValueError, OverflowError):
            continue
        for f, w in ((value.real, wanted.real), (value.imag, wanted.imag)):
            assert (math.isnan(f) and math.isnan(w)) or math.isclose(f, w, rel_tol=1e-15), point
            assert math.isnan(w) or np.signbit(f) == np.signbit(w), point


# -- element types and shapes

NARROW = [hk.f16, hk.bf16, hk.f8e5m2, hk.f8e4m3fn]


@rule("BEY-6", "BEY-80")
@pytest.mark.parametrize("narrow", NARROW, ids=str)
@pytest.mark.parametrize("function", ["cosh", "atanh", "erfc", "lgamma", "digamma", "bessel_i1e"])
def test_narrow_types_are_rounded_once_from_f32(function: str, narrow: hk.DType) -> None:
    """BEY-6, BEY-80: f16, bf16 and f8 are computed in f32."""
    points = np.array([0.25, 0.5, 0.875, 0.0625]).astype(narrow.numpy)
    wanted = run(getattr(hk, function), points.astype(np.float32)).astype(narrow.numpy)
    np.testing.assert_array_equal(run(getattr(hk, function), points), wanted)


@rule("BEY-80")
@pytest.mark.parametrize("narrow", [hk.f8e4m3fn, hk.f8e4m3fnuz, hk.f4e2m1fn, hk.f8e8m0fnu], ids=str)
def test_predicates_of_types_without_infinities(narrow: hk.DType) -> None:
    points = np.array([1.0, 2.0, 4.0]).astype(narrow.numpy)
    for predicate in (hk.is_inf, hk.is_pos_inf, hk.is_neg_inf, hk.is_neg_zero):
        assert not run(predicate, points).any()


@rule("BEY-80")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_next_after(dtype: Any) -> None:
    """BEY-80: next_after steps by one in the order of the bits, through zero and into infinity."""
    values = [0, -0.0, 1, -1, 2.5, INF, -INF, NAN, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal]
    pairs = np.array([(a, b) for a in values for b in values], dtype).T
    with np.errstate(over="ignore"):
        found, wanted = run(hk.next_after, *pairs), np.nextafter(*pairs)
    np.testing.assert_array_equal(found, wanted)
    differ = pairs[0] != pairs[1]  # where they are equal, and zeros of two signs, it is the second one
    numbers = ~np.isnan(wanted)
    expected = np.where(differ, np.signbit(wanted), np.signbit(pairs[1]))
    np.testing.assert_array_equal(np.signbit(found[numbers]), expected[numbers])


@rule("BEY-80")
def test_next_after_bf16() -> None:
    found = run(hk.next_after, np.array([1, -1], hk.bf16.numpy), np.array([2, 2], hk.bf16.numpy))
    assert found.astype(float).tolist() == [1 + 2**-7, -1 + 2**-8]


@rule("BEY-80")
def test_next_after_of_exponents_alone() -> None:
    with rejects("BEY-80"):
        run(hk.next_after, *[np.ones(2, dtypes.f8e8m0fnu.numpy)] * 2)


_EIGHT = [t for t in dtypes.DTYPES.values() if t.is_floating and t.bits == 8 and t is not dtypes.f8e8m0fnu]


@rule("BEY-80")
@pytest.mark.parametrize("dtype", _EIGHT, ids=str)
def test_next_after_of_eight_bits(dtype: dtypes.DType) -> None:
    """Every pair of numbers; some types have no -0, no infinity or one NaN."""
    values = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    start, end = (a.reshape(-1) for a in np.meshgrid(values, values))
    found, wanted = run(hk.next_after, start, end), np.nextafter(start, end)
    numbers = ~np.isnan(wanted)
    assert np.array_equal(np.isnan(found), ~numbers)
    assert np.array_equal(found[numbers].view(np.uint8), wanted[numbers].view(np.uint8))


@rule("BEY-80")
def test_empty_scalar_and_dynamic_operands() -> None:
    assert run(hk.igamma, np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)).shape == (0, 2)
    assert run(hk.lgamma, np.float32(3)).shape == ()
    builder = hk.Builder("dynamic")
    a, x = (builder.parameter(i, hk.f32["<=5"]) for i in range(2))
    module = builder.build([hk.igamma(a, x), hk.erfc(x), hk.is_neg_zero(x)])
    results = hk.evaluate(module, np.ones(3, np.float32), np.ones(3, np.float32))
    assert [np.shape(r) for r in results] == [(3,), (3,), (3,)]


@rule("BEY-80")
def test_numbers_stand_for_arrays() -> None:
    found = run(lambda x: hk.zeta(2.0, q=x), np.ones((2, 2)))
    np.testing.assert_allclose(found, np.full((2, 2), math.pi**2 / 6))


REJECTED = [
    ("BEY-6: acos of s16", lambda b: hk.acos(b(hk.s16[3])), "BEY-6"),
    ("BEY-6: cosh of s8", lambda b: hk.cosh(b(hk.s8[3])), "BEY-6"),
    ("BEY-6: asinh of pred", lambda b: hk.asinh(b(hk.pred[3])), "BEY-6"),
    ("BEY-80: erfc of s8", lambda b: hk.erfc(b(hk.s8[3])), "BEY-80"),
    ("BEY-80: lgamma of c64", lambda b: hk.lgamma(b(hk.c64[3])), "BEY-80"),
    ("BEY-80: igamma of two shapes", lambda b: hk.igamma(b(hk.f32[3, 1]), b(hk.f32[1])), "BEY-80"),
    ("BEY-80: zeta of two types", lambda b: hk.zeta(b(hk.f32[3]), b(hk.f64[3])), "BEY-80"),
    ("BEY-80: next_after of s32", lambda b: hk.next_after(b(hk.s32[3]), b(hk.s32[3])), "BEY-80"),
    ("BEY-80: next_after of two shapes", lambda b: hk.next_after(b(hk.f32[3]), b(hk.f32[2])), "BEY-80"),
    ("BEY-80: reciprocal of s32", lambda b: hk.reciprocal(b(hk.s32[3])), "BEY-80"),
    ("BEY-80: is_nan of c64", lambda b: hk.is_nan(b(hk.c64[3])), "BEY-80"),
    ("BEY-80: is_inf of s32", lambda b: hk.is_inf(b(hk.s32[3])), "BEY-80"),
]


@rule("BEY-6", "BEY-80")
@pytest.mark.parametrize(("build", "label"), [row[1:] for row in REJECTED], ids=[row[0] for row in REJECTED])
def test_rejected_operands(build: Any, label: str) -> None:
    builder = hk.Builder("test")
    numbers = iter(range(9))
    with rejects(label):
        build(lambda shape: builder.parameter(next(numbers), shape))


@rule("BEY-80")
def test_polynomials() -> None:
    x = np.array([0.5, -2.0])
    np.testing.assert_allclose(run(lambda v: hk.evaluate_polynomial(v, [3.0, 2.0, 1.0]), x), 3 * x * x + 2 * x + 1)
    np.testing.assert_allclose(run(lambda v: hk.evaluate_polynomial(v, []), x), [0, 0])
    chebyshev = run(lambda v: hk.evaluate_chebyshev_polynomial(v, [1.0, 2.0, 6.0]), x)
    np.testing.assert_allclose(chebyshev, 2 * (x / 2) ** 2 - 1 + 2 * (x / 2) + 3)


@rule("BEY-80")
def test_maybe_conjugate() -> None:
    value = np.array([1 + 2j])
    assert run(lambda v: hk.maybe_conjugate(v, True), value) == 1 - 2j
    assert run(lambda v: hk.maybe_conjugate(v, False), value) == 1 + 2j
    assert run(lambda v: hk.maybe_conjugate(v, True), np.array([3.0])) == 3


@pytest.mark.slow
def test_tables_are_what_the_derivation_makes() -> None:
    from hlokit.builder import tables
    from tests.derivations.tables import source

    assert source() == Path(tables.__file__).read_text(encoding="utf-8")
