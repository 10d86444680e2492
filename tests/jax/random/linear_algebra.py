"""Random Fourier transforms and linear algebra: each function draws one, with its arguments."""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.random.program import SIZES, Draw, NDArray, Program

# -- Fourier transforms


def fft(draw: Draw) -> Program:
    """A transform of one or two dimensions of any length, forwards or back."""
    length = draw.choice([draw.randint(1, 300), draw.randint(1, 3000), draw.choice(SIZES)])
    batch, rows = draw.choice([1, 1, 3, 17, 64]), draw.choice([1, 1, 1, draw.randint(1, 60)])
    shape = [batch, rows, length] if rows > 1 else [batch, length]
    if math.prod(shape) > 1e6:
        shape = [length]
    dtype = draw.choice(["complex64", "complex128", "float32", "float64"])
    name = "rfft" if dtype.startswith("float") else "ifft" if draw.chance(0.4) else "fft"
    if len(shape) == 3:
        name += "2"
    options: dict[str, int] = {}
    if dtype.startswith("complex") and draw.chance(0.2):
        name, options = "irfft", {"n": max(1, 2 * (length - 1) + draw.randrange(2))}

    def function(x: jax.Array) -> jax.Array:
        return getattr(jnp.fft, name)(x, **options)

    tolerance = 3 * math.log2(2 * math.prod(shape))  # a transform is so many rounds of sums of two numbers
    return Program(function, [draw.array(shape, dtype)], name, tolerance)


# -- linear algebra


@dataclass(frozen=True)
class _Problem:
    """Random square matrices, from which each operation makes matrices that are well conditioned for it.

    columns     the number of right-hand sides
    """

    draw: Draw
    matrices: NDArray
    columns: int

    @property
    def dtype(self) -> str:
        return str(self.matrices.dtype)

    @property
    def batch(self) -> int:
        return self.matrices.shape[0]

    @property
    def size(self) -> int:
        return self.matrices.shape[-1]

    @property
    def tolerance(self) -> float:
        """The tolerance of a backward stable algorithm: rounding errors grow about as the square root of the size."""
        return 10 * math.sqrt(self.size)

    @property
    def shifted(self) -> NDArray:
        """The matrices with a diagonal that makes them well conditioned."""
        return (self.matrices + 2 * math.sqrt(self.size) * np.eye(self.size)).astype(self.dtype)

    @property
    def sides(self) -> NDArray:
        return self.array(self.size, self.columns)

    def array(self, rows: int, columns: int) -> NDArray:
        return self.draw.array([self.batch, rows, columns], self.dtype)


def linalg(draw: Draw) -> Program:
    """An operation on one or several matrices, of JAX's modules of linear algebra."""
    dtype = draw.choice(["float32", "float64", "complex64", "complex128"])
    size = draw.choice([draw.randint(1, 20), draw.randint(1, 140), draw.choice([150, 200, 256, 300])])
    batch = draw.choice([1, 1, 2, 5, 20, 70])
    if size > 60:
        batch = min(batch, 2)
    problem = _Problem(draw, draw.array([batch, size, size], dtype), columns=draw.choice([1, 2, 7, size, 40]))
    return draw.choice(_PROBLEMS)(problem)


def _conjugate_transpose(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


def _cholesky(problem: _Problem) -> Program:
    x, upper = problem.matrices, problem.draw.chance(0.5)
    positive = (x @ _conjugate_transpose(x) + problem.size * np.eye(problem.size)).astype(problem.dtype)
    return Program(lambda a: jnp.linalg.cholesky(a, upper=upper), [positive], "cholesky", problem.tolerance)


def _triangular_solve(problem: _Problem) -> Program:
    draw, size = problem.draw, problem.size
    options = {
        "left_side": draw.chance(0.5),
        "lower": draw.chance(0.5),
        "unit_diagonal": draw.chance(0.3),
        "transpose_a": draw.chance(2 / 3),
        "conjugate_a": draw.chance(1 / 3),
    }
    matrices = problem.matrices / math.sqrt(size) / 2 + 2 * np.eye(size)
    if options["unit_diagonal"]:
        matrices = matrices / (3 * math.sqrt(size))  # inverses of triangles of ones on the diagonal grow fast
    sides = problem.sides if options["left_side"] else problem.array(problem.columns, size)

    def function(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.linalg.triangular_solve(a, b, **options)

    return Program(function, [matrices.astype(problem.dtype), sides], "triangular_solve", problem.tolerance)


def _solve(problem: _Problem) -> Program:
    return Program(jnp.linalg.solve, [problem.shifted, problem.sides], "solve", problem.tolerance)


def _inverse(problem: _Problem) -> Program:
    return Program(jnp.linalg.inv, [problem.shifted], "inv", problem.tolerance)


def _determinant(problem: _Problem) -> Program:
    return Program(lambda a: jnp.linalg.slogdet(a)[1], [problem.shifted], "slogdet", problem.tolerance)


def _lu(problem: _Problem) -> Program:
    return Program(lambda a: lax.linalg.lu(a)[0], [problem.shifted], "lu", problem.tolerance)


def _qr(problem: _Problem) -> Program:
    """The product of the factors, and the absolute values of q's Gram matrix: the factors may differ in signs."""
    size = problem.size
    rows = problem.draw.choice([size, size + 3, 2 * size, max(1, size // 2)])
    mode = "complete" if problem.draw.chance(0.3) else "reduced"

    def function(a: jax.Array) -> list[jax.Array]:
        q, r = jnp.linalg.qr(a, mode=mode)
        return [q @ r, jnp.abs(_conjugate_transpose(q) @ q)]

    return Program(function, [problem.array(rows, size)], "qr", problem.tolerance)


def _eigh(problem: _Problem) -> Program:
    """Eigenvalues, and the matrices that eigenvalues and eigenvectors represent, since eigenvectors are not unique."""
    hermitian = ((problem.matrices + _conjugate_transpose(problem.matrices)) / 2).astype(problem.dtype)

    def function(a: jax.Array) -> list[jax.Array]:
        values, vectors = jnp.linalg.eigh(a)
        return [values, (vectors * values[:, None, :]) @ _conjugate_transpose(vectors)]

    return Program(function, [hermitian], "eigh", problem.tolerance)


def _svd(problem: _Problem) -> Program:
    """Singular values, and the matrices that the decompositions represent, since singular vectors are not unique."""
    size = problem.size
    rows = problem.draw.choice([size, size + 3, max(1, size // 2)])

    def function(a: jax.Array) -> list[jax.Array]:
        left, values, right = jnp.linalg.svd(a, full_matrices=False)
        return [values, (left * values[:, None, :]) @ right]

    return Program(function, [problem.array(rows, size)], "svd", problem.tolerance)


def _expm(problem: _Problem) -> Program:
    matrix = (problem.matrices[0] / math.sqrt(problem.size)).astype(problem.dtype)
    return Program(jax.scipy.linalg.expm, [matrix], "expm", 10 * problem.tolerance)  # it squares a matrix repeatedly


def _least_squares(problem: _Problem) -> Program:
    arguments = [problem.shifted, problem.sides]
    return Program(lambda a, b: jnp.linalg.lstsq(a[0], b[0])[0], arguments, "lstsq", problem.tolerance)


_PROBLEMS = (
    _cholesky,
    _triangular_solve,
    _triangular_solve,
    _solve,
    _inverse,
    _determinant,
    _lu,
    _qr,
    _eigh,
    _svd,
    _expm,
    _least_squares,
)
