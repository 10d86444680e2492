"""DOT, DOTG, and what BEY adds to them: ragged-dot, scaled-dot, precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.errors import UnsupportedError
from hlokit.ops.contraction import Dot
from tests.rules.labels import rejects, rule
from tests.rules.programs import f32, run, s32, same, shape

INF, NAN = float("inf"), float("nan")
MATRICES = hk.DotDimensionNumbers([1], [0])
Array = np.ndarray[Any, Any]


def dot(contracting: Any = ((), ()), batch: Any = ((), ()), **options: Any) -> Callable[[Any, Any], Any]:
    return lambda x, y: hk.dot_general(x, y, hk.DotDimensionNumbers(*contracting, *batch), **options)


def ragged(*numbers: Any) -> hk.RaggedDotDimensionNumbers:
    """Contracting dimensions, batch dimensions (lhs, rhs each), ragged ones, group ones."""
    return hk.RaggedDotDimensionNumbers(hk.DotDimensionNumbers(*numbers[:4]), *numbers[4:])


def iota(*sizes: int) -> Array:
    return f32(np.arange(np.prod(sizes)).reshape(sizes))


# -- dot


@pytest.mark.parametrize(
    ("lhs", "rhs", "expected"),
    [
        pytest.param([1, 2, 3], [4, 5, 6], 32, id="DOT-1, DOT-6: vectors"),
        pytest.param([[1, 2], [3, 4]], [10, 1], [12, 34], id="DOT-1: matrix and vector"),
        pytest.param([[1, 2], [3, 4]], [[0, 1], [10, 0]], [[20, 1], [40, 3]], id="DOT-1, DOT-2: matrices"),
        pytest.param([10, 1], [[1, 2, 3], [4, 5, 6]], [14, 25, 36], id="DOT-4: vector and matrix"),
    ],
)
def test_dot(lhs: Any, rhs: Any, expected: Any) -> None:
    same(run(hk.dot, f32(lhs), f32(rhs)), f32(expected))
    same(run(lambda x, y: x @ y, f32(lhs), f32(rhs)), f32(expected))


@rule("DOT-4")
def test_dot_of_rank_3_contracts_dimension_1() -> None:
    x, y = iota(2, 3, 4), iota(3, 5)
    same(run(hk.dot, x, y), f32(np.einsum("akb,kc->abc", x, y)))


@rule("DOT-3")
def test_dot_wants_equal_contracted_sizes() -> None:
    with rejects("DOTG-4"):
        shape(hk.dot, hk.f32[2, 3], hk.f32[2, 3])


@rule("DOT-5")
def test_dot_of_scalars_is_rejected() -> None:
    for shapes in ([hk.f32[()], hk.f32[3]], [hk.f32[3], hk.f32[()]], [hk.f32[()]] * 2):
        with rejects("DOTG-7"):
            shape(hk.dot, *shapes)


# -- dot general


@rule("DOTG-19", "DOTG-20", "DOTG-22", "DOTG-2")
def test_dot_general_examples() -> None:
    x = f32([[1, 2, 3], [4, 5, 6]])
    same(run(dot([[1], [1]]), x, f32([[1, 1, 1], [2, 2, 2]])), f32([[6, 12], [15, 30]]))
    x, y = f32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), f32([[[1, 0], [0, 1]]] * 2)
    same(run(dot([[2], [1]], [[0], [0]]), x, y), x)
    same(run(dot([[2, 1], [0, 1]]), f32(np.ones((2, 3, 4))), f32(np.ones((4, 3, 5)))), f32(np.full((2, 5), 12)))


@pytest.mark.parametrize(
    ("equation", "contracting", "batch"),
    [
        pytest.param("bmk,bkn->bmn", ([2], [1]), ([0], [0]), id="DOTG-21: batch matmul"),
        pytest.param("abmk,abkn->abmn", ([3], [2]), ([0, 1], [0, 1]), id="DOTG-21: two batch dimensions"),
        pytest.param(
            "mbka,nakb->abmn", ([2], [2]), ([3, 1], [1, 3]), id="DOTG-1: batch order is lhs_batch_dimensions'"
        ),
        pytest.param("mkj,jnk->mn", ([1, 2], [2, 0]), ([], []), id="DOTG-2: pairs in the given order"),
        pytest.param("akb,ckd->abcd", ([1], [1]), ([], []), id="DOTG-1: free dimensions in order"),
        pytest.param("ab,cd->abcd", ([], []), ([], []), id="DOTG-9: outer product"),
        pytest.param("ab,ac->abc", ([], []), ([0], [0]), id="DOTG-9: outer product per batch"),
    ],
)
def test_dot_general_is_einsum(equation: str, contracting: Any, batch: Any) -> None:
    sizes = dict(zip("abcdjkmn", (2, 3, 4, 5, 2, 3, 4, 5), strict=True))
    rng = np.random.default_rng(0)
    terms = equation.split("->")[0].split(",")
    for dtype in (np.float32, np.int16, np.complex64, np.uint64):
        x, y = (rng.integers(0, 9, [sizes[c] for c in term]).astype(dtype) for term in terms)
        same(run(dot(contracting, batch), x, y), np.einsum(equation, x, y))


@rule("DOTG-10")
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16])
def test_contracted_size_0_gives_zeros(dtype: Any) -> None:
    same(run(dot([[1], [0]]), np.ones((2, 0), dtype), np.ones((0, 3), dtype)), np.zeros((2, 3), dtype))


@rule("DOTG-11")
def test_nan_and_infinity_propagate() -> None:
    x = f32([[INF, 1], [NAN, 1], [1, 1]])
    same(run(dot([[1], [0]]), x, f32([[0], [1]])), f32([[NAN], [NAN], [1]]))


@rule("DOTG-12", "DOTG-14", "BEY-40")
def test_preferred_element_type() -> None:
    x, y = np.int8([100, 100]), np.int8([2, 2])
    same(run(hk.dot, x, y), np.int8(-112))
    same(run(lambda x, y: hk.dot(x, y, preferred_element_type=hk.s32), x, y), s32(400))
    same(run(lambda x, y: hk.dot(x, y, preferred_element_type=hk.f32), x, y), f32(400))
    half = np.float16([300, 300])
    same(run(hk.dot, half, half), np.float16(INF))
    same(run(lambda x, y: hk.dot(x, y, preferred_element_type=hk.f32), half, half), f32(180000))
    same(
        run(lambda x, y: hk.dot(x, y, preferred_element_type=hk.bf16), f32([257]), f32([1])),
        np.array(256, ml_dtypes.bfloat16),
    )


@rule("DOTG-14")
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64, np.int16, ml_dtypes.int4, ml_dtypes.uint4])
def test_integers_wrap(dtype: Any) -> None:
    limits = ml_dtypes.iinfo(dtype)
    rng = np.random.default_rng(0)
    x, y = (
        rng.integers(int(limits.min), int(limits.max), (3, 3), dtype=np.uint64 if limits.min == 0 else np.int64)
        for _ in "xy"
    )
    bits = limits.bits
    exact = [[sum(int(x[i, k]) * int(y[k, j]) for k in range(3)) for j in range(3)] for i in range(3)]
    wrapped = [[(v - int(limits.min)) % 2**bits + int(limits.min) for v in row] for row in exact]
    got = run(dot([[1], [0]]), x.astype(dtype), y.astype(dtype))
    assert got.dtype == dtype and got.tolist() == np.array(wrapped, object).tolist()


@rule("DOTG-15")
def test_pred_is_logical() -> None:
    same(run(hk.dot, np.array([True, False, True]), np.array([True] * 3)), np.array(True))
    same(run(hk.dot, np.array([True, False]), np.array([True, True])), np.array(True))
    same(run(hk.dot, np.array([True, False]), np.array([False, True])), np.array(False))


@rule("DOTG-17")
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_round_once(dtype: Any) -> None:
    x = np.array([16.0] + [0.5] * 64, dtype)
    same(run(hk.dot, x, np.ones(65, dtype)), np.array(48, dtype))


@rule("DOTG-18", "BEY-40", "BEY-41", "HATTR-8", "HATTR-9")
def test_precision_and_algorithm_change_nothing_but_the_text() -> None:
    x, y = iota(2, 3), iota(3, 2)
    plain = run(dot([[1], [0]]), x, y)
    for precision in (["HIGHEST", "high"], "packed_nibble", ["default", "highest"]):
        same(run(dot([[1], [0]], precision_config=precision), x, y), plain)
    same(run(dot([[1], [0]], algorithm="dot_bf16_bf16_f32_x3"), x, y), plain)
    b = hk.Builder("t")
    p, q = b.parameter(0, hk.f32[2, 3]), b.parameter(1, hk.f32[3, 2])
    op = hk.dot(p, q, ["HIGHEST", "DEFAULT"], algorithm="dot_tf32_tf32_f32").instruction.op
    assert op.operand_precision == ("highest", "default") and op.algorithm == "dot_tf32_tf32_f32"
    assert hk.dot(p, q, ["DEFAULT", "DEFAULT"]).instruction.op is hk.dot(p, q).instruction.op
    for precision in (["HIGHER", "HIGH"], ["HIGH"]):
        with rejects("HATTR-8"):
            hk.dot(p, q, precision)


BAD_DOTS: list[tuple[str, hk.Shape, hk.Shape, Any, Any]] = [
    ("DOTG-3: contracting counts", hk.f32[2, 3], hk.f32[3, 2], ([1], []), ([], [])),
    ("DOTG-4: contracting sizes", hk.f32[2, 3], hk.f32[3, 2], ([1], [1]), ([], [])),
    ("DOTG-5: batch counts", hk.f32[2, 3], hk.f32[3, 2], ([1], [0]), ([0], [])),
    ("DOTG-6: batch sizes", hk.f32[2, 3], hk.f32[3, 3], ([1], [1]), ([0], [0])),
    ("DOTG-7: lhs contracting", hk.f32[2, 3], hk.f32[3, 2], ([2], [0]), ([], [])),
    ("DOTG-7: rhs contracting", hk.f32[2, 3], hk.f32[3, 2], ([1], [-1]), ([], [])),
    ("DOTG-7: lhs batch", hk.f32[2, 3], hk.f32[3, 2], ([], []), ([-1], [0])),
    ("DOTG-7: rhs batch", hk.f32[2, 3], hk.f32[3, 2], ([], []), ([0], [5])),
    ("DOTG-8: contracting twice", hk.f32[3, 3], hk.f32[3, 3], ([1, 1], [0, 1]), ([], [])),
    ("DOTG-8: contracting and batch", hk.f32[3, 3], hk.f32[3, 3], ([1], [0]), ([0], [0])),
    ("DOTG-16: int and float", hk.f32[3], hk.s32[3], ([0], [0]), ([], [])),
    ("DOTG-16: two floats", hk.f32[3], hk.f64[3], ([0], [0]), ([], [])),
    ("DOTG-23: tuple", hk.Shape.tuple([hk.f32[3]]), hk.f32[3], ([0], [0]), ([], [])),
]


@pytest.mark.parametrize(("label", "lhs", "rhs", "contracting", "batch"), BAD_DOTS, ids=[r[0] for r in BAD_DOTS])
def test_bad_dots_are_rejected(label: str, lhs: hk.Shape, rhs: hk.Shape, contracting: Any, batch: Any) -> None:
    with rejects(label.split(":")[0]):
        shape(dot(contracting, batch), lhs, rhs)


@rule("DOTG-16", "CONV-24")
def test_operands_of_two_types_are_converted_to_one() -> None:
    """0.5 is no s8 and 300 no bf16 of 8 bits: neither operand is rounded to the other's type."""
    x, y = f32([[0.5, 2]]), np.int16([[301], [-4]])
    same(run(dot([[1], [0]], preferred_element_type=hk.f32), x, y), f32([[142.5]]))
    same(run(lambda x, y: hk.conv(x, y, [], "VALID", preferred_element_type=hk.f32), x, y.T), f32([[142.5]]))
    same(run(dot([[0], [0]], preferred_element_type=hk.s32), np.uint8([200]), np.int8([-3])), s32(-600))
    with rejects("DOTG-16"):
        shape(lambda *operands: hk.scaled_dot(*operands, hk.DotDimensionNumbers([1], [0]), preferred_element_type=hk.f32),
              hk.f8e5m2[2, 4], hk.s8[4, 2], hk.f32[2, 4], hk.f32[4, 2])  # fmt: skip


