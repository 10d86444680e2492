"""What random programs found in compiled code: a small program for each fault that they showed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.target import parse
from hlokit.judge.closeness.equality import differs
from hlokit.ops.transcendental import Transcendental

ADD = "add { a = TYPE[] parameter(0)\n b = TYPE[] parameter(1)\n ROOT r = TYPE[] add(a, b) }\n"
SECOND = "second { a = TYPE[] parameter(0)\n ROOT b = TYPE[] parameter(1) }\n"


def check(text: str, *inputs: Any, type: str = "s32", **options: Any) -> Any:
    """Strict code, default code and the reference agree; gives the value."""
    module = hk.parse("HloModule found\n" + text.replace("TYPE", type))
    expected = hk.evaluate(module, *inputs)
    for strict in (False, True):
        for threads in (1, 2):
            given = tuple(np.array(i) for i in inputs)
            got = hk.compile(module, strict=strict, threads=threads, **options)(*given)
            assert differs(got, expected) is None, differs(got, expected)
    return expected


def test_update_of_nothing_keeps_the_array() -> None:
    check(
        """ENTRY e { x = f32[5,4,2] parameter(0)
          u = f32[5,0,2] parameter(1)
          i = s32[] constant(1)
          ROOT r = f32[5,4,2] dynamic-update-slice(x, u, i, i, i) }""",
        np.arange(40, dtype=np.float32).reshape(5, 4, 2),
        np.zeros((5, 0, 2), np.float32),
    )


def test_donated_arrays_of_another_type_or_shape() -> None:
    text = """ENTRY e { x = f32[2,3] parameter(0)
      y = s32[6] parameter(1)
      f = f32[6] convert(y)
      r = s32[2,3] bitcast-convert(x)
      s = s32[6] reshape(r)
      q = s32[3,2] reshape(s)
      ROOT t = (f32[6], s32[6], s32[3,2]) tuple(f, s, q) }"""
    check(text, np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(6, dtype=np.int32), donate=(0, 1))


def test_a_scan_with_an_effect_in_its_step_is_expanded_once() -> None:
    text = """step { x = f32[] parameter(0)
      c = f32[] parameter(1)
      n = u64[2] rng-get-and-update-state(), delta=2
      ROOT t = (f32[], f32[]) tuple(c, x) }
    ENTRY e { x = f32[3] parameter(0)
      c = f32[] parameter(1)
      s = (f32[3], f32[]) scan(x, c), dimensions={0}, num_carries=1, is_reverse=false, is_associative=false, to_apply=step
      g = f32[3] get-tuple-element(s), index=0
      n = u64[2] rng-get-and-update-state(), delta=1
      ROOT t = (f32[3], u64[2]) tuple(g, n) }"""
    check(text, np.arange(3, dtype=np.float32), np.float32(7))


def test_strict_rsqrt_is_rounded_once() -> None:
    x = np.linspace(0.5, 4, 999).astype(np.float32)
    module = hk.parse("HloModule t\nENTRY e { x = f32[999] parameter(0)\n ROOT r = f32[999] rsqrt(x) }")
    assert differs(hk.compile(module, strict=True)(x), hk.evaluate(module, x)) is None


def test_a_fold_whose_other_result_is_stored_later() -> None:
    """The reference takes one result of a fold that is built already for another."""
    text = """both { a = f64[] parameter(0)
      b = s32[] parameter(1)
      c = f64[] parameter(2)
      d = s32[] parameter(3)
      m = f64[] maximum(a, c)
      o = s32[] or(b, d)
      ROOT t = (f64[], s32[]) tuple(m, o) }
    ENTRY e { x = f64[4,6] parameter(0)
      y = s32[4,6] parameter(1)
      i = f64[] parameter(2)
      j = s32[] parameter(3)
      r = (f64[4], s32[4]) reduce(x, y, i, j), dimensions={1}, to_apply=both
      f = f64[4] get-tuple-element(r), index=0
      g = s32[4] get-tuple-element(r), index=1
      h = f64[4] atan(f)
      ROOT t = (s32[4], f64[4]) tuple(g, h) }"""
    module = hk.parse("HloModule t\n" + text)
    x = np.linspace(-2, 2, 24).reshape(4, 6)
    inputs = (x, np.arange(24, dtype=np.int32).reshape(4, 6), np.float64(-9), np.int32(0))
    assert differs(hk.compile(module, strict=True)(*inputs), hk.evaluate(module, *inputs)) is None


def test_strict_scatter_into_what_the_reference_computes() -> None:
    text = (
        ADD.replace("TYPE", "f32")
        + """ENTRY e { x = f32[9] parameter(0)
      i = s32[3,1] parameter(1)
      u = f32[3] parameter(2)
      y = f32[9] exponential(x)
      z = f32[9] multiply(y, y)
      ROOT r = f32[9] scatter(z, i, u), update_window_dims={}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add }"""
    )
    module = hk.parse("HloModule t\n" + text)
    inputs = (np.linspace(-1, 1, 9).astype(np.float32), np.array([[1], [1], [8]], np.int32), np.ones(3, np.float32))
    assert differs(hk.compile(module, strict=True)(*inputs), hk.evaluate(module, *inputs)) is None


def test_overlapping_windows_are_written_in_order() -> None:
    """Windows lie outside the indices in the updates: the last update in their order stays."""
    text = (
        SECOND
        + """ENTRY e { x = s32[11,7] parameter(0)
      i = s32[64,2] parameter(1)
      u = s32[4,64] parameter(2)
      ROOT r = s32[11,7] scatter(x, i, u), update_window_dims={0}, inserted_window_dims={1},
        scatter_dims_to_operand_dims={1,0}, index_vector_dim=1, to_apply=second }"""
    )
    source = np.random.default_rng(0)
    indices = np.stack([source.integers(0, 7, 64), source.integers(0, 8, 64)], 1).astype(np.int32)
    check(text, np.zeros((11, 7), np.int32), indices, np.arange(256, dtype=np.int32).reshape(4, 64))


def test_a_view_of_a_constant_is_another_constant() -> None:
    literal = np.arange(3000, dtype=np.int32)
    b = hk.Builder("t")
    constant = b.constant(literal)
    module = b.build([constant, hk.rev(constant, [0])])
    expected = hk.evaluate(module)
    assert expected[1][0] == 2999
    assert differs(hk.evaluate(hk.optimize(module)), expected) is None
    assert differs(hk.compile(module)(), expected) is None


def test_a_fold_below_a_guard_binds_other_axes() -> None:
    """A sum over an array as large as the kernel, read where padding has its elements."""
    text = (
        ADD
        + """ENTRY e { x = s32[17,33] parameter(0)
      y = s32[1,33] parameter(1)
      k = s32[] parameter(2)
      o = s32[] constant(0)
      d = s32[17,33] dynamic-update-slice(x, y, k, o)
      n = s32[] reduce(d, o), dimensions={0,1}, to_apply=add
      b = s32[17,33] broadcast(n), dimensions={}
      s = s32[1,33] slice(b), slice={[3:4], [0:33]}
      p = s32[17,33] pad(s, n), padding=16_0x0_0
      q = s32[17,33] add(p, b)
      ROOT t = (s32[17,33], s32[17,33]) tuple(p, q) }"""
    )
    x = np.arange(561, dtype=np.int32).reshape(17, 33)
    check(text, x, np.full((1, 33), -5, np.int32), np.int32(4))


def test_a_sum_says_where_an_update_goes() -> None:
    text = (
        ADD
        + """ENTRY e { x = s32[40] parameter(0)
      y = s32[5] parameter(1)
      u = s32[2] parameter(2)
      o = s32[] constant(0)
      n = s32[] reduce(y, o), dimensions={0}, to_apply=add
      ROOT r = s32[40] dynamic-update-slice(x, u, n) }"""
    )
    x = np.zeros(40, np.int32)
    check(text, x, np.arange(5, dtype=np.int32), np.array([7, 9], np.int32))


@pytest.mark.parametrize("after", ["copy", "rsqrt"])  # the reference has the second too
def test_a_strict_loop_over_elements_whose_body_the_reference_must_have(after: str) -> None:
    text = """cond { p = (s32[], f32[33,3]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] constant(20)
      ROOT r = pred[] compare(i, n), direction=LT }
    body { p = (s32[], f32[33,3]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      x = f32[33,3] get-tuple-element(p), index=1
      one = s32[] constant(1)
      j = s32[] add(i, one)
      y = f32[33,3] tanh(x)
      z = f32[33,3] add(y, x)
      ROOT t = (s32[], f32[33,3]) tuple(j, z) }
    ENTRY e { x = f32[33,3] parameter(0)
      o = s32[] constant(0)
      s = (s32[], f32[33,3]) tuple(o, x)
      w = (s32[], f32[33,3]) while(s), condition=cond, body=body
      l = f32[33,3] get-tuple-element(w), index=1
      t = f32[3,33] transpose(l), dimensions={1,0}
      ROOT r = f32[3,33] AFTER(t) }""".replace("AFTER", after)
    module = hk.parse("HloModule t\n" + text)
    x = np.linspace(0, 1, 99).astype(np.float32).reshape(33, 3)
    assert differs(hk.compile(module, strict=True)(x), hk.evaluate(module, x)) is None


@pytest.mark.parametrize("function", ["multiply", "divide", "power", "atan2"])
def test_strict_complex_arithmetic(function: str) -> None:
    text = f"ENTRY e {{ x = c64[99] parameter(0)\n y = c64[99] parameter(1)\n ROOT r = c64[99] {function}(x, y) }}"
    module = hk.parse("HloModule t\n" + text)
    source = np.random.default_rng(1)
    x, y = (source.normal(size=(2, 99, 2)).astype(np.float32)).view(np.complex64)[..., 0]
    assert differs(hk.compile(module, strict=True)(x, y), hk.evaluate(module, x, y)) is None


@pytest.mark.parametrize("opcode", ["cbrt", "log-plus-one", "sinh"])
def test_a_function_has_the_same_bits_of_what_lies_backwards(opcode: str) -> None:
    """Along negative strides NumPy's own would not."""
    text = f"ENTRY e {{ x = f64[99] parameter(0)\n y = f64[99] reverse(x), dimensions={{0}}\n ROOT r = f64[99] {opcode}(y) }}"
    module = hk.parse("HloModule t\n" + text)
    x = np.random.default_rng(3).uniform(0, 2, 99)
    forwards = hk.evaluate(hk.parse("HloModule t\n" + text.replace("reverse(x), dimensions={0}", "copy(x)")), x)
    np.testing.assert_array_equal(hk.evaluate(module, x), forwards[::-1])
    np.testing.assert_array_equal(hk.evaluate(module, x[::-1]), forwards)


def test_strict_batch_norm() -> None:
    text = """ENTRY e { x = f32[16,5] parameter(0)
      s = f32[5] parameter(1)
      ROOT r = (f32[16,5], f32[5], f32[5]) batch-norm-training(x, s, s), epsilon=0.001, feature_index=1 }"""
    module = hk.parse("HloModule t\n" + text)
    source = np.random.default_rng(2)
    inputs = source.normal(size=(16, 5)).astype(np.float32), np.ones(5, np.float32)
    assert differs(hk.compile(module, strict=True)(*inputs), hk.evaluate(module, *inputs)) is None


def test_imag_of_a_type_without_zero() -> None:
    import ml_dtypes

    x = np.array([1, 2, 4], ml_dtypes.float8_e8m0fnu)
    check("ENTRY e { x = f8e8m0fnu[3] parameter(0)\n ROOT r = f8e8m0fnu[3] imag(x) }", x)


def test_products_with_scales_of_no_blocks() -> None:
    text = """ENTRY e { x = f8e4m3fn[2,0] parameter(0)
      y = f8e4m3fn[3,0] parameter(1)
      a = f32[2,0] parameter(2)
      b = f32[3,0] parameter(3)
      ROOT r = f32[2,3] scaled-dot(x, y, a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1} }"""
    import ml_dtypes

    small, wide = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(np.float32)
    check(text, np.ones((2, 0), small), np.ones((3, 0), small), np.ones((2, 0), wide), np.ones((3, 0), wide))


def test_two_columns_of_a_product_are_no_complex_number() -> None:
    text = (
        ADD.replace("TYPE", "f32")
        + """ENTRY e { x = f32[4,3] parameter(0)
      y = f32[3,2] parameter(1)
      o = f32[] constant(0)
      m = f32[4,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = f32[4] reduce(m, o), dimensions={1}, to_apply=add }"""
    )
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(6, dtype=np.float32).reshape(3, 2)
    check(text, x, y)


def test_the_last_of_all_is_the_last() -> None:
    """A fold that takes the element always is no selection whose order does not matter."""
    text = (
        SECOND
        + """ENTRY e { x = s32[5,4,3,16] parameter(0)
      i = s32[] parameter(1)
      ROOT r = s32[4] reduce(x, i), dimensions={3,2,0}, to_apply=second }"""
    )
    check(text, np.arange(960, dtype=np.int32).reshape(5, 4, 3, 16), np.int32(7))


@pytest.mark.parametrize("function", ["sqrt", "rsqrt"])
@pytest.mark.parametrize("element", ["c64", "c128"])
def test_complex_roots_at_the_ends_of_the_range(element: str, function: str) -> None:
    """|a| + |z| overflows, or has few digits."""
    kind = np.float32 if element == "c64" else np.float64
    ends = np.finfo(kind)
    size = [0, 1, 0.3, ends.max, ends.max / 2, ends.smallest_normal, ends.smallest_subnormal * 3, np.inf, np.nan]
    parts = np.array([*size, *(-x for x in size)], kind)
    z = np.empty((len(parts), len(parts)), f"complex{2 * ends.bits}")
    z.real, z.imag = parts[:, None], parts
    shape = f"{element}[{len(parts)},{len(parts)}]"
    module = hk.parse(f"HloModule t\nENTRY e {{ z = {shape} parameter(0)\n ROOT r = {shape} {function}(z) }}")
    np.testing.assert_allclose(hk.compile(module)(z), hk.evaluate(module, z), rtol=4 * ends.eps, atol=0)


@pytest.mark.parametrize("last", [5, 16, 21])
def test_a_fold_inside_a_fold_binds_the_axis_of_the_vectors_again(last: int) -> None:
    text = (
        ADD
        + """ENTRY e { x = s32[3,25,LAST] parameter(0)
      o = s32[] constant(0)
      n = s32[3] reduce(x, o), dimensions={1,2}, to_apply=add
      m = s32[3,25,LAST] broadcast(n), dimensions={0}
      y = s32[3,25,LAST] subtract(x, m)
      z = s32[3,25,LAST] multiply(y, x)
      ROOT f = s32[LAST] reduce(z, o), dimensions={0,1}, to_apply=add }""".replace("LAST", str(last))
    )
    check(text, np.arange(75 * last, dtype=np.int32).reshape(3, 25, last))


@pytest.mark.parametrize("types", ["f8e8m0fnu f8e8m0fnu", "f32 f8e8m0fnu", "bf16 f8e8m0fnu", "f8e8m0fnu f32"])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 21), (8, 64)])
def test_the_least_power_of_two_is_no_denormal(types: str, sizes: tuple[int, int]) -> None:
    """2^-127 of f8e8m0fnu is a denormal of f32, in which products are summed: it is no zero, which would be NaN."""
    operand, result = types.split()
    rows, inner = sizes
    text = f"""ENTRY e {{ x = {operand}[{rows},{inner}] parameter(0)
      y = {operand}[{inner},16] parameter(1)
      d = {result}[{rows},16] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      i = {operand}[{rows},{inner},1] reshape(x)
      k = {operand}[{inner},16,1] reshape(y)
      c = {result}[{rows},16,1] convolution(i, k), window={{size=1}}, dim_labels=bf0_io0->bf0
      ROOT t = ({result}[{rows},16], {result}[{rows},16,1]) tuple(d, c) }}"""
    import ml_dtypes

    storage = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f8e8m0fnu": ml_dtypes.float8_e8m0fnu}[operand]
    x = np.full((rows, inner), 2.0**-6, np.float32).astype(storage)
    check(text, x, np.full((inner, 16), 2.0**-127, np.float32).astype(storage))


