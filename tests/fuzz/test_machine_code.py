"""What counts as the same where the language leaves rounding free: what is judged, and by how much."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import hlokit as hk
from hlokit.judge.closeness.spread import hangs_on_signs, near
from tests.fuzz.machine_code import wrong


def judged(text: str, change: Any, *inputs: Any) -> str | None:
    """The finding for a result that is the reference's, changed."""
    module = hk.parse(f"HloModule t\n{text}")
    expected = hk.evaluate(module, *inputs)
    return near(change(expected), expected, module, inputs, 0)


def test_what_is_called_may_round() -> None:
    text = """f { x = f32[4] parameter(0)
      y = f32[4] exponential(x)
      ROOT z = f32[4] sinh(y) }
    ENTRY e { x = f32[4] parameter(0)
      ROOT r = f32[4] call(x), to_apply=f }"""
    x = np.array([1, 2, 3, 4], np.float32)
    assert judged(text, lambda r: r * np.float32(1 + 2e-6), x) is None
    assert judged(text, lambda r: r * np.float32(1.01), x)


def test_what_is_mapped_may_round() -> None:
    text = """f { x = f32[] parameter(0)
      y = f32[] tanh(x)
      ROOT z = f64[] convert(y) }
    ENTRY e { x = f32[4] parameter(0)
      ROOT r = f64[4] map(x), dimensions={0}, to_apply=f }"""
    x = np.array([-3, 0.5, 1, 2], np.float32)
    assert judged(text, lambda r: r * (1 + 1e-7), x) is None
    assert judged(text, lambda r: r * 1.0001, x)


def test_the_exponent_of_a_complex_power_rounds() -> None:
    text = """ENTRY e { x = c128[1] parameter(0)
      ROOT r = c128[1] power(x, x) }"""
    assert judged(text, lambda r: r * (1 + 1e-13), np.array([1.46 + 100j])) is None
    assert judged(text, lambda r: r * (1 + 1e-10), np.array([1.46 + 100j]))
    assert judged(text, lambda r: r * (1 + 1e-12), np.array([1.1 + 0.2j]))
    narrow = text.replace("c128", "c64")
    assert judged(narrow, lambda r: r * np.complex64(1 + 1e-4), np.array([1.46 + 10j], np.complex64))


def test_no_rule_tells_the_sign_of_a_nan() -> None:
    text = """ENTRY e { x = f32[999] parameter(0)
      y = f32[999] asin(x)
      ROOT r = s32[999] bitcast-convert(y) }"""
    x = np.full(999, 2, np.float32)
    assert judged(text, lambda r: r ^ np.int32(-(2**31)), x) is None


def test_a_part_of_a_complex_number_that_rounding_left() -> None:
    text = """ENTRY e { x = c64[3] parameter(0)
      q = c64[3] divide(x, x)
      ROOT r = c64[3] acos(q) }"""
    x = np.array([1 + 2j, 3 - 1j, 0.1 + 0.7j], np.complex64)
    assert judged(text, lambda r: r + np.complex64(8e-5 - 8e-5j), x) is None
    assert judged(text, lambda r: r + np.complex64(0.1), x)
    real = np.array([1, 3, 0.1], np.complex64)  # nothing is rounded to its zero
    assert judged(text.replace("acos", "sqrt"), lambda r: r + np.complex64(1e-3j), real)


def test_one_part_of_a_complex_product_cancels_and_the_other_overflows() -> None:
    text = """ENTRY e { x = c64[1] parameter(0)
      y = c64[1] parameter(1)
      ROOT r = c64[1] multiply(x, y) }"""
    x, y = np.array([1.3e17 + 3e30j], np.complex64), np.array([3e20 + 1.3e7j], np.complex64)  # 3.9e37 - 3.9e37

    def with_real(real: float) -> Any:
        return lambda r: np.array([complex(real, r.imag[0])], np.complex64)

    assert judged(text, with_real(0.0), x, y) is None
    assert judged(text, with_real(1e34), x, y)


def test_what_overflows_on_other_steps() -> None:
    text = """ENTRY e { x = f32[1,5] parameter(0)
      f = c64[1,3] fft(x), fft_type=RFFT, fft_length={5}
      ROOT r = c64[1,3] acos(f) }"""

    def changed(result: Any) -> Any:
        result = result.copy()
        result[0, 1] += 0.5
        return result

    x = np.array([[1, 2, 3, 4, 5]], np.float32)
    assert judged(text, changed, x)
    x[:] = [3e38, 3e38, 3e38, -2.4, 0.2]
    assert judged(text, changed, x) is None


def test_no_rule_tells_the_sign_of_a_zero_that_a_nan_became() -> None:
    text = """HloModule m
    ENTRY e { x = f4e2m1fn[2] parameter(0)
      y = f4e2m1fn[2] remainder(x, x)
      ROOT r = f4e2m1fn[2] rsqrt(y) }"""
    module, x = hk.parse(text), np.zeros(2, ml_dtypes.float4_e2m1fn)
    assert wrong(module, 0, given=[x]) is None
    result = hk.evaluate(module, x)
    assert hangs_on_signs(-result, result, module, [x], 0)
    other = hk.parse(text.replace("rsqrt", "abs"))
    zero = hk.evaluate(other, x)
    assert not hangs_on_signs(zero + 1, zero, other, [x], 0)


