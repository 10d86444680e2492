"""Records what JAX makes of its linear algebra on the CPU: PROGRAM.hlo each, inputs and results in values.npz.

`python -m tests.lapack.record`, with jax installed. The programs call every LAPACK routine that JAX's lowering knows.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

FOLDER = pathlib.Path(__file__).parent


ALL_WIDTHS = ("eig", "eigh", "eigvals", "schur")
"""Rounding may change the order or the phases of their results; the others are recorded in one width."""


def programs() -> dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]]:
    """Functions by name, with the sizes of their arguments."""
    import jax.numpy as jnp
    import jax.scipy.linalg as jsl
    from jax import lax

    la = lax.linalg
    return {
        "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.mT.conj() - 0.5 * jnp.eye(3, dtype=a.dtype)), [(3, 3, 3)]),
        "eigh": (jnp.linalg.eigh, [(2, 4, 4)]),
        "eigvalsh": (jnp.linalg.eigvalsh, [(4, 4)]),
        "eig": (lambda a: la.eig(a), [(2, 4, 4)]),
        "eigvals": (jnp.linalg.eigvals, [(5, 5)]),
        "qr": (jnp.linalg.qr, [(2, 5, 3)]),
        "qr_complete": (lambda a: jnp.linalg.qr(a, mode="complete"), [(5, 3)]),
        "qr_pivoted": (lambda a: jsl.qr(a, pivoting=True), [(5, 3)]),
        "svd": (jnp.linalg.svd, [(2, 5, 3)]),
        "svd_thin": (lambda a: jnp.linalg.svd(a, full_matrices=False), [(3, 5)]),
        "svd_values": (lambda a: jnp.linalg.svd(a, compute_uv=False), [(3, 5)]),
        "svd_qr": (lambda a: la.svd(a, algorithm=la.SvdAlgorithm.QR), [(5, 3)]),
        "solve": (jnp.linalg.solve, [(2, 4, 4), (2, 4, 3)]),
        "triangular_right": (lambda a, b: la.triangular_solve(a, b, lower=True, transpose_a=True), [(4, 4), (3, 4)]),
        "triangular_adjoint": (
            lambda a, b: la.triangular_solve(a, b, left_side=True, transpose_a=True, conjugate_a=True),
            [(2, 4, 4), (2, 4, 3)],
        ),
        "triangular_unit": (lambda a, b: la.triangular_solve(a, b, lower=True, unit_diagonal=True), [(4, 4), (3, 4)]),
        "schur": (la.schur, [(2, 4, 4)]),
        "hessenberg": (la.hessenberg, [(2, 4, 4)]),
        "tridiagonal": (la.tridiagonal, [(2, 4, 4)]),
        "tridiagonal_solve": (la.tridiagonal_solve, [(2, 4), (2, 4), (2, 4), (2, 4, 3)]),
        "tridiagonal_perturbed": (
            lambda a, b, c, d: la.tridiagonal_solve(a, b, c, d, perturb_singular=True),
            [(2, 5), (2, 5), (2, 5), (2, 5, 3)],
        ),
        "householder_product": (la.householder_product, [(2, 5, 3), (2, 3)]),
        "ormqr": (lambda a, tau, c: la.ormqr(a, tau, c), [(2, 5, 3), (2, 3), (2, 5, 2)]),
        "ormqr_right": (
            lambda a, tau, c: la.ormqr(a, tau, c, left=False, transpose=True),
            [(5, 3), (3,), (2, 5)],
        ),
    }


def main() -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    random = np.random.default_rng(0)
    values: dict[str, Any] = {}
    for element in ("f32", "c128", "f64", "c64"):
        for name, (function, sizes) in programs().items():
            if element in ("f64", "c64") and name not in ALL_WIDTHS:
                continue
            arguments = [draw(random, size, element) for size in sizes]
            compiled = jax.jit(function)
            (FOLDER / f"{name}_{element}.hlo").write_text(compiled.lower(*arguments).as_text("hlo"))
            values |= {f"{name}_{element}/argument{i}": a for i, a in enumerate(arguments)}
            results = jax.tree.leaves(compiled(*arguments))
            values |= {f"{name}_{element}/result{i}": np.asarray(r) for i, r in enumerate(results)}
    np.savez_compressed(FOLDER / "values.npz", **values)


def draw(random: np.random.Generator, sizes: tuple[int, ...], element: str) -> Any:
    types = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
    imaginary = 1j * random.normal(size=sizes) if element.startswith("c") else 0
    return (random.normal(size=sizes) + imaginary).astype(types[element])


if __name__ == "__main__":
    main()
