"""Matrix functions, einsum, slicing, loops and constants of XlaBuilder's client library: BEY-80."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule
from tests.rules.running import built, value

RANDOM = np.random.default_rng(7)
MATRICES = RANDOM.normal(size=(2, 3, 4))
DIAGONALS = range(-3, 5)


def normal(*sizes: int) -> Any:
    return RANDOM.normal(size=sizes)


def from_builder(function: Callable[[hk.Builder], hk.XlaOp]) -> Any:
    builder = hk.Builder("test")
    return hk.evaluate(builder.build(function(builder)))


# -- matrices


@rule("BEY-80")
@pytest.mark.parametrize(("m", "n"), [(3, 3), (2, 4), (4, 2), (0, 3)])
@pytest.mark.parametrize("dtype", [hk.f32, hk.s8, hk.c64, hk.pred], ids=str)
def test_identity_matrix(m: int, n: int, dtype: hk.DType) -> None:
    found = from_builder(lambda b: hk.identity_matrix(b, dtype, m, n))
    np.testing.assert_array_equal(found, np.eye(m, n, dtype=dtype.numpy))
    assert found.dtype == dtype.numpy


@rule("BEY-80")
@pytest.mark.parametrize("k", DIAGONALS)
def test_masks(k: int) -> None:
    column, row = np.arange(4)[None, :], np.arange(3)[:, None]
    for found, wanted in [
        (value(lambda x: hk.get_diagonal_mask(x, k), MATRICES), column - row == k),
        (value(lambda x: hk.triangle_mask(x, k), MATRICES), column - row <= k),
    ]:
        np.testing.assert_array_equal(found, np.broadcast_to(wanted, (2, 3, 4)))


@rule("BEY-80")
def test_triangles() -> None:
    """BEY-80: the other triangle is zero even where it held NaN."""
    spoiled = MATRICES.copy()
    spoiled[:, 0, 3], spoiled[:, 2, 0] = np.nan, np.nan
    np.testing.assert_array_equal(value(hk.upper_triangle, spoiled), np.triu(spoiled))
    np.testing.assert_array_equal(value(hk.lower_triangle, spoiled), np.tril(spoiled))
    np.testing.assert_array_equal(value(lambda x: hk.triangle(x, False), MATRICES), np.triu(MATRICES))


@rule("BEY-80")
def test_symmetrize() -> None:
    square = normal(2, 3, 3)
    for lower, wanted in [(True, np.tril(square, -1)), (False, np.triu(square, 1))]:
        wanted = wanted + wanted.swapaxes(1, 2) + np.eye(3) * square
        np.testing.assert_array_equal(value(lambda x, low=lower: hk.symmetrize(x, low), square), wanted)
    hermitian = normal(3, 3) + 1j * normal(3, 3)
    below = np.tril(hermitian, -1)
    wanted = below + below.conj().T + np.diag(hermitian.diagonal().real)
    np.testing.assert_array_equal(value(hk.symmetrize, hermitian), wanted)


@rule("BEY-80")
@pytest.mark.parametrize("k", DIAGONALS)
def test_matrix_diagonals(k: int) -> None:
    wanted = np.diagonal(MATRICES, k, 1, 2)
    np.testing.assert_array_equal(value(lambda x: hk.get_matrix_diagonal(x, k), MATRICES), wanted)
    diagonal, changed = normal(*wanted.shape), MATRICES.copy()
    positions = np.arange(wanted.shape[1])
    changed[:, positions - min(k, 0), positions + max(k, 0)] = diagonal
    found = value(lambda x, d: hk.set_matrix_diagonal(x, d, k), MATRICES, diagonal)
    np.testing.assert_array_equal(found, changed)


@rule("BEY-80")
def test_diagonal_matrix() -> None:
    rows = normal(2, 3)
    np.testing.assert_array_equal(value(hk.diagonal_matrix, rows), np.stack([np.diag(r) for r in rows]))


@rule("BEY-80")
def test_transposition_and_products_of_matrices() -> None:
    transposed = MATRICES.swapaxes(1, 2)
    np.testing.assert_array_equal(value(hk.transpose_in_minor_dims, MATRICES), transposed)
    np.testing.assert_array_equal(value(lambda x: hk.maybe_transpose_in_minor_dims(x, False), MATRICES), MATRICES)
    np.testing.assert_allclose(value(hk.batch_dot, MATRICES, transposed), MATRICES @ transposed)
    for tx, ty in [(False, True), (True, False)]:
        found = value(lambda x, y, tx=tx, ty=ty: hk.batch_dot(x, y, tx, ty), MATRICES, MATRICES)
        np.testing.assert_allclose(found, transposed @ MATRICES if tx else MATRICES @ transposed)


# -- einsum

EINSUMS: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [
    ("ab,bc->ac", (2, 3), (3, 4)),
    ("abc,cd->abd", (2, 3, 4), (4, 5)),
    ("abc,cd->db", (2, 3, 4), (4, 5)),
    ("abc,abd->abdc", (2, 3, 4), (2, 3, 5)),
    ("a,b->ba", (2,), (3,)),
    ("a,a->", (4,), (4,)),
    (",ab->ba", (), (2, 3)),
    ("aab,b->a", (3, 3, 4), (4,)),
    ("aabb,c->bac", (3, 3, 2, 2), (4,)),
    ("aaa,a->a", (3, 3, 3), (3,)),
    ("...c,cd->...d", (2, 3, 4), (4, 5)),
    ("...ij,...jk->...ik", (2, 2, 3), (2, 3, 2)),
    ("a...,a...->...", (3, 2, 2), (3, 2, 2)),
    ("ab , cb -> ca", (2, 3), (4, 3)),
]


@rule("BEY-80")
@pytest.mark.parametrize(("config", "x", "y"), EINSUMS, ids=[f"BEY-80: einsum {row[0]}" for row in EINSUMS])
def test_einsum(config: str, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    left, right = np.asarray(normal(*x)), np.asarray(normal(*y))
    found = value(lambda a, b: hk.einsum(a, b, config), left, right)
    np.testing.assert_allclose(found, np.einsum(config, left, right), rtol=1e-12)


@rule("BEY-80")
@pytest.mark.parametrize(
    "config", ["ab,bc", "ab->a", "abc,bc->a", "ab,bc->ad", "ab,bc->aa", "ab,ac->bc", "a1,bc->a", "aa,bc->a"]
)
def test_einsum_texts_that_do_not_fit(config: str) -> None:
    with rejects("BEY-80"):
        built(lambda x, y: hk.einsum(x, y, config), hk.f32[2, 3], hk.f32[3, 4])


# -- slices


@rule("BEY-80")
def test_slices_in_minor_dims() -> None:
    x, update = MATRICES, np.full((1, 2), 9.0)
    found = value(lambda v: hk.slice_in_minor_dims(v, [1, 0], [3, 2]), x)
    np.testing.assert_array_equal(found, x[:, 1:3, 0:2])
    start = np.array(1, np.int32)
    found = value(lambda v, s: hk.dynamic_slice_in_minor_dims(v, [s, s], [2, 2]), x, start)
    np.testing.assert_array_equal(found, x[:, 1:3, 1:3])
    wanted = x[0].copy()
    wanted[0:1, 2:4] = update
    np.testing.assert_array_equal(value(lambda v, u: hk.update_slice(v, u, [0, 2]), x[0], update), wanted)
    found = value(lambda v, u: hk.update_slice_in_minor_dims(v, u, [2]), x[0], update)
    np.testing.assert_array_equal(found, wanted)
    found = value(lambda v, u, s: hk.dynamic_update_slice_in_minor_dims(v, u, [s + 1]), x[0], update, start)
    np.testing.assert_array_equal(found, wanted)


@rule("BEY-80")
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_torch_index_select(dim: int) -> None:
    index = np.array([[0, 1, 1], [1, 0, 0]], np.int32)
    found = value(lambda v, i: hk.torch_index_select(v, i, dim), MATRICES, index)
    np.testing.assert_array_equal(found, np.take(MATRICES, index, dim))


# -- loops and folds


@rule("BEY-80")
def test_while_loop() -> None:
    def doubled_until_large(x: hk.XlaOp) -> list[hk.XlaOp]:
        start = [x.builder.constant_r0(0), x]
        return hk.while_loop(lambda n, v: hk.any(v < 100.0), lambda n, v: [n + 1, v * 2.0], start)

    count, values = value(doubled_until_large, np.array([30.0, 7.0]))
    assert (int(count), values.tolist()) == (4, [480, 112])


@rule("BEY-80")
def test_for_each_index() -> None:
    def weighted(x: hk.XlaOp) -> hk.XlaOp:
        return hk.for_each_index(4, hk.s32, lambda i, v: [v * 2.0 + hk.convert_element_type(i, hk.f64)], [x])[0]

    assert value(weighted, np.array([1.0, 0.0])).tolist() == [27, 11]
    assert value(lambda x: hk.for_each_index(0, hk.s32, lambda i, v: [v + v], [x])[0], np.array([1.0])).tolist() == [1]


@rule("BEY-80")
def test_any() -> None:
    assert value(hk.any, np.array([[False, True]])) and not value(hk.any, np.zeros((2, 2), bool))
    assert value(hk.any, np.array(True)) and not value(hk.any, np.zeros(0, bool))


@rule("BEY-80")
def test_arg_max_and_arg_min() -> None:
    """BEY-80: the first of equals; NaN before all numbers."""
    rows = np.array([[1, 3, 3, 0, 0], [np.nan, 1, np.nan, 5, 0], [-np.inf] * 5, [np.inf] * 5], np.float32)
    assert value(lambda x: hk.arg_max(x, hk.s32, 1), rows).tolist() == [1, 0, 0, 0]
    assert value(lambda x: hk.arg_min(x, hk.s64, 1), rows).tolist() == [3, 0, 0, 0]
    numbers = np.array([[3, -5], [-128, 127]], np.int8)
    assert value(lambda x: hk.arg_max(x, hk.u8, 0), numbers).tolist() == [0, 1]
    assert value(lambda x: hk.arg_min(x, hk.u8, 0), numbers).tolist() == [1, 0]


# -- constants

CONSTANTS: list[tuple[str, hk.DType, Any]] = [
    ("zero", hk.c64, 0),
    ("one", hk.s4, 1),
    ("epsilon", hk.bf16, 2.0**-7),
    ("epsilon", hk.f64, 2.0**-52),
    ("min_value", hk.f32, -np.inf),
    ("min_value", hk.f8e4m3fn, -448),
    ("min_value", hk.s8, -128),
    ("min_value", hk.u16, 0),
    ("max_value", hk.f16, np.inf),
    ("max_value", hk.u64, 2**64 - 1),
    ("max_value", hk.pred, True),
    ("max_value", hk.f4e2m1fn, 6),
    ("min_finite_value", hk.f16, -65504),
    ("max_finite_value", hk.bf16, 3.3895313892515355e38),
    ("max_finite_value", hk.s64, 2**63 - 1),
    ("min_positive_normal_value", hk.f32, 2.0**-126),
]


@rule("BEY-80")
@pytest.mark.parametrize(("name", "dtype", "wanted"), CONSTANTS, ids=[f"BEY-80: {r[0]} of {r[1]}" for r in CONSTANTS])
def test_constants(name: str, dtype: hk.DType, wanted: Any) -> None:
    found = from_builder(lambda b: getattr(hk, name)(b, dtype))
    assert found.dtype == dtype.numpy
    assert found.item() == wanted or float(found) == wanted


@rule("BEY-80")
def test_nan_value() -> None:
    assert np.isnan(float(from_builder(lambda b: hk.nan_value(b, hk.f8e5m2))))
    for dtype in (hk.f4e2m1fn, hk.s32):
        with rejects("BEY-80"):
            hk.nan_value(hk.Builder("test"), dtype)


@rule("BEY-80")
def test_arrays_of_one_value() -> None:
    x = np.ones((2, 3), np.int16)
    assert value(hk.zeros_like, x).tolist() == [[0] * 3] * 2
    assert value(hk.ones_like, x).tolist() == [[1] * 3] * 2
    assert value(lambda v: hk.full_like(v, 7), x).dtype == np.int16
    assert value(lambda v: hk.scalar_like(v, 7), x).item() == 7
    assert from_builder(lambda b: hk.zeros(b, hk.f32[2])).tolist() == [0, 0]


@rule("BEY-80")
def test_arrays_of_one_value_keep_the_run_time_size() -> None:
    builder = hk.Builder("test")
    module = builder.build(hk.ones_like(builder.parameter(0, hk.f32["<=4", 2])))
    assert hk.evaluate(module, np.zeros((3, 2), np.float32)).tolist() == [[1, 1]] * 3


# -- refusals

REJECTED: list[tuple[str, Callable[..., Any], list[hk.Shape]]] = [
    ("triangle of a vector", hk.lower_triangle, [hk.f32[3]]),
    ("symmetrize of oblong matrices", hk.symmetrize, [hk.f32[3, 4]]),
    ("diagonal of a vector", hk.get_matrix_diagonal, [hk.f32[3]]),
    ("diagonal that does not exist", lambda x: hk.get_matrix_diagonal(x, 5), [hk.f32[3, 4]]),
    ("diagonal of the wrong size", hk.set_matrix_diagonal, [hk.f32[3, 4], hk.f32[4]]),
    ("diagonal of the wrong type", hk.set_matrix_diagonal, [hk.f32[3, 4], hk.f64[3]]),
    ("diagonal matrix of a scalar", hk.diagonal_matrix, [hk.f32[()]]),
    ("transpose of a vector", hk.transpose_in_minor_dims, [hk.f32[3]]),
    ("batch_dot of two ranks", hk.batch_dot, [hk.f32[2, 3, 4], hk.f32[4, 3]]),
    ("slice of more dimensions than there are", lambda x: hk.slice_in_minor_dims(x, [0, 0], [1, 1]), [hk.f32[3]]),
    ("index_select along no dimension", lambda x, i: hk.torch_index_select(x, i, 1), [hk.f32[3], hk.s32[2]]),
]


@rule("BEY-80")
@pytest.mark.parametrize(("function", "shapes"), [r[1:] for r in REJECTED], ids=[f"BEY-80: {r[0]}" for r in REJECTED])
def test_rejected_operands(function: Callable[..., Any], shapes: list[hk.Shape]) -> None:
    with rejects("BEY-80"):
        built(function, *shapes)