def test_contractions_may_take_denormals_for_zeros() -> None:
    """Infinity times a denormal is NaN then, and what is made of it."""
    text = """ENTRY e { x = bf16[2] parameter(0)
      y = bf16[2] parameter(1)
      s = bf16[2] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}
      ROOT r = bf16[2] rsqrt(s) }"""
    x, y = (np.array(values, ml_dtypes.bfloat16) for values in ([np.inf, np.inf], [1e-40, 1]))

    def changed(index: int) -> Any:
        return lambda r: np.where(np.arange(2) == index, np.nan, r).astype(r.dtype)

    assert judged(text, changed(0), x, y) is None
    assert judged(text, changed(1), x, y)
    assert judged(text.replace("bf16", "f16"), changed(0), x.astype(np.float16), np.array([6e-8, 1], np.float16))


def test_products_overflow_alone_but_not_in_a_fused_multiply_add() -> None:
    """The reference has inf - inf."""
    text = """ENTRY e { x = f32[3] parameter(0)
      y = f32[3] parameter(1)
      d = f32[] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
      ROOT r = f32[] tanh(d) }"""
    x, y = np.float32([-2.5, -2.7, 1.5]), np.float32([3e38, -3e38, 1])

    def changed(result: Any) -> Any:
        return np.ones_like(result)

    assert np.isnan(hk.evaluate(hk.parse("HloModule t\n" + text), x, y))
    assert judged(text, changed, x, y) is None
    assert judged(text, changed, np.float32([2.5, np.inf, 1]), y) is None
    assert judged(text, changed, np.float32([np.inf, np.inf, 1]), np.float32([1, -1, 1]))
    separate = """ENTRY e { x = f32[] parameter(0)
      y = f32[] parameter(1)
      p = f32[] multiply(x, x)
      q = f32[] multiply(x, y)
      s = f32[] add(p, q)
      ROOT r = f32[] tanh(s) }"""
    assert judged(separate, changed, np.float32(-3e38), np.float32(2)) is None
    assert judged(separate, changed, np.float32(-np.inf), np.float32(2))


def test_values_of_run_time_sizes_overflow() -> None:
    text = """ENTRY e { x = f32[2] parameter(0)
      n = s32[] constant(1)
      y = f32[<=2] set-dimension-size(x, n), dimensions={0}
      z = f32[<=2] multiply(y, x)
      w = f32[2] multiply(x, x)
      v = f32[2] subtract(w, w)
      ROOT t = (s32[], f32[2]) tuple(n, v) }"""
    x = np.array([3e38, 2], np.float32)
    assert judged(text, lambda r: (r[0], np.zeros(2, np.float32)), x) is None
    assert judged(text, lambda r: (r[0], np.ones(2, np.float32)), x)


def test_a_number_that_only_small_steps_meet_is_near() -> None:
    """The remainder of x by its floor is 0 at integers alone, and |1/sqrt(z)| is 2 rounded down here."""
    text = (
        "ENTRY e { z = c64[512] parameter(0) r = c64[512] rsqrt(z) a = f32[512] abs(r) f = f32[512] floor(a)\n"
        "m = f32[512] remainder(f, a) ROOT d = f32[512] divide(m, f) }"
    )
    inputs = np.full(512, -0.2 - 0.15j, np.complex64)
    assert judged(text, np.zeros_like, inputs) is None
    assert judged(text, lambda expected: expected + np.float32(40), inputs) is not None


def test_batch_norms_by_a_variance_that_overflows() -> None:
    """In f32 it is infinite, which makes zero of a difference; the reference computes in f64. And what is made of it."""
    text = """ENTRY e { x = f32[3,1] parameter(0)
      s = f32[1] parameter(1)
      o = f32[1] parameter(2)
      b = (f32[3,1], f32[1], f32[1]) batch-norm-training(x, s, o), epsilon=0.5, feature_index=1
      y = f32[3,1] get-tuple-element(b), index=0
      ROOT r = f32[3,1] exponential-minus-one(y) }"""

    def changed(result: Any) -> Any:
        return np.full_like(result, np.expm1(-2.5))

    x, offset = np.float32([[3e38], [1], [2]]), np.float32([-2.5])
    assert judged(text, changed, x, np.float32([3e38]), offset) is None
    assert judged(text, changed, np.float32([[3], [1], [2]]), np.float32([1]), offset)


def test_any_order_of_nans_whose_signs_no_rule_tells() -> None:
    """Of five the last one may be any: few runs met the one that machine code chose."""
    text = """before { a = f32[] parameter(0)
      b = f32[] parameter(1)
      c = f64[] parameter(2)
      d = f64[] parameter(3)
      ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER }
    ENTRY e { x = f32[5] parameter(0)
      y = f64[5] parameter(1)
      k = f32[5] asin(x)
      s = (f32[5], f64[5]) sort(k, y), dimensions={0}, is_stable=true, to_apply=before
      ROOT r = f64[5] get-tuple-element(s), index=1 }"""
    x, y = np.full(5, 2, np.float32), np.array([-np.inf, 0.18, -0.73, 2.81, 1.94])
    for first in range(5):
        assert judged(text, lambda _, first=first: np.roll(y, -first), x, y) is None
    assert judged(text.replace("asin", "abs"), lambda _: np.roll(y, -1), x, y)
