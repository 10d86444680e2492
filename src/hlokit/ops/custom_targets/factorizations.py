"""Matrix factorizations, under the names of the custom-calls that XLA expands before it generates code.

A batch is factored as a whole; loops run over the columns of a matrix only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.hlo.values import Array
from hlokit.ops.custom_targets.registry import Invocation, built_in
from hlokit.ops.linalg import by_lapack, computed


@built_in("Qr")
def qr(call: Invocation) -> tuple[Array, Array]:
    """Householder QR in LAPACK's form: (R above the reflectors' vectors, their factors tau)."""
    (a,) = call.operands
    if not a.size:
        return a, np.zeros((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    unsigned_zeros = computed(a) + 0  # LAPACK gives R the sign of a leading -0, XLA does not
    transposed, taus = by_lapack(lambda: np.linalg.qr(unsigned_zeros, mode="raw"), a)
    return transposed.swapaxes(-1, -2).astype(a.dtype), taus.astype(a.dtype)


@built_in("ProductOfElementaryHouseholderReflectors")
def product_of_reflectors(call: Invocation) -> Array:
    """The first columns of H_0 H_1 ... H_k, where H_i = I - tau_i v_i v_i^H and v_i is column i below its leading 1."""
    a, taus = call.operands
    vectors, factors = computed(a), computed(taus)
    rows, columns = a.shape[-2:]
    product = np.broadcast_to(np.eye(rows, columns, dtype=vectors.dtype), a.shape).copy()
    for i in reversed(range(factors.shape[-1])):
        v = vectors[..., :, i : i + 1].copy()
        v[..., :i, :] = 0
        v[..., i : i + 1, :] = 1
        product -= factors[..., i, None, None] * v @ (v.conj().swapaxes(-1, -2) @ product)
    return product.astype(a.dtype)


@built_in("Eigh")
def eigh(call: Invocation) -> tuple[Array, Array]:
    """(v, w) with a v = v diag(w), w ascending. The opaque string "lower,sort,..." names the triangle that is read."""
    (a,) = call.operands
    lower = not call.opaque.startswith("0")
    if not a.size:
        return a, np.zeros(a.shape[:-1], call.shape.elements[1].dtype.numpy)

    def decompose(matrix: Array) -> tuple[Array, ...]:
        values, vectors = by_lapack(lambda: np.linalg.eigh(matrix, "L" if lower else "U"), matrix)
        return vectors, values

    vectors, values = _each_or_nan(decompose, computed(a))
    return vectors.astype(a.dtype), values.astype(call.shape.elements[1].dtype.numpy)


@built_in("Svd")
def svd(call: Invocation) -> tuple[Array, Array, Array]:
    """(u, d, v) with a = u[:, :k] diag(d) v[:, :k]^H, k = min(m, n); u and v are square and unitary, d descends."""
    (a,) = call.operands

    def decompose(matrix: Array) -> tuple[Array, ...]:
        if not np.isfinite(matrix).all():
            raise np.linalg.LinAlgError  # LAPACK may never return from an infinity
        left, values, right = by_lapack(lambda: np.linalg.svd(matrix, full_matrices=True), matrix)
        return left, values, right.conj().swapaxes(-1, -2)

    u, d, v = _each_or_nan(decompose, computed(a))
    return u.astype(a.dtype), d.astype(call.shape.elements[1].dtype.numpy), v.astype(a.dtype)


@built_in("LuDecomposition")
def lu(call: Invocation) -> tuple[Array, Array, Array]:
    """(L below U, the row that step i swaps with row i, permutation): a[permutation] = L U, pivots being largest."""
    (a,) = call.operands
    factors = computed(a).copy()
    rows, columns = a.shape[-2:]
    steps = min(rows, columns)
    pivots = np.zeros((*a.shape[:-2], steps), np.int32)
    permutation = np.broadcast_to(np.arange(rows, dtype=np.int32), a.shape[:-1]).copy()
    for i in range(steps):
        pivot = i + np.argmax(np.abs(factors[..., i:, i]), axis=-1)
        pivots[..., i] = pivot
        _swap_rows(factors, i, pivot)
        _swap_rows(permutation[..., None], i, pivot)
        diagonal = factors[..., i, i, None]
        below = np.where(diagonal == 0, factors[..., i + 1 :, i], factors[..., i + 1 :, i] / diagonal)
        factors[..., i + 1 :, i] = below
        factors[..., i + 1 :, i + 1 :] -= below[..., :, None] * factors[..., i, None, i + 1 :]
    return factors.astype(a.dtype), pivots, permutation


def _swap_rows(matrices: Array, row: int, other: Array) -> None:
    """Exchanges, in each matrix, `row` and the matrix's own other row."""
    index = other[..., None, None]
    moved = np.take_along_axis(matrices, index, -2)
    np.put_along_axis(matrices, index, matrices[..., row : row + 1, :].copy(), -2)
    matrices[..., row : row + 1, :] = moved


def _each_or_nan(decompose: Any, a: Array) -> tuple[Array, ...]:
    """`decompose` of the batch; where that fails, matrix by matrix, with NaN for those that have no result."""
    try:
        return decompose(a)
    except np.linalg.LinAlgError:
        shapes = decompose(np.zeros_like(a))
    results = tuple(np.full_like(part, np.nan) for part in shapes)
    for index in np.ndindex(*a.shape[:-2]):
        try:
            parts = decompose(a[index])
        except np.linalg.LinAlgError:
            continue
        for result, part in zip(results, parts, strict=True):
            result[index] = part
    return results