@rule("DOTG-13", "CONV-24")
@pytest.mark.parametrize(
    ("operand", "preferred"), [(hk.s32, hk.s8), (hk.u64, hk.f32), (hk.c128, hk.c64), (hk.c64, hk.f64)]
)
def test_narrower_results_are_rejected(operand: hk.DType, preferred: hk.DType) -> None:
    with rejects("DOTG-13"):
        shape(dot([[0], [0]], preferred_element_type=preferred), operand[3], operand[3])
    with rejects("DOTG-13"):
        shape(lambda x, k: hk.conv(x, k, [], "VALID", preferred_element_type=preferred), operand[2, 3], operand[4, 3])


@rule("DOTG-13")
def test_any_result_type_for_floats() -> None:
    for preferred in (hk.f8e5m2, hk.bf16, hk.f32, hk.f64):
        assert shape(dot([[0], [0]], preferred_element_type=preferred), hk.f32[3], hk.f32[3]) is preferred[()]


@rule("DYN-12")
def test_dynamic_dimensions_of_a_dot() -> None:
    assert shape(dot([[1], [0]]), hk.f32["<=4", 8], hk.f32[8, "<=5"]) is hk.f32["<=4", "<=5"]

    def program(x: Any, y: Any, n: Any) -> Any:
        return hk.dot(hk.set_dimension_size(x, n, 0), hk.set_dimension_size(y, n, 0))

    same(run(program, f32([1, 2, 3]), f32([4, 5, 6]), s32(2)), f32(14))
    same(
        run(lambda x, y, n: hk.dot(hk.set_dimension_size(x, n, 0), y), f32([1, 2, 3]), f32([4, 5, 6]), s32(2)), f32(14)
    )