PRODUCTS_OF_BF16 = {
    "dot": "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "ragged-dot": """ragged-dot(x, z, n), lhs_contracting_dims={1}, rhs_contracting_dims={1},
      lhs_ragged_dims={0}, rhs_group_dims={0}""",
    "convolution": "convolution(x, y), window={}, dim_labels=bf_io->bf",
}


@pytest.mark.parametrize("opcode", PRODUCTS_OF_BF16)
def test_an_instruction_that_flushes_is_not_for_a_type_of_denormals(opcode: str) -> None:
    """Whatever machine this is: vdpbf16ps where denormals may be zeros, and not for results of f8e8m0fnu."""
    target = replace(parse("x86-64-avx512,+avx512bf16"), cpu="znver4")
    texts = []
    for result in ("f8e8m0fnu", "f32"):
        module = hk.parse(f"""HloModule m
            ENTRY e {{ x = bf16[48,64] parameter(0)
              y = bf16[64,48] parameter(1)
              z = bf16[2,64,48] parameter(2)
              n = s32[2] parameter(3)
              ROOT r = {result}[48,48] {PRODUCTS_OF_BF16[opcode]} }}""")
        texts.append(hk.compile(module, target=target).as_text("llvm"))
    assert ["dpbf16ps" in text for text in texts] == [False, True]


PRODUCTS = {
    "dot": "T[SIZE,SIZE] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "convolution": "T[SIZE,SIZE] convolution(x, y), window={}, dim_labels=bf_io->bf",
    "ragged-dot": """T[SIZE,SIZE] ragged-dot(x, w, n), lhs_contracting_dims={1}, rhs_contracting_dims={1},
      lhs_ragged_dims={0}, rhs_group_dims={0}""",
}


@pytest.mark.parametrize("size", [1, 5, 33])
@pytest.mark.parametrize("type", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("opcode", ["dot", "convolution", "ragged-dot"])
def test_products_take_denormals_for_zeros(opcode: str, type: str, size: int) -> None:
    """Of every size, but those of f16, which are normal numbers of f32; strict code and the reference keep them."""
    element = hk.DTYPES[type]
    least = {"f32": 1e-40, "f64": 1e-310, "bf16": 1e-40, "f16": 1e-6}[type]
    text = f"""HloModule m
    ENTRY e {{ x = T[SIZE,SIZE] parameter(0)
      y = T[SIZE,SIZE] parameter(1)
      w = T[1,SIZE,SIZE] reshape(y)
      n = s32[1] constant({{SIZE}})
      ROOT r = {PRODUCTS[opcode]} }}"""
    module = hk.parse(text.replace("T[", f"{type}[").replace("SIZE", str(size)))
    x, ones, infinities = (np.zeros((size, size), element.numpy) for _ in range(3))
    x[0, 0], ones[0], infinities[0] = least, 1, np.inf
    kept = x[0, 0]
    default, strict = hk.compile(module), hk.compile(module, strict=True)
    assert np.all(default(x, ones)[0] == (kept if type == "f16" else 0))
    first = default(x, infinities)[0].astype(np.float64)
    assert np.all(np.isinf(first) if type == "f16" else np.isnan(first))
    for run in (strict, lambda *values: hk.evaluate(module, *values)):
        assert np.all(run(x, ones)[0] == kept)
        assert np.all(np.isinf(run(x, infinities)[0].astype(np.float64)))


def test_an_epilogue_of_the_least_power_of_two() -> None:
    """It is no zero where the product's denormals are."""
    import ml_dtypes

    text = """ENTRY e { x = f32[64,64] parameter(0)
      s = f8e8m0fnu[64,64] parameter(1)
      d = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      c = f32[64,64] convert(s)
      ROOT m = f32[64,64] multiply(d, c) }"""
    check(
        text, np.ones((64, 64), np.float32), np.full((64, 64), 2.0**-127, np.float32).astype(ml_dtypes.float8_e8m0fnu)
    )


NORMAL = (0.0, 1e-30, 1e-20, 1e-10, 0.5, 1.0, 3.0, 88.0, 1e10, 1e20, 1e30)
LARGE = {"f32": (2e-38, 9e37, 1.8e38, 3e38), "f64": (3e-308, 1e308, 1.7e308)}
FUSED = {
    f"{name} {type}": f"{type}[64,4] {name}(d)"
    for name, op in hk.OPS.items()
    for type in LARGE
    if issubclass(op, Transcendental)
}
FUSED["reduce-precision f32"] = "f32[64,4] reduce-precision(d), exponent_bits=8, mantissa_bits=1"
FUSED["reduce-precision f64"] = "f64[64,4] reduce-precision(d), exponent_bits=11, mantissa_bits=1"


@pytest.mark.parametrize("name", FUSED)
def test_what_is_fused_to_a_product_is_right_for_normal_numbers(name: str) -> None:
    """Denormals are zeros there: log1p took 2^-127 for 0 on its way, reduce-precision the step between numbers."""
    type = name[-3:]
    text = f"""ENTRY e {{ x = T[64,2] parameter(0)
      y = T[2,4] parameter(1)
      d = T[64,4] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT r = {FUSED[name]} }}"""
    module = hk.parse("HloModule m\n" + text.replace("T[", f"{type}["))
    numbers = [*NORMAL, *LARGE[type]]
    numbers += [-number for number in numbers]
    x, y = np.zeros((64, 2)), np.array([[1] * 4, [0] * 4])
    x[: len(numbers), 0] = numbers
    x, y = (a.astype(hk.DTYPES[type].numpy) for a in (x, y))
    got, want = hk.compile(module)(x, y), hk.evaluate(module, x, y)
    np.testing.assert_allclose(got, want, 1e-5, float(np.finfo(x.dtype).tiny))


def test_a_quotient_of_a_complex_product_and_a_large_number() -> None:
    """It was 0: the reciprocal of the divisor, by which it multiplies, is a denormal, which a product takes for 0."""
    text = """ENTRY e { x = c64[8,2] parameter(0)
      y = c64[2,4] parameter(1)
      z = c64[8,4] parameter(2)
      d = c64[8,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = c64[8,4] divide(d, z) }"""
    x, y, z = (np.full(sizes, number, np.complex64) for sizes, number in (((8, 2), 1e37j), ((2, 4), 1), ((8, 4), 2e38j)))
    module = hk.parse("HloModule m\n" + text)
    np.testing.assert_allclose(hk.compile(module)(x, y, z), np.full((8, 4), 0.1, np.complex64), 1e-5)


ARGMAX = """argmax { a = TYPE[] parameter(0)
  i = s32[] parameter(1)
  b = TYPE[] parameter(2)
  j = s32[] parameter(3)
  gt = pred[] compare(a, b), direction=GT
  odd = pred[] compare(a, a), direction=NE
  or = pred[] or(gt, odd)
  value = TYPE[] select(or, a, b)
  eq = pred[] compare(a, b), direction=EQ
  lt = pred[] compare(i, j), direction=LT
  tie = pred[] and(eq, lt)
  any = pred[] or(or, tie)
  index = s32[] select(any, i, j)
  ROOT t = (TYPE[], s32[]) tuple(value, index) }
"""


@pytest.mark.parametrize(("rows", "size"), [(3, 33), (40, 70), (1, 1000)])
@pytest.mark.parametrize("type", ["f32", "f16"])
def test_argmax_of_several_nans_is_the_first_of_them(rows: int, size: int, type: str) -> None:
    x = np.random.default_rng(0).normal(size=(rows, size)).astype(type.replace("f", "float"))
    x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    text = f"""{ARGMAX} ENTRY e {{ x = TYPE[{rows},{size}] parameter(0)
      low = TYPE[] constant(-inf)
      zero = s32[] constant(0)
      j = s32[{rows},{size}] iota(), iota_dimension=1
      a = (TYPE[{rows}], s32[{rows}]) reduce(x, j, low, zero), dimensions={{1}}, to_apply=argmax
      y = TYPE[{size},{rows}] transpose(x), dimensions={{1,0}}
      z = TYPE[{rows * size}] reshape(y)
      k = s32[{rows * size}] iota(), iota_dimension=0
      b = (TYPE[], s32[]) reduce(z, k, low, zero), dimensions={{0}}, to_apply=argmax
      ai = s32[{rows}] get-tuple-element(a), index=1
      bi = s32[] get-tuple-element(b), index=1
      ROOT t = (s32[{rows}], s32[]) tuple(ai, bi) }}"""
    assert np.array_equal(check(text, x, type=type)[0], x.argmax(1))


@pytest.mark.parametrize("direction", ["GE", "GT"])
@pytest.mark.parametrize("payload", ["iota(), iota_dimension=1", "parameter(1)"])
def test_equals_of_several_values_keep_their_order(direction: str, payload: str) -> None:
    """REDUCE-17: the last of equals, or the first, whatever else the elements hold."""
    text = f"""better {{ a = s32[] parameter(0)
      i = s32[] parameter(1)
      b = s32[] parameter(2)
      j = s32[] parameter(3)
      c = pred[] compare(b, a), direction={direction}
      value = s32[] select(c, b, a)
      index = s32[] select(c, j, i)
      ROOT t = (s32[], s32[]) tuple(value, index) }}
    ENTRY e {{ x = s32[9,200] parameter(0)
      {"q = s32[9,200] parameter(1)" if "iota" in payload else ""}
      j = s32[9,200] {payload}
      low = s32[] constant(-1)
      ROOT a = (s32[9], s32[9]) reduce(x, j, low, low), dimensions={{1}}, to_apply=better }}"""
    x, other = np.random.default_rng(0).integers(0, 4, (2, 9, 200)).astype(np.int32)
    check(text, x, other * 1000 + np.arange(200, dtype=np.int32)[::-1])


def test_remainders_of_the_farthest_numbers() -> None:
    x = np.array([1.7e308, 1.7e308, -1.7e308, 1.7e308, 1e300, 5.0], np.float64)
    y = np.array([2.3e-308, 5e-324, 2.3e-308, 0.1, 1e-300, 3.0], np.float64)
    check("ENTRY e { x = f64[6] parameter(0)\n y = f64[6] parameter(1)\n ROOT r = f64[6] remainder(x, y) }", x, y)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_scatter_of_a_constant_that_is_widened_under_its_guard(count: int) -> None:
    """What the first update makes in its branch is not there where that was not taken."""
    import ml_dtypes

    text = f"""times {{ a = bf16[] parameter(0)
      b = bf16[] parameter(1)
      ROOT r = bf16[] multiply(a, b) }}
    ENTRY e {{ x = bf16[16] parameter(0)
      i = s32[{count},1] parameter(1)
      c = bf16[] constant(3)
      u = bf16[{count}] broadcast(c), dimensions={{}}
      ROOT s = bf16[16] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
        scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=times }}"""
    places = np.array([99, 3, 15, -1, 3, 0, 16, 2, 4], np.int32)[:count, None]
    check(text, np.arange(16).astype(ml_dtypes.bfloat16), places)


def test_kernels_that_need_each_other_through_a_step_stay_apart() -> None:
    """`a` and `b` share what is costly, `a` and `m` what they read; but `b` needs what is made of `m`."""
    costly = "\n".join(f"h{i + 1} = f32[64,512] divide(h{i}, {'xy'[i % 2]})" for i in range(9))
    text = f"""less {{ a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT r = pred[] compare(a, b), direction=LT }}
    ENTRY e {{ x = f32[64,512] parameter(0)
      y = f32[64,512] parameter(1)
      h0 = f32[64,512] divide(x, y)
      {costly}
      a = f32[64,512] subtract(h9, x)
      m = f32[64,512] multiply(x, y)
      s = f32[64,512] sort(m), dimensions={{1}}, to_apply=less
      b = f32[64,512] subtract(h9, s)
      ROOT t = (f32[64,512], f32[64,512]) tuple(a, b) }}"""
    x, y = np.random.default_rng(0).normal(size=(2, 64, 512)).astype(np.float32)
    check(text, x, y)


def test_a_piece_that_is_a_whole_axis() -> None:
    """All columns are changed from row 1 on, at each step of a scan: no step of their axis is in another piece."""
    text = """step { x = f32[3,2] parameter(0)
      c = f32[2,2] constant({{-1, 2}, {0.5, 0.42}})
      one = s32[] constant(1)
      r = f32[3,2] dynamic-update-slice(x, c, one, one)
      s = s32[] parameter(1)
      ROOT t = (f32[3,2], s32[]) tuple(r, s) }
    ENTRY e { x = f32[3,2,4] parameter(0)
      s = s32[] parameter(1)
      ROOT r = (f32[3,2,4], s32[]) scan(x, s), dimensions={2}, num_carries=1, is_reverse=true, is_associative=false,
        to_apply=step }"""
    check(text, np.arange(24, dtype=np.float32).reshape(3, 2, 4), np.int32(3))


def test_composites_are_compiled() -> None:
    """As JAX's top_k comes to a plugin: a call that says what it means, and how it is computed."""
    module = hk.parse("""HloModule m
halves { x = f32[4] parameter(0)
  h = f32[] constant(0.5)
  b = f32[4] broadcast(h), dimensions={}
  ROOT y = f32[4] multiply(x, b) }
ENTRY e {
  p = f32[4] parameter(0)
  ROOT c = f32[4] call(p), to_apply=halves, is_composite=true, frontend_attributes={composite.attributes={},composite.name="my.halves",composite.version="1"}
}""")
    executable = hk.compile(module)
    assert [reason for reason in executable.reasons if reason[1] == "not compiled"] == []
    assert executable(np.float32([2, 4, 6, 8])).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("columns", [1, 3, 40])
@pytest.mark.parametrize("flags", ["unique_indices=true", "indices_are_sorted=true, unique_indices=true"])
def test_scatters_whose_promises_are_broken(columns: int, flags: str) -> None:
    """Updates that collide although unique_indices says that none does: all of them count (SCATTER-23)."""
    indices = np.random.default_rng(0).integers(0, 8, (4600, 1), np.int32)
    expected = check(
        ADD
        + f"""ENTRY e {{ x = s32[800,{columns}] parameter(0)
          i = s32[4600,1] parameter(1)
          u = s32[4600,{columns}] parameter(2)
          ROOT r = s32[800,{columns}] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
            scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, {flags}, to_apply=add }}""",
        np.zeros((800, columns), np.int32),
        indices,
        np.ones((4600, columns), np.int32),
    )
    assert expected[:8, 0].tolist() == np.bincount(indices[:, 0]).tolist()


def test_bytes_that_several_slices_widen() -> None:
    """Slices with strides 2 and 4 that begin at the same byte: what is loaded for the first is too short for the other."""
    text = """ENTRY e { x = u8[TYPE] parameter(0)
      w = s32[TYPE] convert(x)
      a = s32[1] slice(w), slice={[1:2:2]}
      b = s32[4095] slice(w), slice={[5:16382:4]}
      ROOT r = s32[4096] concatenate(a, b), dimensions={0} }"""
    check(text, (np.arange(16384) * 7 % 251).astype(np.uint8), type="16384")


def test_a_fold_of_a_row_inside_a_fold_of_columns() -> None:
    """The inner fold depends on no axis of the vectors' loop: to write it, its own scope asked for it again, without end."""
    values = np.random.default_rng(0).random((2, 28, 64), np.float32)
    text = """first { a = f32[] parameter(0)
      ROOT r = f32[] parameter(1) }
    ADD
    ENTRY e { p = f32[64] parameter(0)
      x = f32[2,28,64] parameter(1)
      zero = f32[] constant(0)
      last = f32[2,28] reduce(x, zero), dimensions={2}, to_apply=first
      b = f32[2,28,64] broadcast(last), dimensions={0,1}
      m = f32[2,28,64] multiply(b, x)
      columns = f32[64] reduce(m, zero), dimensions={0,1}, to_apply=first
      q = f32[64] power(p, columns)
      sum = f32[] reduce(q, zero), dimensions={0}, to_apply=add
      s = f32[64] broadcast(sum), dimensions={}
      ROOT r = f32[64] divide(q, s) }"""
    module = hk.parse("HloModule found\n" + text.replace("ADD", ADD.replace("TYPE", "f32")))
    given = values[0, 0] + 1, values
    np.testing.assert_allclose(hk.compile(module)(*given), hk.evaluate(module, *given), rtol=1e-6)


def test_what_a_loop_over_elements_searches_is_kept() -> None:
    """A binary search loads at places that it computes: the memory of what it searches is not given to the second sort."""
    search = """body { s = (s32[600], s32[], s32[300], s32[300]) parameter(0)
      x = s32[600] get-tuple-element(s), index=0
      k = s32[] get-tuple-element(s), index=1
      one = s32[] constant(1)
      next = s32[] add(k, one)
      low = s32[300] get-tuple-element(s), index=2
      high = s32[300] get-tuple-element(s), index=3
      d = s32[300] subtract(high, low)
      ones = s32[300] broadcast(one), dimensions={}
      h = s32[300] shift-right-logical(d, ones)
      middle = s32[300] add(low, h)
      at = s32[300,1] reshape(middle)
      v = s32[300] gather(x, at), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
        slice_sizes={1}
      i = s32[300] iota(), iota_dimension=0
      c = pred[300] compare(i, v), direction=LE
      l = s32[300] select(c, low, middle)
      u = s32[300] select(c, middle, high)
      ROOT r = (s32[600], s32[], s32[300], s32[300]) tuple(x, next, l, u) }
    condition { s = (s32[600], s32[], s32[300], s32[300]) parameter(0)
      k = s32[] get-tuple-element(s), index=1
      n = s32[] constant(10)
      ROOT c = pred[] compare(k, n), direction=LT }
    less { a = s32[] parameter(0)
      b = s32[] parameter(1)
      ROOT c = pred[] compare(a, b), direction=LT }
    ENTRY e { p = s32[600] parameter(0)
      q = s32[600] parameter(1)
      x = s32[600] sort(p), dimensions={0}, to_apply=less
      y = s32[600] sort(q), dimensions={0}, to_apply=less
      first = s32[1] slice(y), slice={[0:1]}
      least = s32[] reshape(first)
      zero = s32[] constant(0)
      n = s32[] constant(600)
      lows = s32[300] broadcast(least), dimensions={}
      highs = s32[300] broadcast(n), dimensions={}
      s = (s32[600], s32[], s32[300], s32[300]) tuple(x, zero, lows, highs)
      w = (s32[600], s32[], s32[300], s32[300]) while(s), condition=condition, body=body
      ROOT r = s32[300] get-tuple-element(w), index=3 }"""
    values = np.random.default_rng(0).integers(0, 300, 600, np.int32)
    found = check(search, values, (values - values.min()) * 2)
    assert found.tolist() == np.searchsorted(np.sort(values), np.arange(300)).tolist()
