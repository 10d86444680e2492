"""Matrix factorizations and approximate selection of XLA's client library (BEY-80)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule
from tests.rules.running import Arrays, built, value


def greater(a: hk.XlaOp, b: hk.XlaOp, *_: hk.XlaOp) -> hk.XlaOp:
    return hk.gt(a, b)


def unitary(matrix: Arrays) -> bool:
    return np.allclose(matrix.conj().swapaxes(-1, -2) @ matrix, np.eye(matrix.shape[-1]), atol=1e-5)


def sample(*sizes: int, element_type: Any = np.float32) -> Arrays:
    random = np.random.default_rng(3)
    real = random.normal(size=sizes)
    return (real + 1j * random.normal(size=sizes) if np.dtype(element_type).kind == "c" else real).astype(element_type)


def together(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *p: hk.tuple_(p[0].builder, function(*p))


@rule("BEY-80")
@pytest.mark.parametrize("element_type", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("sizes", [(3, 3), (2, 5, 3), (3, 5)])
@pytest.mark.parametrize("full", [True, False])
def test_qr(element_type: Any, sizes: tuple[int, ...], full: bool) -> None:
    a = sample(*sizes, element_type=element_type)
    q, r = value(together(lambda p: hk.qr(p, full)), a)
    assert q.shape[-1] == (sizes[-2] if full else min(sizes[-2:]))
    assert unitary(q) and (np.tril(r, -1) == 0).all()
    np.testing.assert_allclose(q @ r, a, atol=1e-5)


@rule("BEY-80")
@pytest.mark.parametrize("element_type", [np.float32, np.complex128])
@pytest.mark.parametrize("lower", [True, False])
def test_eigh(element_type: Any, lower: bool) -> None:
    a = sample(2, 4, 4, element_type=element_type)
    a = (a + a.conj().swapaxes(-1, -2)).astype(element_type)
    triangle = (np.tril if lower else np.triu)(a)
    v, w = value(together(lambda p: hk.eigh(p, lower)), triangle)
    assert unitary(v) and (np.diff(w) >= 0).all() and w.dtype == a.real.dtype
    np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=1e-4)


@rule("BEY-80")
@pytest.mark.parametrize("sizes", [(4, 4), (2, 3, 5), (5, 2)])
def test_svd(sizes: tuple[int, ...]) -> None:
    a = sample(*sizes)
    u, d, v = value(together(hk.svd), a)
    k = min(sizes[-2:])
    assert unitary(u) and unitary(v) and d.shape == (*sizes[:-2], k)
    np.testing.assert_allclose(u[..., :k] * d[..., None, :] @ v[..., :k].swapaxes(-1, -2), a, atol=1e-5)


@rule("BEY-80")
@pytest.mark.parametrize("sizes", [(4, 4), (2, 3, 5, 3), (3, 5)])
def test_lu(sizes: tuple[int, ...]) -> None:
    a = sample(*sizes)
    packed, pivots, permutation = value(together(hk.lu_decomposition), a)
    k = min(sizes[-2:])
    lower = np.tril(packed[..., :k], -1) + np.eye(sizes[-2], k)
    upper = np.triu(packed[..., :k, :])
    np.testing.assert_allclose(np.take_along_axis(a, permutation[..., None], -2), lower @ upper, atol=1e-5)
    assert pivots.shape == (*sizes[:-2], k) and (pivots >= np.arange(k)).all() and (np.abs(lower) <= 1).all()


@rule("BEY-80")
def test_failing_factorizations_give_nan_for_their_matrix_only() -> None:
    a = np.stack([np.full((2, 2), np.nan), np.eye(2)]).astype(np.float32)
    v, w = value(together(hk.eigh), a)
    assert np.isnan(w[0]).all() and w[1].tolist() == [1, 1] and unitary(v[1])


@rule("BEY-80")
def test_approximate_selection_is_exact() -> None:
    x = np.array([[5, 1, 9], [2, 8, 3]], np.int32)
    index = np.broadcast_to(np.arange(3, dtype=np.int32), x.shape).copy()
    for function in (hk.approx_top_k, hk.approx_top_k_fallback):
        values, found = value(lambda p, q, f=function: f([p, q], [0, -1], 2, 1, greater), x, index)
        assert values.tolist() == [[9, 5], [8, 3]] and found.tolist() == [[2, 0], [1, 2]]
    assert hk.approx_top_k_reduction_output_size(100000, 2, 1, 0.99, False) == (128, 10)
    assert hk.approx_top_k_reduction_output_size(5000, 1, 200, 0.99, False, 2000000) == (2048, 2)
    assert hk.approx_top_k_reduction_output_size(100000, 2, 7, 0.99) == (7, -1)


def _approx(p: hk.XlaOp, init: Any = 0, k: int = 1, dimension: int = 0, recall: float = 0.9) -> hk.XlaOp:
    return hk.approx_top_k([p], [init], k, dimension, greater, recall)


@pytest.mark.parametrize(
    ("target", "operands", "result"),
    [
        ("Svd", "s32[3,3]", "(s32[3,3], s32[3], s32[3,3])"),
        ("Svd", "f32[3]", "(f32[3,3], f32[3], f32[3,3])"),
        ("Svd", "f32[2,3]", "(f32[2,3], f32[2], f32[3,3])"),
        ("Eigh", "f32[2,3]", "(f32[2,3], f32[2])"),
        ("Eigh", "c64[3,3]", "(c64[3,3], c64[3])"),
        ("Qr", "(f32[3,3])", "(f32[3,3], f32[3])"),
        ("Qr", "", "(f32[3,3], f32[3])"),
        ("LuDecomposition", "f32[2,3]", "(f32[2,3], s32[2], s64[2])"),
        ("ProductOfElementaryHouseholderReflectors", "f32[3,3], f32[4]", "f32[3,3]"),
        ("ProductOfElementaryHouseholderReflectors", "f32[3,3], f64[3]", "f32[3,3]"),
    ],
)
@rule("BEY-80")
def test_custom_calls_that_are_no_factorizations(target: str, operands: str, result: str) -> None:
    shapes = [shape for shape in operands.split(", ") if shape]
    parameters = "".join(f"  p{i} = {shape} parameter({i})\n" for i, shape in enumerate(shapes))
    names = ", ".join(f"p{i}" for i in range(len(shapes)))
    text = f'HloModule m\nENTRY e {{\n{parameters}  ROOT r = {result} custom-call({names}), custom_call_target="{target}"\n}}'
    with rejects("BEY-80"):
        hk.parse(text)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (hk.qr_decomposition, hk.f32[3]),
        (hk.qr_decomposition, hk.s32[3, 3]),
        (hk.eigh, hk.f32[2, 3]),
        (hk.svd, hk.s32[2, 3]),
        (hk.lu, hk.f32[2]),
        (lambda p: hk.product_of_elementary_householder_reflectors(p, p), hk.f32[2, 3]),
        (lambda p: _approx(p, init=p.builder.constant(0.0)), hk.s32[4]),
        (lambda p: _approx(p, k=5), hk.s32[4]),
        (lambda p: _approx(p, dimension=1), hk.s32[4]),
        (lambda p: _approx(p, recall=0.0), hk.s32[4]),
    ],
)
@rule("BEY-80")
def test_composites_reject(function: Callable[..., Any], shape: hk.Shape) -> None:
    with rejects("BEY-80"):
        built(function, shape)
