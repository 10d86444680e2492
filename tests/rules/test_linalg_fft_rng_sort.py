"""CHOL, TRISOLVE, FFT and SORT rules, and top-k. RNG and RBG: test_random.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule
from tests.rules.running import Arrays, built, c64, f32, value

# -- cholesky

CHOLESKY = [
    ("CHOL-5 lower", True, f32([4, 7], [2, 3]), [[2, 0], [1, 1.4142135]]),
    ("CHOL-5 upper", False, f32([4, 2], [7, 3]), [[2, 1], [0, 1.4142135]]),
    ("CHOL-6 lower triangle read", True, f32([4, np.nan], [2, 3]), [[2, 0], [1, 1.4142135]]),
    ("CHOL-6 upper triangle read", False, f32([4, 2], [np.nan, 3]), [[2, 1], [0, 1.4142135]]),
    ("CHOL-8 not definite", True, f32([1, 2], [2, 1]), np.full((2, 2), np.nan)),
    ("CHOL-8 negative", False, f32([[-1.0]]), np.full((1, 1, 1), np.nan)),
    ("CHOL-8 NaN", True, f32([1, 0], [np.nan, 1]), np.full((2, 2), np.nan)),
    (
        "CHOL-8 NaN in one of two",
        False,
        f32([[1, 0], [0, np.nan]], [[4, 2], [9, 3]]),
        [[[np.nan] * 2] * 2, [[2, 1], [0, 2**0.5]]],
    ),
    ("CHOL-6 NaN that is not read", True, f32([1, np.nan], [0, 1]), [[1, 0], [0, 1]]),
    ("CHOL-9 0x0", True, np.zeros((2, 0, 0), np.float32), np.zeros((2, 0, 0))),
    ("CHOL-9 empty batch", True, np.zeros((0, 2, 2), np.float32), np.zeros((0, 2, 2))),
    ("CHOL-10 complex lower", True, c64([4, 2 - 2j], [2 + 2j, 6]), [[2, 0], [1 + 1j, 2]]),
    ("CHOL-10 complex upper", False, c64([4, 2 - 2j], [2 + 2j, 6]), [[2, 1 - 1j], [0, 2]]),
]


@pytest.mark.parametrize(("lower", "a", "expected"), [r[1:] for r in CHOLESKY], ids=[r[0] for r in CHOLESKY])
@rule("CHOL-1", "CHOL-5", "CHOL-7", "CHOL-10")
def test_cholesky(lower: bool, a: Arrays, expected: Any) -> None:
    result = value(lambda x: hk.cholesky(x, lower), a)
    assert result.dtype == a.dtype and result.shape == a.shape
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@rule("CHOL-8")
def test_cholesky_fails_one_matrix_of_the_batch_only() -> None:
    result = value(lambda x: hk.cholesky(x, True), f32([[1, 2], [2, 1]], [[4, 0], [2, 3]]))
    assert np.isnan(result[0]).all()
    np.testing.assert_allclose(result[1], [[2, 0], [1, 1.4142135]], rtol=1e-6)


@rule("CHOL-5")
@pytest.mark.parametrize("element_type", [np.float16, ml_dtypes.bfloat16, np.float64, np.complex128])
def test_cholesky_reproduces_a(element_type: Any) -> None:
    root = np.tril(np.arange(1, 19).reshape(2, 3, 3) % 4 + 1).astype(element_type)
    a = (root @ root.conj().swapaxes(-1, -2)).astype(element_type)
    np.testing.assert_allclose(value(lambda x: hk.cholesky(x, True), a).astype(complex), root, rtol=2e-2)


@pytest.mark.parametrize(
    ("label", "shape"),
    [("CHOL-2", hk.s32[2, 2]), ("CHOL-3", hk.f32[4]), ("CHOL-3", hk.f32[()]), ("CHOL-4", hk.f32[2, 3])],
)
def test_cholesky_rejects(label: str, shape: hk.Shape) -> None:
    with rejects(label):
        built(hk.cholesky, shape)


# -- triangular-solve

LOWER, UPPER = f32([2, np.nan], [1, 3]), f32([2, 1], [np.nan, 3])
RIGHT = f32([2, 4], [4, 11])
TRANSPOSED = [[1 / 3, 1 / 6], [4 / 3, 11 / 3]]
SOLVES = [
    ("TRISOLVE-13 left", LOWER, RIGHT, (True, True, False, "NO_TRANSPOSE"), [[1, 2], [1, 3]]),
    ("TRISOLVE-13 transpose", LOWER, RIGHT, (True, True, False, "TRANSPOSE"), TRANSPOSED),
    ("TRISOLVE-13 right", LOWER, RIGHT, (False, True, False, "NO_TRANSPOSE"), [[1 / 3, 4 / 3], [1 / 6, 11 / 3]]),
    (
        "TRISOLVE-10 unit diagonal",
        f32([np.nan, 0], [1, np.nan]),
        RIGHT,
        (True, True, True, "NO_TRANSPOSE"),
        [[2, 4], [2, 7]],
    ),
    ("TRISOLVE-9 upper", UPPER, RIGHT, (True, False, False, "NO_TRANSPOSE"), TRANSPOSED),
    (
        "TRISOLVE-11 singular",
        f32([0, 0], [1, 1]),
        f32([0], [1]),
        (True, True, False, "NO_TRANSPOSE"),
        [[np.nan], [np.nan]],
    ),
    ("TRISOLVE-12 whole result", f32([1, 0], [0, 1]), RIGHT, (True, True, False, "NO_TRANSPOSE"), RIGHT),
    (
        "TRISOLVE-13 adjoint",
        c64([2j, 0], [1, 3]),
        c64([2, 4], [4, 11]),
        (True, True, False, "ADJOINT"),
        [[1j / 3, 1j / 6], [4 / 3, 11 / 3]],
    ),
]


@pytest.mark.parametrize(("a", "b", "options", "expected"), [r[1:] for r in SOLVES], ids=[r[0] for r in SOLVES])
@rule("TRISOLVE-1", "TRISOLVE-2", "TRISOLVE-9", "TRISOLVE-13")
def test_triangular_solve(a: Arrays, b: Arrays, options: tuple[Any, ...], expected: Any) -> None:
    result = value(lambda x, y: hk.triangular_solve(x, y, *options), a, b)
    assert result.dtype == b.dtype and result.shape == b.shape
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@rule("TRISOLVE-2", "TRISOLVE-6")
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve_solves(left: bool, lower: bool, transpose: str) -> None:
    random = np.random.default_rng(1)
    a = random.normal(size=(2, 4, 4)) + 1j * random.normal(size=(2, 4, 4)) + 4 * np.eye(4)
    b = random.normal(size=(2, 4, 3) if left else (2, 3, 4)) + 0j
    x = value(lambda p, q: hk.triangular_solve(p, q, left, lower, False, transpose), a, b)
    t = np.tril(a) if lower else np.triu(a)
    t = {"NO_TRANSPOSE": t, "TRANSPOSE": t.swapaxes(1, 2), "ADJOINT": t.conj().swapaxes(1, 2)}[transpose]
    np.testing.assert_allclose(t @ x if left else x @ t, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("label", "a", "b", "left", "transpose"),
    [
        ("TRISOLVE-3", hk.s32[2, 2], hk.s32[2, 2], True, "TRANSPOSE"),
        ("TRISOLVE-3", hk.f32[2, 2], hk.f64[2, 2], True, "TRANSPOSE"),
        ("TRISOLVE-4", hk.f32[1, 2, 2], hk.f32[2, 2], True, "TRANSPOSE"),
        ("TRISOLVE-4", hk.f32[2], hk.f32[2], True, "TRANSPOSE"),
        ("TRISOLVE-5", hk.f32[2, 3], hk.f32[3, 3], True, "TRANSPOSE"),
        ("TRISOLVE-6", hk.f32[2, 2], hk.f32[3, 2], True, "TRANSPOSE"),
        ("TRISOLVE-6", hk.f32[2, 2], hk.f32[2, 3], False, "TRANSPOSE"),
        ("TRISOLVE-7", hk.f32[2, 2, 2], hk.f32[1, 2, 2], True, "TRANSPOSE"),
        ("TRISOLVE-8", hk.f32[2, 2], hk.f32[2, 2], True, "TRANSPOSE_INVALID"),
    ],
)
def test_triangular_solve_rejects(label: str, a: hk.Shape, b: hk.Shape, left: bool, transpose: str) -> None:
    with rejects(label):
        built(lambda x, y: hk.triangular_solve(x, y, left, True, False, transpose), a, b)


@rule("HOP-25")
def test_text_defaults_of_linear_algebra() -> None:
    body = """ENTRY e {
      a = f32[2,2] parameter(0)
      c = f32[2,2] cholesky(a)
      t = f32[2,2] triangular-solve(a, a), left_side=true, lower=true, transpose_a=ADJOINT
      ROOT s = f32[2,2] triangular-solve(a, c)
    }"""
    module = hk.parse("HloModule t\n" + body)
    printed = str(module)
    assert "left_side=true, lower=true, transpose_a=ADJOINT" in printed
    assert "unit_diagonal" not in printed and "lower=false" not in printed and printed.count("transpose_a") == 1
    x = hk.evaluate(module, f32([4, 2], [2, 5]))  # on the right side, by the upper triangle
    np.testing.assert_allclose(x @ [[4, 2], [0, 5]], [[2, 1], [0, 2]], rtol=1e-6)


# -- fft

SIGNAL = c64(1, 2, 3, 4)
TRANSFORMS = [
    ("FFT-9 forward", "FFT", [4], SIGNAL, [10, -2 + 2j, -2, -2 - 2j]),
    ("FFT-9 inverse", "IFFT", [4], SIGNAL, [2.5, -0.5 - 0.5j, -0.5, -0.5 + 0.5j]),
    ("FFT-10", "RFFT", [4], f32(1, 2, 3, 4), [10, -2 + 2j, -2]),
    ("FFT-11 even", "IRFFT", [4], c64(10, -2 + 2j, -2), [1, 2, 3, 4]),
    ("FFT-11 odd", "IRFFT", [5], c64(10, -2 + 2j, -2 + 1j), [0.4, 1.4040407, 2.3101945, 2.4898057, 3.3959596]),
    ("FFT-12", "IRFFT", [4], c64(10 + 7j, -2 + 2j, -2 - 9j), [1, 2, 3, 4]),
    ("FFT-16", "RFFT", [2, 3], f32([0, 1, 2], [3, 4, 5]), [[15, -3 + 1.7320508j], [-9, 0]]),
    ("FFT-15 batch", "RFFT", [3], f32([0, 1, 2], [3, 4, 5]), [[3, -1.5 + 0.8660254j], [12, -1.5 + 0.8660254j]]),
    ("FFT-13 empty batch", "FFT", [4], np.zeros((0, 4), np.complex64), np.zeros((0, 4))),
    ("FFT-13 length 0", "FFT", [0], np.zeros((3, 0), np.complex64), np.zeros((3, 0))),
    ("FFT-13 real length 0", "RFFT", [0], np.zeros((3, 0), np.float32), np.zeros((3, 0))),
    ("FFT-13 inverse length 0", "IRFFT", [0], np.zeros((3, 0), np.complex64), np.zeros((3, 0))),
]


@pytest.mark.parametrize(
    ("kind", "length", "x", "expected"), [r[1:] for r in TRANSFORMS], ids=[r[0] for r in TRANSFORMS]
)
@rule("FFT-7", "FFT-8", "FFT-15")
def test_fft(kind: str, length: list[int], x: Arrays, expected: Any) -> None:
    result = value(lambda p: hk.fft(p, kind, length), x)
    assert result.dtype == (np.float32 if kind == "IRFFT" else np.complex64)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@rule("FFT-14", "FFT-7")
def test_rfft_of_16_and_17_have_one_output_size() -> None:
    for size in (16, 17):
        module = built(lambda p, n=size: hk.fft(p, "RFFT", [n]), hk.f64[size])
        assert module.program_shape.result is hk.c128[9]


@rule("FFT-16")
def test_fft_is_a_cascade() -> None:
    x = (np.arange(24).reshape(2, 3, 4) ** 2 % 7).astype(np.complex128)
    whole = value(lambda p: hk.fft(p, "IFFT", [2, 3, 4]), x)
    np.testing.assert_allclose(whole, np.fft.ifft(np.fft.ifft(np.fft.ifft(x, axis=2), axis=1), axis=0), atol=1e-12)


@pytest.mark.parametrize(
    ("label", "kind", "length", "shape"),
    [
        ("FFT-1", "FFT", [], hk.c64[4]),
        ("FFT-1", "FFT", [2, 2, 2, 2], hk.c64[2, 2, 2, 2]),
        ("FFT-1", "FFT", [4, 4], hk.c64[4]),
        ("FFT-2", "FFT", [4], hk.f32[4]),
        ("FFT-3", "RFFT", [4], hk.c64[4]),
        ("FFT-3", "RFFT", [4], hk.f16[4]),
        ("FFT-3", "IRFFT", [6], hk.f32[4]),
        ("FFT-4", "FFT", [3], hk.c64[4]),
        ("FFT-4", "IFFT", [5], hk.c64[4]),
        ("FFT-5", "RFFT", [5], hk.f32[4]),
        ("FFT-6", "IRFFT", [14], hk.c64[7]),
        ("FFT-6", "IRFFT", [3, 6], hk.c64[2, 4]),
    ],
)
def test_fft_rejects(label: str, kind: str, length: list[int], shape: hk.Shape) -> None:
    with rejects(label):
        built(lambda p: hk.fft(p, kind, length), shape)


@rule("HOP-24")
def test_text_of_fft() -> None:
    text = "ENTRY e { a = f32[4] parameter(0)  ROOT f = c64[3] fft(a), fft_type=RFFT, fft_length={4} }"
    assert "fft_type=RFFT, fft_length={4}" in str(hk.parse("HloModule t\n" + text))
    with rejects("HINST-6"):
        hk.parse("HloModule t\n" + text.replace(", fft_length={4}", ""))
    with rejects("HINST-6"):
        hk.parse("HloModule t\n" + text.replace("RFFT", "DCT"))


# -- sort


def greater(a: hk.XlaOp, b: hk.XlaOp, *_: hk.XlaOp) -> hk.XlaOp:
    return hk.gt(a, b)


def less(a: hk.XlaOp, b: hk.XlaOp, *_: hk.XlaOp) -> hk.XlaOp:
    return hk.lt(a, b)


def parity(a: hk.XlaOp, b: hk.XlaOp, *_: hk.XlaOp) -> hk.XlaOp:
    """Even before odd: no comparison of the elements themselves, so it takes the merge."""
    return hk.lt(hk.rem(a, 2), hk.rem(b, 2))


def both(a: hk.XlaOp, b: hk.XlaOp, c: hk.XlaOp, d: hk.XlaOp) -> hk.XlaOp:
    return hk.or_(hk.lt(a, b), hk.and_(hk.eq(a, b), hk.gt(c, d)))


@rule("SORT-1", "SORT-5", "SORT-12", "SORT-14")
@pytest.mark.parametrize(
    ("dimension", "expected"), [(0, [[3, 5], [2, 1]]), (1, [[3, 1], [5, 2]]), (-1, [[3, 1], [5, 2]])]
)
def test_sort_goes_along_one_dimension(dimension: int, expected: Any) -> None:
    x = np.array([[3, 1], [2, 5]], np.int32)
    np.testing.assert_array_equal(value(lambda p: hk.sort(p, greater, dimension), x), expected)


@rule("SORT-15")
def test_elements_beyond_the_smallest_size_stay() -> None:
    def sort(keys: Any, numbers: Any) -> Any:
        return hk.sort([hk.set_dimension_size(keys, np.int32(3), 0), numbers], less)

    keys, numbers = value(sort, np.array([5, 9, 1, 0, 2], np.int32), np.arange(5, dtype=np.int32))
    assert (keys.tolist(), numbers.tolist()) == ([1, 5, 9], [2, 0, 1, 3, 4])


@rule("SORT-1", "SORT-5", "SORT-7", "SORT-13")
def test_operands_move_together() -> None:
    result = value(
        lambda *p: hk.sort(p, less), np.array([3, 1], np.int32), np.array([42, 50], np.int32), f32(-3.0, 1.1)
    )
    assert isinstance(result, tuple)
    assert [r.tolist() for r in result] == [[1, 3], [50, 42], f32(1.1, -3.0).tolist()]


@rule("SORT-6", "SORT-7")
@pytest.mark.parametrize(
    ("comparator", "descends"),
    [
        pytest.param(lambda a, b: hk.lt(a, b), False, id="LT"),
        pytest.param(lambda a, b: hk.gt(a, b), True, id="GT"),
        pytest.param(lambda a, b: hk.lt(b, a), True, id="LT, turned"),
        pytest.param(lambda a, b: hk.gt(b, a), False, id="GT, turned"),
        pytest.param(lambda a, b: hk.ge(a, b), True, id="GE"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.uint64, ml_dtypes.int4])
def test_one_comparison_sorts_either_way(comparator: Callable[..., Any], descends: bool, dtype: Any) -> None:
    numbers = [3, 1, 7, 0, 5] if np.dtype(dtype).kind == "u" else [3, -1, 7, 0, -8]
    expected = np.array(sorted(numbers, reverse=descends), dtype)
    np.testing.assert_array_equal(value(lambda p: hk.sort(p, comparator), np.array(numbers, dtype)), expected)


@rule("SORT-6", "SORT-8", "SORT-9")
@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("comparator", [less, greater, parity])
@pytest.mark.parametrize("size", [2, 3, 7, 8, 33])
def test_equal_elements_keep_their_order(stable: bool, comparator: Callable[..., Any], size: int) -> None:
    x = (np.arange(3 * size).reshape(3, size) * 7 % 5).astype(np.int32)
    index = np.broadcast_to(np.arange(size, dtype=np.int32), x.shape).copy()
    keys = {less: lambda v: v, greater: lambda v: -v, parity: lambda v: v % 2}[comparator]
    values, moved = value(lambda p, q: hk.sort([p, q], comparator, 1, stable), x, index)
    for line in range(3):
        expected = sorted(range(size), key=lambda i, line=line: keys(x[line, i]))
        assert moved[line].tolist() == expected
        assert values[line].tolist() == x[line][expected].tolist()


@rule("SORT-7", "SORT-8")
def test_comparator_may_use_several_operands() -> None:
    x, y = np.array([1, 0, 1, 0], np.int32), np.array([5, 6, 7, 6], np.uint8)
    values, ties, index = value(
        lambda *p: hk.sort(p, lambda a, b, c, d, *_: both(a, b, c, d)), x, y, np.arange(4, dtype=np.int8)
    )
    assert (values.tolist(), ties.tolist(), index.tolist()) == ([0, 0, 1, 1], [6, 6, 7, 5], [1, 3, 2, 0])


SPECIALS = [3, 1, -np.nan, np.nan, 0.0, -0.0, -np.inf]


@rule("SORT-10", "BEY-39")
@pytest.mark.parametrize("element_type", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_total_order(element_type: Any) -> None:
    x = np.copysign(np.array(SPECIALS), [1, 1, -1, 1, 1, -1, -1]).astype(element_type)
    up = value(lambda p: hk.sort(p), x).astype(np.float64)
    np.testing.assert_array_equal(up, [np.nan, -np.inf, 0, 0, 1, 3, np.nan])
    assert np.signbit(up).tolist() == [True, True, True, False, False, False, False]
    down = hk.create_scalar_gt_computation([hk.dtype(element_type)])
    np.testing.assert_array_equal(value(lambda p: hk.sort(p, down), x).astype(np.float64), up[::-1])


@rule("SORT-10")
def test_what_is_no_order_still_gives_a_permutation() -> None:
    x = (np.arange(50) * 17 % 50).astype(np.int32)
    for comparator in (lambda a, b: hk.ne(a, b), lambda a, b: hk.le(a, b), lambda a, b: hk.lt(hk.rem(a, 3), b)):
        assert sorted(value(lambda p, c=comparator: hk.sort(p, c), x)) == list(range(50))
    with_nan = f32(3, np.nan, 1, np.nan, 2)
    np.testing.assert_array_equal(np.sort(value(lambda p: hk.sort(p, less), with_nan)), np.sort(with_nan))


@rule("SORT-11")
@pytest.mark.parametrize("sizes", [(0,), (1,), (2, 0), (0, 2), (3, 1)])
def test_short_lines(sizes: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(sizes)), dtype=np.int32).reshape(sizes)
    for comparator in (greater, parity):
        np.testing.assert_array_equal(value(lambda p, c=comparator: hk.sort(p, c), x), x)


@rule("SORT-5")
def test_dynamic_lines_sort_what_is_valid() -> None:
    module = built(lambda p: hk.sort(hk.set_dimension_size(p, np.int32(3), 0), less), hk.s32[5])
    assert module.program_shape.result.dynamic == (True,)
    assert hk.evaluate(module, np.array([5, 4, 3, 0, 0], np.int32)).tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("label", "shapes", "comparator", "dimension"),
    [
        ("SORT-2", [hk.s32[2], hk.s32[3]], less, 0),
        ("SORT-3", [hk.s32[2]], lambda a, b: hk.add(a, b), 0),
        ("SORT-4", [hk.s32[2]], less, 1),
        ("SORT-4", [hk.s32[2]], less, -2),
        ("SORT-4", [hk.s32[()]], less, -1),
    ],
)
def test_sort_rejects(label: str, shapes: list[hk.Shape], comparator: Any, dimension: int) -> None:
    with rejects(label):
        built(lambda *p: hk.sort(p, comparator, dimension), *shapes)


@rule("SORT-3")
def test_sort_rejects_a_comparator_of_other_parameters() -> None:
    for types in ([hk.f32], [hk.s32, hk.s32]):
        comparator = hk.create_scalar_lt_computation(types)
        with rejects("SORT-3"):
            built(lambda p, c=comparator: hk.sort(p, c), hk.s32[2])


@rule("SORT-2")
def test_sort_rejects_no_operands() -> None:
    with rejects("SORT-2"):
        hk.sort([], less)


@rule("HOP-21", "BEY-39")
def test_text_of_sort_and_topk() -> None:
    head = """HloModule t
    c { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
    """
    sort = "ENTRY e { x = f32[2,3] parameter(0) ROOT s = f32[2,3] sort(x), dimensions={1}, is_stable=true, to_apply=c }"
    assert "dimensions={1}, is_stable=true, to_apply=" in str(hk.parse(head + sort))
    assert "is_stable" not in str(hk.parse(head + sort.replace(" is_stable=true,", "")))
    for part, changed in ((" dimensions={1},", " dimensions={0,1},"), (" dimensions={1},", ""), (", to_apply=c", "")):
        with pytest.raises(hk.HlokitError):
            hk.parse(head + sort.replace(part, changed))
    top = "ENTRY e { x = f32[2,3] parameter(0) ROOT s = (f32[2,2], s32[2,2]) topk(x), k=2 }"
    assert "k=2, largest=true" in str(hk.parse("HloModule t\n" + top))


@rule("BEY-36", "BEY-38")
@pytest.mark.parametrize(
    ("largest", "x", "indices"),
    [
        (True, f32(3, 1, 3, 2, np.nan, -0.0, 0, np.inf), [4, 7, 0, 2, 3, 1, 6, 5]),
        (False, f32(3, 1, 3, 2, np.nan, -0.0, 0, -np.inf), [7, 5, 6, 1, 3, 0, 2, 4]),
        (True, np.array([1, 3, 2, 3], np.uint8), [1, 3, 2, 0]),
    ],
)
def test_top_k(largest: bool, x: Arrays, indices: list[int]) -> None:
    for k in (len(x), 2, 0):
        values, found = value(lambda p, k=k: hk.top_k(p, k, largest), x)
        assert found.dtype == np.int32 and found.tolist() == indices[:k]
        np.testing.assert_array_equal(values, x[indices[:k]])


@pytest.mark.parametrize(
    ("label", "k", "shape"),
    [("BEY-36", 0, hk.f32[()]), ("BEY-37", 5, hk.f32[2, 4]), ("BEY-37", -1, hk.f32[4]), ("BEY-36", 1, hk.c64[4])],
)
def test_top_k_rejects(label: str, k: int, shape: hk.Shape) -> None:
    with rejects(label):
        built(lambda p: hk.top_k(p, k), shape)
