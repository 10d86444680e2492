"""The transcendental primitives keep the bounds that bounds.py states."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.llvm import Value
from hlokit.cpu.math.bounds import BOUNDS
from hlokit.cpu.math.functions import has_short_rsqrt
from hlokit.cpu.math.primitives import emit
from hlokit.ops.numerics import from_bits, narrow, widen
from hlokit.types.dtype import DType, bf16, f16, f32, f64
from tests.cpu.accuracy import arguments, computed, errors_in_ulp, in_f64
from tests.cpu.native import avx2, host, map_arrays

IN_REGISTERS = [("tanh", f32), ("erf", f32), ("rsqrt", f32), ("pow", f32)]
"""What AVX-512 has tables or instructions for: other machines get other bits, within the same bounds."""
UNARY = sorted({name for name, _ in BOUNDS} - {"atan2", "pow"})


@pytest.mark.parametrize("name", sorted({name for name, _ in BOUNDS}))
def test_f32_keeps_its_bound(name: str) -> None:
    operands = arguments(name, f32, 50_000)
    errors = errors_in_ulp(name, f32, operands, computed(name, f32, operands, 16))
    worst = int(errors.argmax())
    assert errors[worst] <= BOUNDS[name, f32], [a[worst] for a in operands]


@pytest.mark.parametrize("name", sorted({name for name, _ in BOUNDS}))
def test_f64_keeps_its_bound(name: str) -> None:
    operands = arguments(name, f64, 300)
    errors = errors_in_ulp(name, f64, operands, computed(name, f64, operands, 8))
    worst = int(errors.argmax())
    assert errors[worst] <= BOUNDS[name, f64], [a[worst] for a in operands]


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_all_narrow_values(name: str, dtype: DType) -> None:
    """Within one unit of the narrow type: all but a tie's neighbours are the correctly rounded values."""
    x = from_bits(np.arange(1 << 16, dtype=np.uint16), dtype.numpy)

    def body(values: list[Value]) -> Value:
        wide = emit("convert", dtype, values, f32)
        return emit("convert", f32, [emit(name, f32, [wide], f32)], dtype)

    got = map_arrays(body, [x], [dtype], dtype, 16)
    with np.errstate(all="ignore"):
        exact = in_f64(name)(widen(x).astype(np.float64))
        if name == "exp":
            exact[exact < 2.0**-126] = 0  # machine code has 0 for denormals
        expected = narrow(exact, dtype.numpy)
    result, wanted = widen(got), widen(expected)
    same = (result == wanted) | (np.isnan(result) & np.isnan(wanted))
    steps = np.abs(got.view(np.int16).astype(int) - expected.view(np.int16).astype(int))
    assert (same | (steps <= 1)).all()
    assert same.mean() > 0.999


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", sorted({name for name, _ in BOUNDS}))
def test_the_bits_are_the_same_in_all_widths_and_mostly_without_avx512(name: str, dtype: DType) -> None:
    operands = arguments(name, dtype, 1000)
    first = computed(name, dtype, operands, 16)
    without = computed(name, dtype, operands, 16, avx2())
    if (name, dtype) not in IN_REGISTERS:
        np.testing.assert_array_equal(without, first)
    for lanes, target, wanted in ((1, None, first), (2, None, first), (64, None, first), (8, avx2(), without)):
        again = computed(name, dtype, operands, lanes, target)
        np.testing.assert_array_equal(again, wanted)
        assert (np.signbit(again) == np.signbit(wanted))[~np.isnan(wanted)].all()


@pytest.mark.parametrize(("name", "dtype"), IN_REGISTERS)
def test_bounds_without_avx512(name: str, dtype: DType) -> None:
    operands = arguments(name, dtype, 20_000)
    errors = errors_in_ulp(name, dtype, operands, computed(name, dtype, operands, 8, avx2()))
    assert errors.max() <= BOUNDS[name, dtype]


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_sine_and_cosine_stay_within_one(dtype: DType) -> None:
    k = np.arange(1, 20_000)
    near = (k * (np.pi / 2)).astype(dtype.numpy)
    for name in ("sin", "cos"):
        assert np.abs(computed(name, dtype, [near], 16)).max() <= 1


def test_division_by_a_root_multiplies() -> None:
    """1 / sqrt(y) and x / sqrt(y): special values as by division; strict code divides."""
    special = np.array([0.0, -0.0, 1e-45, 1e-40, 1.0, 4.0, 1e30, np.inf, -np.inf, -1.0, np.nan], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    b = hk.Builder("roots")
    p, q = b.parameter(0, hk.f32[x.size]), b.parameter(1, hk.f32[y.size])
    root = hk.sqrt(q)
    module = b.build([hk.div(p, root), hk.div(b.constant(1.0, hk.f32), root)])
    exe = hk.compile(module)
    with np.errstate(all="ignore"):
        for got, wanted in zip(exe(x, y), (x / np.sqrt(y), 1 / np.sqrt(y)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=3e-7, atol=1e-44)
            assert (np.signbit(got) == np.signbit(wanted))[~np.isnan(wanted)].all()
    if has_short_rsqrt(host()):
        assert "vdivps" not in exe.as_text("asm")
    for got, wanted in zip(hk.compile(module, strict=True)(x, y), hk.evaluate(module, x, y), strict=True):
        np.testing.assert_array_equal(got, wanted)