# -- ragged and scaled dot


@rule("BEY-42", "BEY-43")
def test_ragged_rows() -> None:
    x, y = iota(6, 2), iota(3, 2, 4)
    expected = np.zeros((6, 4), np.float32)
    for group, rows in enumerate((slice(0, 2), slice(2, 2), slice(2, 5))):
        expected[rows] = x[rows] @ y[group]
    numbers = ([1], [1], [], [], [0], [0])
    same(run(lambda x, y, n: hk.ragged_dot(x, y, n, ragged(*numbers)), x, y, s32([2, 0, 3])), expected)


@rule("BEY-42", "BEY-43")
def test_ragged_rows_with_their_own_groups_per_batch() -> None:
    x, y = iota(2, 4, 3), iota(5, 2, 3, 2).transpose(0, 1, 3, 2)[:2].copy()
    expected = np.zeros((2, 4, 2), np.float32)
    for batch, first in enumerate((1, 3)):
        expected[batch, :first] = x[batch, :first] @ y[0, batch].T
        expected[batch, first:] = x[batch, first:] @ y[1, batch].T
    numbers = ([2], [3], [0], [1], [1], [0])
    same(run(lambda x, y, n: hk.ragged_dot(x, y, n, ragged(*numbers)), x, y, s32([[1, 3], [3, 1]])), expected)


