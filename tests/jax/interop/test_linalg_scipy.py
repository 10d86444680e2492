"""jax.scipy.linalg and jax.lax.linalg on hlokit."""

from __future__ import annotations

import pytest

from tests.jax.interop.compare import agrees
from tests.jax.interop.linalg_cases import LAX, SCIPY

SLOW = {
    *("cholesky_update", "eigh_tridiagonal", "expm", "expm_frechet", "funm", "polar", "polar_qdwh"),
    *("rsf2csf", "solve_sylvester", "sqrtm"),
}
"""JAX takes long to compile them."""


def _marked(names: dict[str, object]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in names]


@pytest.mark.parametrize("name", _marked(SCIPY))
def test_scipy(name: str) -> None:
    agrees(*SCIPY[name])


@pytest.mark.parametrize("name", _marked(LAX))
def test_lax(name: str) -> None:
    agrees(*LAX[name])
