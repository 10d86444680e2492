"""Factorisations and solves."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import jnp, lax, scipy_linalg, torch
from bench.programs.program import Draw, Program


def triangular_solve(a: Any, b: Any) -> Any:
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=True)


def without_signs(results: list[Any]) -> list[Any]:
    """Eigenvectors and the columns of Q are free in their sign."""
    return [np.abs(result) for result in results]


def positive_definite(size: int) -> Any:
    def arguments(draw: Draw) -> Any:
        return (draw.positive_definite(size),)

    return arguments


PROGRAMS = (
    Program(
        "linalg", "cholesky_1024", positive_definite(1024), lambda a: jnp.linalg.cholesky(a), flops=1024**3 / 3,
        numpy=lambda a: scipy_linalg.cholesky(a, lower=True), torch=lambda a: torch.linalg.cholesky(a),
    ),
    Program(
        "linalg", "trisolve_1024", lambda draw: (np.tril(draw.positive_definite(1024)), draw.normal(1024, 1024)),
        triangular_solve, flops=1024**3, numpy=lambda a, b: scipy_linalg.solve_triangular(a, b, lower=True),
        torch=lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
    ),
    Program(
        "linalg", "cholesky_batch_1000x32", lambda draw: (np.stack([draw.positive_definite(32)] * 1000),),
        lambda a: jnp.linalg.cholesky(a), flops=1000 * 32**3 / 3,
        numpy=np.linalg.cholesky, torch=lambda a: torch.linalg.cholesky(a),
    ),
    Program(
        "linalg", "eigh_256", positive_definite(256), lambda a: jnp.linalg.eigh(a), flops=9 * 256**3,
        numpy=np.linalg.eigh, torch=lambda a: torch.linalg.eigh(a),
        canonical=without_signs, tolerance=1e-2,
    ),
    Program(
        "linalg", "qr_512", lambda draw: (draw.normal(512, 512),), lambda a: jnp.linalg.qr(a), flops=8 / 3 * 512**3,
        numpy=np.linalg.qr, torch=lambda a: torch.linalg.qr(a),
        canonical=without_signs, tolerance=1e-3,
    ),
)  # fmt: skip