@rule("BEY-42", "BEY-43")
def test_ragged_contraction_and_batch() -> None:
    x, y, n = iota(4, 2), iota(4, 3), s32([1, 0, 2])
    expected = np.stack([x[:1].T @ y[:1], np.zeros((2, 3)), x[1:3].T @ y[1:3]])
    same(run(lambda x, y, n: hk.ragged_dot(x, y, n, ragged([0], [0], [], [], [0])), x, y, n), f32(expected))
    x, y = iota(2, 4, 2), iota(2, 4, 3)
    expected = np.stack([np.stack([x[b, :1].T @ y[b, :1], x[b, 1:].T @ y[b, 1:]]) for b in range(2)], 1)
    same(run(lambda x, y, n: hk.ragged_dot(x, y, n, ragged([1], [1], [0], [0], [1])), x, y, s32([1, 3])), f32(expected))
    batched = lambda x, y, n: hk.ragged_dot(x, y, n, ragged([1], [1], [0], [0], [0]))  # noqa: E731
    same(run(batched, x, y, s32([1, 1])), f32(np.einsum("bkm,bkn->bmn", x, y)))


BAD_RAGGED: list[tuple[str, hk.Shape, Any]] = [
    ("BEY-42: float sizes", hk.f32[3], ([1], [1], [], [], [0], [0])),
    ("BEY-42: number of groups", hk.s32[4], ([1], [1], [], [], [0], [0])),
    ("BEY-42: scalar sizes", hk.s32[()], ([1], [1], [], [], [0], [0])),
    ("BEY-42: prefix of sizes", hk.s32[2, 3], ([1], [1], [], [], [0], [0])),
    ("BEY-42: no ragged dimension", hk.s32[3], ([1], [1], [], [], [], [0])),
    ("BEY-42: ragged dimension", hk.s32[3], ([1], [1], [], [], [2], [0])),
    ("BEY-42: no group dimension", hk.s32[3], ([1], [1], [], [], [0], [])),
    ("BEY-42: group dimension", hk.s32[3], ([1], [1], [], [], [0], [3])),
    ("BEY-42: negative group dimension", hk.s32[3], ([1], [1], [], [], [0], [-3])),
    ("BEY-42: contracted group dimension", hk.s32[3], ([1], [1], [], [], [0], [1])),
    ("BEY-42: group dimension of a contraction", hk.s32[3], ([1], [1], [], [], [1], [0])),
    ("DOTG-4: sizes", hk.s32[3], ([0], [1], [], [], [1], [0])),
]


