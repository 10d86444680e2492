"""Op functions of sorting, linear algebra and random numbers."""

from typing import Any

import hlokit as hk
from hlokit.interop.xla_client.ops import arguments as t
from hlokit.interop.xla_client.ops.signatures import op


@op()
def Sort(
    builder: t.Builder,
    operands: t.Ops,
    comparator: t.OptionalComputation = None,
    dimension: t.Int = -1,
    is_stable: t.Bool = False,
) -> hk.XlaOp:
    """Sorts along a dimension, all operands by one order; a tuple for several operands."""
    return hk.sort(operands, comparator, dimension, is_stable)


@op()
def TopK(input: t.Op, k: t.Int) -> hk.XlaOp:
    """The tuple of the k largest elements of each line, and their indices."""
    return hk.top_k(input, k)


@op()
def ApproxTopK(
    builder: t.Builder,
    operands: t.Ops,
    init_values: t.Ops,
    top_k: t.Int,
    reduction_dim: t.Int,
    comparator: t.Computation,
    recall_target: t.Float = 0.9,
    aggregate_to_topk: t.Bool = True,
    reduction_input_size_override: t.Int = -1,
) -> hk.XlaOp:
    """The k best of a dimension by the comparator."""
    sizes = (recall_target, aggregate_to_topk, reduction_input_size_override)
    return hk.approx_top_k(operands, init_values, top_k, reduction_dim, comparator, *sizes)


@op()
def ApproxTopKFallback(
    builder: t.Builder,
    operands: t.Ops,
    init_values: t.Ops,
    top_k: t.Int,
    reduction_dim: t.Int,
    comparator: t.Computation,
    recall_target: t.Float = 0.9,
    aggregate_to_topk: t.Bool = True,
    reduction_input_size_override: t.Int = -1,
) -> hk.XlaOp:
    """Same as ApproxTopK, by sorting."""
    sizes = (recall_target, aggregate_to_topk, reduction_input_size_override)
    return hk.approx_top_k_fallback(operands, init_values, top_k, reduction_dim, comparator, *sizes)


@op(returns="tuple[int, int]")
def ApproxTopKReductionOutputSize(
    input_size: t.Int,
    rank: t.Int,
    top_k: t.Int,
    recall_target: t.Float,
    aggregate_to_topk: t.Bool = True,
    input_size_override: t.Int = -1,
) -> Any:
    """(size of the reduced dimension, log2 of how many elements were merged into one)."""
    sizes = (recall_target, aggregate_to_topk, input_size_override)
    return hk.approx_top_k_reduction_output_size(input_size, rank, top_k, *sizes)


@op()
def Fft(operand: t.Op, fft_type: t.Fft, fft_length: t.Ints) -> hk.XlaOp:
    """The Fourier transform of the last dimensions."""
    return hk.fft(operand, fft_type, fft_length)


@op()
def Cholesky(a: t.Op, lower: t.Bool = True) -> hk.XlaOp:
    """The Cholesky factor of each matrix."""
    return hk.cholesky(a, lower)


@op()
def TriangularSolve(
    a: t.Op, b: t.Op, left_side: t.Bool, lower: t.Bool, unit_diagonal: t.Bool, transpose_a: t.Transposition
) -> hk.XlaOp:
    """x with op(a) x = b or x op(a) = b."""
    return hk.triangular_solve(a, b, left_side, lower, unit_diagonal, transpose_a)


@op(results=2)
def QR(operand: t.Op, full_matrices: t.Bool) -> tuple[hk.XlaOp, ...]:
    """(q, r)."""
    return hk.qr(operand, full_matrices)


@op(results=2)
def QrDecomposition(operand: t.Op) -> tuple[hk.XlaOp, ...]:
    """(r above the reflectors' vectors, their factors)."""
    return hk.qr_decomposition(operand)


@op()
def ProductOfElementaryHouseholderReflectors(a: t.Op, taus: t.Op) -> hk.XlaOp:
    """The q that QrDecomposition's result stands for."""
    return hk.product_of_elementary_householder_reflectors(a, taus)


@op(results=3)
def LU(operand: t.Op) -> tuple[hk.XlaOp, ...]:
    """(l below u, pivots, permutation)."""
    return hk.lu(operand)


@op(results=2)
def Eigh(
    a: t.Op,
    lower: t.Bool = True,
    max_iter: t.Int = 15,
    epsilon: t.Float = 1e-5,
    sort_eigenvalues: t.Bool = True,
) -> tuple[hk.XlaOp, ...]:
    """(eigenvectors, eigenvalues) of Hermitian matrices."""
    return hk.eigh(a, lower, max_iter, epsilon, sort_eigenvalues)


@op(results=3)
def SVD(a: t.Op, max_iter: t.Int = 100, epsilon: t.Float = 1e-6) -> tuple[hk.XlaOp, ...]:
    """(u, d, v) with a = u diag(d) v^H."""
    return hk.svd(a, max_iter, epsilon)


@op()
def RngNormal(mu: t.Op, sigma: t.Op, shape: t.ShapeOf) -> hk.XlaOp:
    """Normally distributed numbers."""
    return hk.rng_normal(mu, sigma, shape)


@op()
def RngUniform(a: t.Op, b: t.Op, shape: t.ShapeOf) -> hk.XlaOp:
    """Numbers from a up to b, b left out."""
    return hk.rng_uniform(a, b, shape)


@op()
def RngBitGenerator(algorithm: t.Random, initial_state: t.Op, shape: t.ShapeOf) -> hk.XlaOp:
    """The tuple (new state, random bits)."""
    return hk.rng_bit_generator(algorithm, initial_state, shape)
