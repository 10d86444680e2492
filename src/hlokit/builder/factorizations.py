"""Composite functions of XLA's client library: matrix factorizations and approximate selection (BEY-80).

The factorizations are custom calls, mostly to the targets that XLA's own library uses; hlokit has them built in
(ops/custom_targets/factorizations.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hlokit.builder.control import tuple_
from hlokit.builder.core import ComputationLike, XlaOp, handles
from hlokit.builder.custom_calls import custom_call
from hlokit.builder.indexing import slice_in_dim
from hlokit.builder.linalg import sort
from hlokit.builder.matrix import upper_triangle
from hlokit.builder.movement import pad_in_dim
from hlokit.hlo.op import check
from hlokit.ops.factorizations import factorization

__all__ = [
    "approx_top_k",
    "approx_top_k_fallback",
    "approx_top_k_reduction_output_size",
    "eigh",
    "lu",
    "lu_decomposition",
    "product_of_elementary_householder_reflectors",
    "qr",
    "qr_decomposition",
    "svd",
]


def qr_decomposition(operand: XlaOp) -> tuple[XlaOp, XlaOp]:
    """(R above the Householder vectors, in the shape of operand; their factors tau [..., min(m, n)]) (BEY-80).

    Parameters
    ----------
    operand : XlaOp
        Matrices, [..., m, n].

    Returns
    -------
    tuple of XlaOp
        The factors, of the operand's shape, and tau, [..., min(m, n)].

    Raises
    ------
    ShapeError
        `operand` is not of matrices of a floating or complex type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> packed, taus = hk.qr_decomposition(b.constant([[3.0, 1.0], [4.0, 2.0]]))
    >>> hk.evaluate(b.build(taus)).round(3)
    array([1.6, 0. ], dtype=float32)
    """
    return tuple(_call("Qr", [operand]))  # type: ignore[return-value]


def product_of_elementary_householder_reflectors(a: XlaOp, taus: XlaOp) -> XlaOp:
    """The first columns of H_0 H_1 ..., H_i = I - tau_i v_i v_i^H with v_i below the diagonal of a (BEY-80).

    a: [..., m, n], taus: [..., k] with k <= n; the result has a's shape.

    Parameters
    ----------
    a : XlaOp
        Matrices, [..., m, n].
    taus : XlaOp
        Factors, [..., k] with k <= n, of the element type of `a`.

    Returns
    -------
    XlaOp
        An array of the shape of `a`.

    Raises
    ------
    ShapeError
        The operands do not match (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> packed, taus = hk.qr_decomposition(b.constant([[3.0, 1.0], [4.0, 2.0]]))
    >>> q = hk.product_of_elementary_householder_reflectors(packed, taus)
    >>> hk.evaluate(b.build(q)).round(3)
    array([[-0.6, -0.8],
           [-0.8,  0.6]], dtype=float32)
    """
    return _call("ProductOfElementaryHouseholderReflectors", [a, taus])  # type: ignore[return-value]


def qr(operand: XlaOp, full_matrices: bool) -> tuple[XlaOp, XlaOp]:
    """(q, r) with operand = q r, q unitary and r upper triangular (BEY-80).

    For [..., m, n]: q is [..., m, m] and r [..., m, n] with `full_matrices`, else q is [..., m, p] and r [..., p, n],
    where p = min(m, n).

    Parameters
    ----------
    operand : XlaOp
        Matrices, [..., m, n].
    full_matrices : bool
        Whether q is square.

    Returns
    -------
    tuple of XlaOp
        (q, r), of the operand's element type.

    Raises
    ------
    ShapeError
        `operand` is not of matrices of a floating or complex type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> q, r = hk.qr(b.constant([[3.0, 1.0], [4.0, 2.0]]), False)
    >>> abs(hk.evaluate(b.build(r))).round(3)
    array([[5. , 2.2],
           [0. , 0.4]], dtype=float32)
    """
    packed, taus = qr_decomposition(operand)
    rows, columns = operand.shape.dimensions[-2:]
    row_axis, column_axis = operand.rank - 2, operand.rank - 1
    width = rows if full_matrices else min(rows, columns)
    vectors = packed
    if width < columns:
        vectors = slice_in_dim(packed, 0, width, 1, column_axis)
    elif width > columns:
        vectors = pad_in_dim(packed, 0.0, column_axis, 0, width - columns)
    q = product_of_elementary_householder_reflectors(vectors, taus)
    kept = packed if full_matrices else slice_in_dim(packed, 0, width, 1, row_axis)
    return q, upper_triangle(kept)


def eigh(
    a: XlaOp, lower: bool = True, max_iter: int = 15, epsilon: float = 1e-5, sort_eigenvalues: bool = True
) -> tuple[XlaOp, XlaOp]:
    """The eigenvectors and eigenvalues of Hermitian matrices (BEY-80).

    Parameters
    ----------
    a : XlaOp
        Hermitian matrices, [..., n, n].
    lower : bool, optional
        Whether the lower triangle is read; else the upper.
    max_iter, epsilon : optional
        Bounds of XLA's iteration; hlokit does not use them.
    sort_eigenvalues : bool, optional
        Whether eigenvalues ascend; hlokit's always do.

    Returns
    -------
    tuple of XlaOp
        (v, w): orthonormal eigenvectors in the columns of v, [..., n, n]; real eigenvalues w, [..., n], ascending.

    Raises
    ------
    ShapeError
        `a` is not of square matrices of a floating or complex type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> v, w = hk.eigh(b.constant([[2.0, 0.0], [0.0, 1.0]]))
    >>> hk.evaluate(b.build(w)).round(3)
    array([1., 2.], dtype=float32)
    """
    opaque = f"{int(lower)},{int(sort_eigenvalues)},{max_iter},{epsilon:f}"
    return tuple(_call("Eigh", [a], opaque))  # type: ignore[return-value]


def svd(a: XlaOp, max_iter: int = 100, epsilon: float = 1e-6) -> tuple[XlaOp, XlaOp, XlaOp]:
    """The singular value decomposition: a = u[:, :k] diag(d) v[:, :k]^H with k = min(m, n) (BEY-80).

    Parameters
    ----------
    a : XlaOp
        Matrices, [..., m, n].
    max_iter, epsilon : optional
        Bounds of XLA's iteration; hlokit does not use them.

    Returns
    -------
    tuple of XlaOp
        (u, d, v): [..., m, m], [..., k] descending, [..., n, n].

    Raises
    ------
    ShapeError
        `a` is not of matrices of a floating or complex type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> u, d, v = hk.svd(b.constant([[3.0, 0.0], [0.0, -4.0]]))
    >>> hk.evaluate(b.build(d)).round(3)
    array([4., 3.], dtype=float32)
    """
    return tuple(_call("Svd", [a], f"{max_iter},{epsilon:f}"))  # type: ignore[return-value]


def lu(operand: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """(L below U, pivots, permutation) with operand[permutation] = L U, with partial pivoting (BEY-80).

    For [..., m, n]: pivots s32[..., min(m, n)] (step i swaps row i with row pivots[i]), permutation s32[..., m].

    Parameters
    ----------
    operand : XlaOp
        Matrices, [..., m, n].

    Returns
    -------
    tuple of XlaOp
        The factors, of the operand's shape; the pivots, s32[..., min(m, n)]; the permutation, s32[..., m].

    Raises
    ------
    ShapeError
        `operand` is not of matrices of a floating or complex type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.lu(b.constant([[1.0, 2.0], [4.0, 4.0]]))))
    (array([[4.  , 4.  ],
           [0.25, 1.  ]], dtype=float32), array([1, 1], dtype=int32), array([1, 0], dtype=int32))
    """
    return tuple(_call("LuDecomposition", [operand]))  # type: ignore[return-value]


def lu_decomposition(a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """`lu` under its name in XLA's C++ library (BEY-80).

    Parameters
    ----------
    a : XlaOp
        Matrices, [..., m, n].

    Returns
    -------
    tuple of XlaOp
        The factors, of the shape of `a`; the pivots, s32[..., min(m, n)]; the permutation, s32[..., m].

    Raises
    ------
    ShapeError
        `a` is not of matrices of a floating or complex type (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> factors, pivots, permutation = hk.lu_decomposition(b.constant([[1.0, 2.0], [4.0, 4.0]]))
    >>> hk.evaluate(b.build(permutation))
    array([1, 0], dtype=int32)
    """
    return lu(a)


def _call(target: str, operands: Sequence[XlaOp], opaque: str = "") -> XlaOp:
    handles(*operands)
    result = factorization(target, [operand.shape for operand in operands])
    assert result is not None
    return custom_call(operands[0].builder, target, operands, result, opaque)


def approx_top_k(
    operands: Sequence[XlaOp],
    init_values: Sequence[Any],
    top_k: int,
    reduction_dim: int,
    comparator: ComputationLike,
    recall_target: float = 0.9,
    aggregate_to_topk: bool = True,
    reduction_input_size_override: int = -1,
) -> XlaOp:
    """The tuple of each operand's `top_k` elements along `reduction_dim` that the comparator puts first (BEY-80).

    All operands are permuted alike, as in sort. The result is exact, which every `recall_target` in (0, 1] allows.
    Without `aggregate_to_topk` there are approx_top_k_reduction_output_size elements. `init_values` determine only the
    type.

    Parameters
    ----------
    operands : sequence of XlaOp
        Arrays of one shape.
    init_values : sequence of XlaOp or number
        Scalars, one of each operand's element type.
    top_k : int
        The number of elements that are kept.
    reduction_dim : int
        The dimension along which they are chosen.
    comparator : Computation, HloModule or callable
        Takes (a0, b0, a1, b1, ...), the elements of each operand at two positions, to pred[]: whether the first go
        before.
    recall_target : float, optional
        The required share of the true first elements, in (0, 1].
    aggregate_to_topk : bool, optional
        Whether the result has exactly `top_k` elements, and not more.
    reduction_input_size_override : int, optional
        The size for which the result's size is computed, in place of the dimension's size; -1: none.

    Returns
    -------
    XlaOp
        A tuple with one array for each operand, in which `reduction_dim` has `top_k` elements.

    Raises
    ------
    ShapeError
        The operands and the other arguments do not match (BEY-80).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, places = b.constant([3.0, 9.0, 5.0]), b.iota(hk.s32, 3)
    >>> starts = [hk.min_value(b, hk.f32), b.constant(-1)]
    >>> best = hk.approx_top_k([x, places], starts, 2, 0, lambda x, y, i, j: x > y)
    >>> hk.evaluate(b.build(best))
    (array([9., 5.], dtype=float32), array([1, 2], dtype=int32))
    """
    values = handles(*operands)
    check(len(values) > 0, "BEY-80", "operands", 0, "at least one")
    check(len(values) == len(init_values), "BEY-80", "init_values", len(init_values), len(values))
    for i, (value, init) in enumerate(zip(values, handles(values[0], *init_values)[1:], strict=True)):
        check(init.shape.static is value.dtype[()], "BEY-80", f"init_value {i}", init.shape, value.dtype[()])
    first = values[0].shape
    check(0 <= reduction_dim < first.rank, "BEY-80", "reduction_dim", reduction_dim, f"in [0, {first.rank})")
    size = first.dimensions[reduction_dim]
    check(0 < recall_target <= 1, "BEY-80", "recall_target", recall_target, "in (0, 1]")
    check(1 <= top_k <= size, "BEY-80", "top_k", top_k, f"in [1, {size}]")
    kept = top_k
    if not aggregate_to_topk:
        sizes = (size, first.rank, top_k, recall_target, False, reduction_input_size_override)
        kept = approx_top_k_reduction_output_size(*sizes)[0]
    ordered = sort(values, comparator, reduction_dim)
    parts = [ordered] if len(values) == 1 else list(ordered)
    return tuple_(values[0].builder, [slice_in_dim(part, 0, min(kept, size), 1, reduction_dim) for part in parts])


approx_top_k_fallback = approx_top_k
"""XLA's form for backends without the instruction; here there is no difference."""


def approx_top_k_reduction_output_size(
    input_size: int,
    rank: int,
    top_k: int,
    recall_target: float,
    aggregate_to_topk: bool = True,
    input_size_override: int = -1,
) -> tuple[int, int]:
    """(size of approx_top_k's reduced dimension, log2 of the reduction) as XLA's TPU form chooses them (BEY-80).

    Parameters
    ----------
    input_size : int
        The size of the reduced dimension.
    rank : int
        The operand's rank.
    top_k : int
        The number of elements that are kept.
    recall_target : float
        The required share of the true first elements, in (0, 1].
    aggregate_to_topk : bool, optional
        Whether the result has exactly `top_k` elements, and not more.
    input_size_override : int, optional
        A size to compute with in place of `input_size`; -1: none.

    Returns
    -------
    tuple of int
        The size of the dimension in the result, and log2 of the factor that it is reduced by.

    Raises
    ------
    ShapeError
        An argument is out of range (BEY-80).

    Examples
    --------
    >>> hk.approx_top_k_reduction_output_size(1_000_000, 2, 10, 0.95)
    (10, -1)
    """
    check(0 < recall_target <= 1, "BEY-80", "recall_target", recall_target, "in (0, 1]")
    if aggregate_to_topk:
        return top_k, -1
    tiling = 1024 if rank == 1 else 128
    if input_size <= tiling:
        return input_size, 0
    logical_size = input_size_override if input_size_override >= 0 else input_size
    if top_k == 1:
        return tiling, _log2_ceil(-(-logical_size // tiling))
    if recall_target == 1.0:
        return input_size, 0
    wanted = min(max(int((1 - top_k) / math.log(recall_target)), tiling), input_size)
    log2_reduction = (logical_size // wanted).bit_length() - 1
    if log2_reduction <= 0:
        return input_size, 0
    log2_reduction = min(log2_reduction, _log2_ceil(input_size // tiling))
    tiles = -(-input_size // tiling)
    return -(-tiles // 2**log2_reduction) * tiling, log2_reduction


def _log2_ceil(number: int) -> int:
    return (number - 1).bit_length()
