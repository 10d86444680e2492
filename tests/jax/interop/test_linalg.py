"""jax.numpy.linalg on hlokit; all of linear algebra over types, batches, gradients, and matrices of odd content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlokit.interop.jax as hj
from tests.jax.interop.compare import agrees, hermitian, matrix, positive
from tests.jax.interop.linalg_cases import ALL, NO_BATCH, NO_GRADIENT, NUMPY

ACROSS_TYPES = [
    *("numpy.cholesky", "numpy.eig", "numpy.eigh", "numpy.eigvals", "numpy.inv", "numpy.lstsq", "numpy.qr"),
    *("numpy.qr_complete", "numpy.slogdet", "numpy.svd", "scipy.expm", "scipy.hessenberg", "scipy.lu"),
    *("scipy.qr_pivoted", "scipy.schur", "scipy.solve_triangular", "scipy.sqrtm"),
    *("lax.svd_qr", "lax.tridiagonal", "lax.tridiagonal_solve"),
]
FACTORED = ["numpy.cholesky", "numpy.eig", "numpy.eigh", "numpy.qr", "numpy.svd", "scipy.lu", "scipy.schur"]


@pytest.mark.parametrize("name", NUMPY)
def test_numpy(name: str) -> None:
    agrees(*NUMPY[name])


@pytest.mark.parametrize("name", FACTORED)
def test_infinities_and_nan(name: str) -> None:
    """JAX makes NaN of what LAPACK refuses, in both; hlokit does not hand it infinities that it may never return from."""
    f, a = ALL[name]
    agrees(f, a * np.nan)
    infinite = np.where(a == a[1, 1], np.float32(np.inf), a)
    if name in ("numpy.svd", "scipy.schur"):  # which LAPACK may never return from
        assert all(np.isnan(part).all() for part in jax.tree.leaves(hj.jit(f)(infinite)))
    else:
        agrees(f, infinite)


@pytest.mark.parametrize("name", FACTORED)
def test_no_elements(name: str) -> None:
    f, _ = ALL[name]
    agrees(lambda a, b: (f(a), jax.vmap(f)(b)), np.zeros((0, 0), np.float32), np.zeros((0, 3, 3), np.float32))


@pytest.mark.parametrize("name", FACTORED)
def test_interpreter(name: str) -> None:
    agrees(*ALL[name], backend="interpreter")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["complex64", "float64", "complex128"])
@pytest.mark.parametrize("name", ACROSS_TYPES)
def test_types(name: str, dtype: str) -> None:
    f, *args = ALL[name]
    with jax.enable_x64(True):
        agrees(f, *(_as(a, dtype) for a in args), scale=5)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALL.keys() - NO_BATCH))
def test_batches(name: str) -> None:
    f, *args = ALL[name]
    agrees(jax.vmap(f), *(np.stack([a, a * 2, a]) if a.dtype.kind == "f" else np.stack([a] * 3) for a in args), scale=5)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALL.keys() - NO_GRADIENT))
def test_gradients(name: str) -> None:
    f, *args = ALL[name]
    agrees(jax.grad(_total(f), argnums=tuple(range(len(args)))), *args, scale=5)


def test_gradient_of_a_batch() -> None:
    agrees(jax.vmap(jax.grad(_total(jnp.linalg.eigh))), hermitian(3, 4, 4))
    agrees(jax.grad(lambda a, b: _total(jnp.linalg.solve)(a, b).sum()), positive(3, 4, 4), matrix(3, 4, 2))


def test_large_matrices_are_put_together_again() -> None:
    a = matrix(200, 200)
    u, s, v = hj.jit(jnp.linalg.svd)(a)
    np.testing.assert_allclose(u * s @ v, a, atol=2e-3)
    w, x = hj.jit(jnp.linalg.eigh)(a + a.T)
    np.testing.assert_allclose(x * w @ x.T, a + a.T, atol=5e-3)
    q, r = hj.jit(jnp.linalg.qr)(a)
    np.testing.assert_allclose(q @ r, a, atol=2e-3)


def _as(a: Any, dtype: str) -> Any:
    if a.dtype.kind != "f" or not dtype.startswith("complex"):
        return a.astype(dtype) if a.dtype.kind == "f" else a
    return (a + 0.1j * np.triu(a, 1) - 0.1j * np.triu(a, 1).T if a.ndim == 2 and len(a) == len(a.T) else a).astype(
        dtype
    )


def _total(f: Callable[..., Any]) -> Callable[..., Any]:
    """A number that depends on every element of every result."""

    def total(*args: Any) -> Any:
        leaves = [x for x in jax.tree.leaves(f(*args)) if jnp.issubdtype(x.dtype, jnp.inexact)]
        return sum(jnp.sum(jnp.real(x) * jnp.cos(jnp.arange(x.size)).reshape(x.shape)) for x in leaves)

    return total