@pytest.mark.parametrize(("label", "sizes", "numbers"), BAD_RAGGED, ids=[r[0] for r in BAD_RAGGED])
def test_bad_ragged_dots_are_rejected(label: str, sizes: hk.Shape, numbers: Any) -> None:
    with rejects(label.split(":")[0]):
        shape(lambda x, y, n: hk.ragged_dot(x, y, n, ragged(*numbers)), hk.f32[4, 8], hk.f32[3, 8, 5], sizes)


@rule("DOTG-16", "BEY-44")
@pytest.mark.parametrize(
    "run",
    [
        hk.evaluate,
        lambda m, *a: hk.evaluate(hk.optimize(m, ["operand-upcaster"]), *a),
        lambda m, *a: hk.compile(m)(*a),
        lambda m, *a: hk.compile(m, strict=True)(*a),
    ],
)
def test_scaled_dot_of_two_floating_types(run: Callable[..., Any]) -> None:
    """As XLA writes one whose lhs has no scale."""
    module = hk.parse("""ENTRY e { x = bf16[2,4,8] parameter(0)
      y = f8e4m3fn[2,3,8] parameter(1)
      one = bf16[1,1,1] constant({{{1}}})
      scale = f8e8m0fnu[2,3,2] parameter(2)
      ROOT r = f32[2,4,3] scaled-dot(x, y, one, scale), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
        rhs_contracting_dims={2} }""")
    x = (np.arange(64).reshape(2, 4, 8) % 7 - 3).astype(ml_dtypes.bfloat16)
    y = (np.arange(48).reshape(2, 3, 8) % 5 - 2).astype(ml_dtypes.float8_e4m3fn)
    scale = np.exp2(np.arange(12).reshape(2, 3, 2) % 4 - 1).astype(ml_dtypes.float8_e8m0fnu)
    wide = y.astype(np.float32) * scale.astype(np.float32).repeat(4, -1)
    assert np.array_equal(run(module, x, y, scale), np.einsum("bik,bjk->bij", x.astype(np.float32), wide))


@rule("BEY-44")
def test_scaled_dot() -> None:
    x, y = iota(2, 4), iota(4, 3)
    sx, sy = f32([[1, 2], [3, 4]]), f32([[1, 2, 3], [10, 20, 30]])
    expected = (x * sx.repeat(2, 1)) @ (y * sy.repeat(2, 0))
    same(run(lambda *p: hk.scaled_dot(*p, MATRICES), x, y, sx, sy), expected)
    same(run(lambda *p: hk.scaled_dot(*p, MATRICES), x, y, sx, f32(2)), (x * sx.repeat(2, 1)) @ (y * 2))
    narrow = [a.astype(ml_dtypes.float8_e4m3fn) for a in (x, y)]
    scales = [
        np.full((2, 2), 4).astype(ml_dtypes.float8_e8m0fnu),
        np.full((1, 3), 0.5).astype(ml_dtypes.float8_e8m0fnu),
    ]
    got = run(lambda *p: hk.scaled_dot(*p, MATRICES, preferred_element_type=hk.f32), *narrow, *scales)
    same(got, x @ y * 2)
    for scale in (hk.f32[2, 3], hk.f32[2], hk.s32[2, 2]):
        with rejects("BEY-44"):
            shape(lambda *p: hk.scaled_dot(*p, MATRICES), hk.f32[2, 4], hk.f32[4, 3], scale, hk.f32[2, 3])


