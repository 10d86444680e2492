"""The functions of jax.numpy.linalg, jax.scipy.linalg and jax.lax.linalg: (function, arguments) by name."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax

from tests.jax.interop.compare import hermitian, matrix, positive

A, B, S, P = matrix(4, 4), matrix(4, 3, seed=1), hermitian(4, 4), positive(4, 4)
TALL, WIDE = matrix(5, 3), matrix(3, 5)
L = np.tril(P)
TRIDIAGONAL = (matrix(4, seed=2), 5 + matrix(4, seed=3), matrix(4, seed=4), matrix(4, 2, seed=5))

NUMPY: dict[str, tuple[Any, ...]] = {
    "cholesky": (jnp.linalg.cholesky, P),
    "cholesky_upper": (lambda a: jnp.linalg.cholesky(a, upper=True), P),
    "cholesky_fails": (jnp.linalg.cholesky, -P),
    "cond": (jnp.linalg.cond, A),
    "cond_1": (lambda a: jnp.linalg.cond(a, 1), A),
    "cross": (jnp.linalg.cross, matrix(4, 3), B),
    "det_2": (jnp.linalg.det, matrix(2, 2)),
    "det_3": (jnp.linalg.det, matrix(3, 3)),
    "det": (jnp.linalg.det, A),
    "diagonal": (jnp.linalg.diagonal, A),
    "eig": (jnp.linalg.eig, A),
    "eigh": (jnp.linalg.eigh, S),
    "eigh_upper": (lambda a: jnp.linalg.eigh(a, "U"), S),
    "eigvals": (jnp.linalg.eigvals, A),
    "eigvalsh": (jnp.linalg.eigvalsh, S),
    "inv": (jnp.linalg.inv, A),
    "lstsq": (jnp.linalg.lstsq, TALL, matrix(5, 2, seed=1)),
    "matmul": (jnp.linalg.matmul, A, B),
    "matrix_norm": (jnp.linalg.matrix_norm, A),
    "matrix_norm_nuclear": (lambda a: jnp.linalg.matrix_norm(a, ord="nuc"), A),
    "matrix_power": (lambda a: jnp.linalg.matrix_power(a, 5), A),
    "matrix_power_inverse": (lambda a: jnp.linalg.matrix_power(a, -2), A),
    "matrix_rank": (jnp.linalg.matrix_rank, A),
    "matrix_transpose": (jnp.linalg.matrix_transpose, B),
    "multi_dot": (lambda *a: jnp.linalg.multi_dot(a), WIDE, TALL, WIDE, TALL),
    "norm": (jnp.linalg.norm, A),
    "norm_2": (lambda a: jnp.linalg.norm(a, 2), A),
    "norm_inf": (lambda a: jnp.linalg.norm(a, np.inf), A),
    "outer": (jnp.linalg.outer, A[0], A[1]),
    "pinv": (jnp.linalg.pinv, TALL),
    "qr": (jnp.linalg.qr, TALL),
    "qr_complete": (lambda a: jnp.linalg.qr(a, mode="complete"), TALL),
    "qr_r": (lambda a: jnp.linalg.qr(a, mode="r"), WIDE),
    "slogdet": (jnp.linalg.slogdet, A),
    "slogdet_qr": (lambda a: jnp.linalg.slogdet(a, method="qr"), A),
    "solve": (jnp.linalg.solve, A, B),
    "solve_vector": (jnp.linalg.solve, A, B[:, 0]),
    "svd": (jnp.linalg.svd, TALL),
    "svd_thin": (lambda a: jnp.linalg.svd(a, full_matrices=False), WIDE),
    "svd_values": (lambda a: jnp.linalg.svd(a, compute_uv=False), WIDE),
    "svd_hermitian": (lambda a: jnp.linalg.svd(a, hermitian=True), S),
    "svdvals": (jnp.linalg.svdvals, WIDE),
    "tensordot": (lambda a, b: jnp.linalg.tensordot(a, b, axes=1), A, B),
    "tensorinv": (lambda a: jnp.linalg.tensorinv(a, 1), matrix(6, 2, 3)),
    "tensorsolve": (jnp.linalg.tensorsolve, matrix(2, 3, 6), matrix(2, 3)),
    "trace": (jnp.linalg.trace, A),
    "vecdot": (jnp.linalg.vecdot, A, A + 1),
    "vector_norm": (lambda a: jnp.linalg.vector_norm(a, ord=3), A),
}

SCIPY: dict[str, tuple[Any, ...]] = {
    "block_diag": (jsl.block_diag, A, B),
    "cho_factor": (lambda a: jsl.cho_factor(a)[0], P),
    "cho_solve": (lambda a, b: jsl.cho_solve((a, True), b), L, B),
    "cholesky": (lambda a: jsl.cholesky(a, lower=True), P),
    "det": (jsl.det, A),
    "eigh": (jsl.eigh, S),
    "eigh_tridiagonal": (lambda d, e: jsl.eigh_tridiagonal(d, e, eigvals_only=True), A[0], A[1, :3]),
    "expm": (jsl.expm, A),
    "expm_frechet": (jsl.expm_frechet, A, S),
    "funm": (lambda a: jsl.funm(a, jnp.cos, disp=True), A),
    "hessenberg": (lambda a: jsl.hessenberg(a, calc_q=True), A),
    "hilbert": (lambda a: a + jsl.hilbert(4), A),
    "inv": (jsl.inv, A),
    "lu": (jsl.lu, TALL),
    "lu_factor": (jsl.lu_factor, A),
    "lu_solve": (lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b), A, B),
    "lu_solve_transposed": (lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b, trans=1), A, B),
    "pascal": (lambda a: a + jsl.pascal(4), A),
    "polar": (jsl.polar, TALL),
    "polar_qdwh": (lambda a: jsl.polar(a, method="qdwh"), TALL),
    "qr": (jsl.qr, TALL),
    "qr_pivoted": (lambda a: jsl.qr(a, pivoting=True), TALL),
    "rsf2csf": (lambda a: jsl.rsf2csf(*jsl.schur(a)), A),
    "schur": (jsl.schur, A),
    "schur_complex": (lambda a: jsl.schur(a, output="complex"), A),
    "solve": (jsl.solve, A, B),
    "solve_positive": (lambda a, b: jsl.solve(a, b, assume_a="pos"), P, B),
    "solve_triangular": (lambda a, b: jsl.solve_triangular(a, b, lower=True), L, B),
    "solve_triangular_unit": (lambda a, b: jsl.solve_triangular(a, b, trans=1, unit_diagonal=True), L.T, B),
    "solve_sylvester": (lambda a, b, c: jsl.solve_sylvester(a, b, c), A, S, P),
    "sqrtm": (jsl.sqrtm, P),
    "svd": (jsl.svd, TALL),
    "toeplitz": (jsl.toeplitz, A[0], A[1]),
}

LAX: dict[str, tuple[Any, ...]] = {
    "cholesky": (lax.linalg.cholesky, P),
    "cholesky_update": (lax.linalg.cholesky_update, L.T.copy(), A[0]),
    "eig": (lambda a: lax.linalg.eig(a, compute_left_eigenvectors=True), A),
    "eig_values": (lambda a: lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False), A),
    "eigh": (lax.linalg.eigh, S),
    "eigh_subset": (lambda a: lax.linalg.eigh(a, sort_eigenvalues=False), S),
    "hessenberg": (lax.linalg.hessenberg, A),
    "householder_product": (lambda a: lax.linalg.householder_product(a, a[0] / 9), TALL),
    "lu": (lax.linalg.lu, TALL),
    "lu_pivots_to_permutation": (lambda p: lax.linalg.lu_pivots_to_permutation(p, 6), np.int32([1, 3, 2, 3])),
    "qr": (lax.linalg.qr, TALL),
    "qr_pivoted": (lambda a: lax.linalg.qr(a, pivoting=True), TALL),
    "schur": (lax.linalg.schur, A),
    "schur_values": (lambda a: lax.linalg.schur(a, compute_schur_vectors=False), A),
    "svd": (lax.linalg.svd, TALL),
    "svd_qr": (lambda a: lax.linalg.svd(a, algorithm=lax.linalg.SvdAlgorithm.QR), TALL),
    "symmetric_product": (lambda a, c: lax.linalg.symmetric_product(a, c, alpha=2.0), TALL, hermitian(5, 5)),
    "triangular_solve": (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), L, B),
    "triangular_solve_right": (lambda a, b: lax.linalg.triangular_solve(a, b, lower=True, transpose_a=True), L, B.T),
    "tridiagonal": (lax.linalg.tridiagonal, S),
    "tridiagonal_upper": (lambda a: lax.linalg.tridiagonal(a, lower=False), S),
    "tridiagonal_solve": (lax.linalg.tridiagonal_solve, *TRIDIAGONAL),
}

ALL = {
    f"{module}.{name}": case
    for module, names in (("numpy", NUMPY), ("scipy", SCIPY), ("lax", LAX))
    for name, case in names.items()
}

NO_BATCH = {"lax.cholesky_update"}
"""What JAX has no rule for under vmap."""

NO_GRADIENT = {
    *("numpy.eig", "numpy.matrix_rank", "numpy.svd"),
    *("scipy.eigh_tridiagonal", "scipy.funm", "scipy.hessenberg", "scipy.polar", "scipy.polar_qdwh", "scipy.rsf2csf"),
    *("scipy.schur", "scipy.schur_complex", "scipy.solve_sylvester", "scipy.sqrtm", "scipy.svd"),
    *("lax.cholesky_update", "lax.eig", "lax.hessenberg", "lax.householder_product", "lax.lu_pivots_to_permutation"),
    *("lax.schur", "lax.schur_values", "lax.svd", "lax.svd_qr", "lax.symmetric_product"),
    *("lax.tridiagonal", "lax.tridiagonal_upper"),
}
"""What JAX has no reverse derivative of."""
