"""Random Fourier transforms and linear algebra: each function draws one, with its arguments."""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Callable
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

    tolerance = 3 * math.sqrt(math.prod(shape))
    return Program(function, [draw.array(shape, dtype)], f"{name} {dtype}{shape} {options}", tolerance)


# -- linear algebra


@dataclass(frozen=True)
class _Problem:
    """Random square matrices, from which an operation makes matrices that are as well conditioned as it needs.

    columns     of right-hand sides
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


def _program(function: Callable[..., Any], arguments: list[NDArray], name: str, tolerance: float) -> Program:
    types = " ".join(f"{argument.dtype}{list(argument.shape)}" for argument in arguments)
    return Program(function, arguments, f"{name} {types}", tolerance)


def _conjugate_transpose(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


def _cholesky(problem: _Problem) -> Program:
    x, upper = problem.matrices, problem.draw.chance(0.5)
    positive = (x @ _conjugate_transpose(x) + problem.size * np.eye(problem.size)).astype(problem.dtype)
    name = f"cholesky upper={upper}"
    return _program(lambda a: jnp.linalg.cholesky(a, upper=upper), [positive], name, 10 * problem.size)


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

    return _program(function, [matrices.astype(problem.dtype), sides], f"triangular_solve {options}", 30 * size)


def _solve(problem: _Problem) -> Program:
    return _program(jnp.linalg.solve, [problem.shifted, problem.sides], "solve", 300 * problem.size)


def _inverse(problem: _Problem) -> Program:
    return _program(jnp.linalg.inv, [problem.shifted], "inv", 300 * problem.size)


def _determinant(problem: _Problem) -> Program:
    return _program(lambda a: jnp.linalg.slogdet(a)[1], [problem.shifted], "slogdet", 100 * problem.size)


def _lu(problem: _Problem) -> Program:
    return _program(lambda a: lax.linalg.lu(a)[0], [problem.shifted], "lu", 300 * problem.size)


def _qr(problem: _Problem) -> Program:
    """The factors' product, and the sizes of their scalar products: factors themselves may differ in signs."""
    size = problem.size
    rows = problem.draw.choice([size, size + 3, 2 * size, max(1, size // 2)])
    mode = "complete" if problem.draw.chance(0.3) else "reduced"

    def function(a: jax.Array) -> list[jax.Array]:
        q, r = jnp.linalg.qr(a, mode=mode)
        return [q @ r, jnp.abs(_conjugate_transpose(q) @ q)]

    return _program(function, [problem.array(rows, size)], f"qr {mode}", 50 * size)


def _eigh(problem: _Problem) -> Program:
    """Eigenvalues, and the matrices that they and the vectors make."""
    hermitian = ((problem.matrices + _conjugate_transpose(problem.matrices)) / 2).astype(problem.dtype)

    def function(a: jax.Array) -> list[jax.Array]:
        values, vectors = jnp.linalg.eigh(a)
        return [values, (vectors * values[:, None, :]) @ _conjugate_transpose(vectors)]

    return _program(function, [hermitian], "eigh", 100 * problem.size)


def _svd(problem: _Problem) -> Program:
    """Singular values, and the matrices that they and the vectors make."""
    size = problem.size
    rows = problem.draw.choice([size, size + 3, max(1, size // 2)])

    def function(a: jax.Array) -> list[jax.Array]:
        left, values, right = jnp.linalg.svd(a, full_matrices=False)
        return [values, (left * values[:, None, :]) @ right]

    return _program(function, [problem.array(rows, size)], "svd", 100 * size)


def _expm(problem: _Problem) -> Program:
    matrix = (problem.matrices[0] / math.sqrt(problem.size)).astype(problem.dtype)
    return _program(jax.scipy.linalg.expm, [matrix], "expm", 1000 * problem.size)


def _least_squares(problem: _Problem) -> Program:
    arguments = [problem.shifted, problem.sides]
    return _program(lambda a, b: jnp.linalg.lstsq(a[0], b[0])[0], arguments, "lstsq", 1000 * problem.size)


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