# -- as text


@pytest.mark.parametrize(
    ("program", "parameters", "expected"),
    [
        pytest.param(
            dot(([2], [1]), ([0], [0]), precision_config="HIGH", algorithm="dot_f32_f32_f32"),
            [hk.f32[2, 3, 4], hk.f32[2, 4, 5]],
            "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}, "
            "operand_precision={high,high}, algorithm=dot_f32_f32_f32",
            id="HOP-15: dot",
        ),
        pytest.param(
            lambda x, y, n: hk.ragged_dot(x, y, n, ragged([1], [1], [], [], [0], [0])),
            [hk.f32[4, 8], hk.f32[3, 8, 5], hk.s32[3]],
            "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}\n",
            id="HOP-15: ragged-dot",
        ),
        pytest.param(
            lambda x, y: hk.scaled_dot(x, y, x, y, MATRICES, preferred_element_type=hk.f64),
            [hk.f32[4, 8], hk.f32[8, 5]],
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n",
            id="HOP-15: scaled-dot",
        ),
    ],
)
def test_text(program: Any, parameters: list[hk.Shape], expected: str) -> None:
    b = hk.Builder("test", source_info=False)
    text = str(b.build(program(*(b.parameter(i, p) for i, p in enumerate(parameters)))))
    assert expected in text
    assert str(hk.parse(text)) == text


def test_ops_are_the_same_built_or_read() -> None:
    b = hk.Builder("test")
    handle = hk.dot(b.parameter(0, hk.s8[2, 3]), b.parameter(1, hk.s8[3, 2]), preferred_element_type=hk.s32)
    module = b.build(handle)
    assert isinstance(handle.instruction.op, Dot)
    assert hk.parse(str(module)).entry.root.op is handle.instruction.op


@rule("DOTG-17")
def test_bytes_do_not_depend_on_the_number_of_threads() -> None:
    """BLAS cuts large products differently for each number of threads; the reference must not show it."""
    import os
    import subprocess
    import sys

    code = """
import hashlib, numpy as np
from hlokit.ops.contraction import product
source, digest = np.random.default_rng(0), hashlib.sha256()
for m, k, n in [(37, 1000, 999), (300, 300, 300), (1, 2000, 2000), (2000, 2000, 1), (5, 7, 40000)]:
    digest.update(product(source.random((m, k), np.float32), source.random((k, n), np.float32)).tobytes())
print(digest.hexdigest())
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
        ).stdout
        for threads in "124"
    }
    assert len(digests) == 1


@rule("BEY-44")
def test_scaled_dot_of_dynamic_operands() -> None:
    """Blocks are those of the declared sizes: two elements each here, of which three are there at run time."""
    module = hk.parse("""HloModule m

ENTRY e {
  x = f32[2,4] parameter(0)
  size = s32[] parameter(1)
  y = f32[4,1] parameter(2)
  scale = f32[2,2] parameter(3)
  one = f32[] constant(1)
  shorter = f32[2,<=4] set-dimension-size(x, size), dimensions={1}
  ROOT r = f32[2,1] scaled-dot(shorter, y, scale, one), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
""")
    x, y = np.arange(8, dtype=np.float32).reshape(2, 4), np.ones((4, 1), np.float32)
    scale = np.float32([[1, 10], [1, 10]])
    assert hk.evaluate(module, x, 3, y, scale).tolist() == [[0 + 1 + 20], [4 + 5 + 60]]
    assert hk.evaluate(module, x, 0, y, scale).tolist() == [[0], [0]]
    with pytest.raises(UnsupportedError, match="scaled-dot"):
        hk.compile(module)
