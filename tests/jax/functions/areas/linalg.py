"""jax.numpy.linalg, jax.scipy.linalg, jax.lax.linalg, jax.numpy.fft, jax.scipy.fft."""

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax

from tests.jax.functions.table import case, each, normal, positive, symmetric

N, S, L, F = "jax.numpy.linalg", "jax.scipy.linalg", "jax.lax.linalg", "jax.numpy.fft"
A, B, P, H = normal(4, 4), normal(4, 3), positive(4), symmetric(4)
TALL, WIDE, LOWER = normal(5, 3), normal(3, 5), np.tril(positive(4))
SIGNAL, CUBE = normal(3, 8), normal(2, 3, 4)
BOTH = "f32 c64"
EIG = {"tolerance": 2e-4, "reason": "single precision LAPACK: an error in proportion to the matrix's condition"}

NUMPY = [
    *each(N, "cholesky", P),
    case(f"{N}.cond", None, A, **EIG),
    *each(N, "cross", normal(4, 3), normal(4, 3, seed=1)),
    *each(N, "det inv slogdet", A, types=BOTH, **EIG),
    *each(N, "diagonal matrix_norm norm trace", A, types=BOTH),
    case(f"{N}.norm", lambda a: jnp.linalg.norm(a, 2), A, label="2", **EIG),
    *each(N, "eigh", H, **EIG),
    *each(N, "eigvalsh", H, **EIG),
    case(f"{N}.eig", None, A, no_grad=True, **EIG),
    case(f"{N}.eigvals", None, A, **EIG),
    case(f"{N}.lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], TALL, normal(5, 2), **EIG),
    *each(N, "matmul", A, B, types="f32 bf16 c64"),
    case(f"{N}.matrix_power", lambda a: jnp.linalg.matrix_power(a, 5), A),
    *each(N, "matrix_rank", A),
    *each(N, "matrix_transpose", CUBE),
    case(f"{N}.multi_dot", lambda *a: jnp.linalg.multi_dot(a), WIDE, TALL, WIDE, TALL),
    *each(N, "outer", A[0], B[:, 0]),
    case(f"{N}.pinv", None, TALL, **EIG),
    case(f"{N}.qr", None, TALL, types=BOTH, **EIG),
    case(f"{N}.solve", None, A, B, types=BOTH, **EIG),
    case(f"{N}.svd", lambda a: jnp.linalg.svd(a, full_matrices=False), WIDE, types="f32", **EIG),
    case(f"{N}.svdvals", None, WIDE, types=BOTH, **EIG),
    case(f"{N}.tensordot", lambda a, b: jnp.linalg.tensordot(a, b, axes=1), A, B),
    case(f"{N}.tensorinv", lambda a: jnp.linalg.tensorinv(a, 1), normal(6, 2, 3), **EIG),
    case(f"{N}.tensorsolve", None, normal(2, 3, 6), normal(2, 3), **EIG),
    *each(N, "vecdot", A, A + 1, types=BOTH),
    case(f"{N}.vector_norm", lambda a: jnp.linalg.vector_norm(a, ord=3), A),
]  # fmt: skip
SCIPY = [
    *each(S, "block_diag", A, B),
    case(f"{S}.cho_factor", lambda a: jnp.tril(jsl.cho_factor(a, lower=True)[0]), P),
    case(f"{S}.cho_solve", lambda a, b: jsl.cho_solve((a, True), b), LOWER, B, **EIG),
    case(f"{S}.cholesky", lambda a: jsl.cholesky(a, lower=True), P),
    *each(S, "circulant fiedler", A[0]),
    *each(S, "companion", A[0]),
    case(f"{S}.convolution_matrix", lambda a: jsl.convolution_matrix(a, 5), A[0]),
    *each(S, "det inv", A, **EIG),
    case(f"{S}.dft", lambda: jsl.dft(5)),
    case(f"{S}.eigh", None, H, **EIG),
    case(f"{S}.eigh_tridiagonal", lambda d, e: jsl.eigh_tridiagonal(d, e, eigvals_only=True), A[0], A[1, :3],
         no_grad=True),
    *each(S, "expm", A, **EIG),
    *each(S, "expm_frechet", A, H, **EIG),
    *each(S, "fiedler_companion", A[0]),
    *each(S, "leslie", A[0], A[1, :3]),
    case(f"{S}.funm", lambda a: jsl.funm(a, jnp.cos), A, no_grad=True, **EIG),
    *[case(f"{S}.{f}", lambda a, f=f: a + getattr(jsl, f)(4), A)
      for f in ["hadamard", "hilbert", "invhilbert", "pascal", "invpascal"]],
    case(f"{S}.helmert", lambda a: a @ jsl.helmert(4, full=True), A),
    *each(S, "hankel toeplitz", A[0], A[1]),
    case(f"{S}.hessenberg", lambda a: jsl.hessenberg(a, calc_q=True), A, no_grad=True, **EIG),
    case(f"{S}.lu", None, TALL, **EIG),
    case(f"{S}.lu_factor", None, A, **EIG),
    case(f"{S}.lu_solve", lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b, trans=1), A, B, **EIG),
    case(f"{S}.polar", lambda a: jsl.polar(a), TALL, no_grad=True, **EIG),
    case(f"{S}.qr", lambda a: jsl.qr(a, mode="economic"), TALL, **EIG),
    case(f"{S}.qr_multiply", lambda a, b: jsl.qr_multiply(a, b), TALL, normal(3, 5, seed=1), no_grad=True, **EIG),
    case(f"{S}.rsf2csf", lambda a: jsl.rsf2csf(*jsl.schur(a)), A, no_grad=True, **EIG),
    case(f"{S}.schur", None, A, no_grad=True, **EIG),
    case(f"{S}.solve", lambda a, b: jsl.solve(a, b, assume_a="pos"), P, B, **EIG),
    case(f"{S}.solve_sylvester", None, A, H, P, no_grad=True, **EIG),
    case(f"{S}.solve_triangular", lambda a, b: jsl.solve_triangular(a, b, lower=True), LOWER, B, **EIG),
    case(f"{S}.sqrtm", None, P, no_grad=True, **EIG),
    case(f"{S}.svd", lambda a: jsl.svd(a, full_matrices=False), TALL, **EIG),
]  # fmt: skip
LAX = [
    case(f"{L}.cholesky", None, P, types="f32"),
    case(f"{L}.cholesky_update", None, LOWER.T.copy(), A[0], no_grad=True, no_vmap=True, **EIG),
    case(f"{L}.eig", lambda a: lax.linalg.eig(a, compute_left_eigenvectors=True), A, no_grad=True, **EIG),
    case(f"{L}.eigh", None, H, **EIG),
    case(f"{L}.hessenberg", None, A, no_grad=True, **EIG),
    case(f"{L}.householder_product", lambda a: lax.linalg.householder_product(a, a[0] / 9), TALL, no_grad=True),
    case(f"{L}.lu", None, TALL, **EIG),
    case(f"{L}.lu_pivots_to_permutation", lambda p: lax.linalg.lu_pivots_to_permutation(p, 6), np.int32([1, 3, 2, 3]),
         batch=(np.int32([0, 1, 2, 3]),)),
    case(f"{L}.ormqr", lambda a, c: lax.linalg.ormqr(a, a[0] / 9, c), TALL, normal(5, 2), no_grad=True, **EIG),
    case(f"{L}.qdwh", lambda a: lax.linalg.qdwh(a)[:2], P, no_grad=True, **EIG),
    case(f"{L}.qr", lambda a: lax.linalg.qr(a, full_matrices=False), TALL, **EIG),
    case(f"{L}.schur", None, A, no_grad=True, **EIG),
    case(f"{L}.svd", lambda a: lax.linalg.svd(a, full_matrices=False), TALL, **EIG),
    case(f"{L}.symmetric_product", lambda a, c: lax.linalg.symmetric_product(a, c, alpha=2.0), TALL, symmetric(5), no_grad=True),
    case(f"{L}.triangular_solve", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), LOWER, B, **EIG),
    case(f"{L}.tridiagonal", None, H, no_grad=True, **EIG),
    case(f"{L}.tridiagonal_solve", None, normal(4, seed=2), 5 + normal(4, seed=3), normal(4, seed=4), normal(4, 2), **EIG),
]  # fmt: skip
FFT = [
    *each(F, "fft ifft", SIGNAL, types=BOTH),
    *each(F, "fft2 ifft2 fftn ifftn", CUBE, types="c64"),
    *each(F, "rfft ihfft rfft2 rfftn", SIGNAL),
    *each(F, "irfft hfft irfft2 irfftn", SIGNAL, types="c64"),
    *each(F, "fftshift ifftshift", SIGNAL),
    *[case(f"{F}.{f}", lambda x, f=f: x * getattr(jnp.fft, f)(15, 0.5)[:8], SIGNAL) for f in ("fftfreq", "rfftfreq")],
    *each("jax.scipy.fft", "dct idct dctn idctn", SIGNAL),
]  # fmt: skip
CASES = [*NUMPY, *SCIPY, *LAX, *FFT]
