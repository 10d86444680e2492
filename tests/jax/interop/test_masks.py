"""Products with masks, which XLA makes selects of: infinity times False is 0 as on JAX's CPU client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlokit as hk
import hlokit.interop.jax as hj

INF, NAN = np.inf, np.nan
X = np.float32([INF, -INF, NAN, -1, 1, 0, INF, -3])
P = np.array([0, 0, 0, 0, 0, 1, 1, 1], bool)
M, ROWS = np.full((8, 4), INF, np.float32), np.zeros((8, 4), bool)


def of(p: Any, dtype: Any = jnp.float32) -> Any:
    return lax.convert_element_type(p, dtype)


def carried(x: Any, p: Any) -> Any:
    c = of(p)
    return lax.fori_loop(0, 3, lambda i, y: y * c, x)


in_call = jax.jit(of, static_argnums=1, inline=False)
takes_mask = jax.jit(lambda x, c: x * c, inline=False)

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "x * p": (lambda x, p: x * p, (X, P)),
    "p * x": (lambda x, p: of(p) * x, (X, P)),
    "scalars": (lambda x, p: x * p, (np.float32(INF), np.bool_(False))),
    "x * scalar p": (lambda x, p: x * p, (X, np.bool_(False))),
    "constant x": (lambda p: INF * of(p), (P,)),
    "constant p": (lambda x: x * of(jnp.asarray(P)), (X,)),
    "x * (x < 0)": (lambda x: x * (x < 0), (X,)),
    "eye": (lambda x: x * jnp.eye(8, 4, dtype=jnp.float32), (M,)),
    "one_hot": (lambda x: x * jax.nn.one_hot(jnp.int32(1), 8), (X,)),
    "rows": (lambda x, p: x * p[:, None], (M, P)),
    "columns": (lambda x, p: x * p, (M, ROWS[0])),
    "columns, converted last": (lambda x, p: x * of(jnp.broadcast_to(p, x.shape)), (M, ROWS[0])),
    "column and column": (lambda x, p: x[:, None] * p[:, None], (X, P)),
    "column and mask's column": (lambda x, p: x[:, None] * of(p)[:, None], (X, P)),
    "reshaped alike": (lambda x, p: x.reshape(2, 4) * of(p).reshape(2, 4), (X, P)),
    "transposed alike": (lambda x, p: x.T * of(p).T, (M, ROWS)),
    "transposed alone": (lambda x, p: x * of(p).T, (M, ROWS.T)),
    "converted twice": (lambda x, p: x * of(of(p, jnp.int32)), (X, P)),
    "two masks": (lambda x, p: x * of(p) * of(p), (X, P)),
    "product of masks": (lambda x, p: x * (of(p) * of(p)), (X, P)),
    "1 - mask": (lambda x, p: x * (1 - of(p)), (X, ~P)),
    "scaled mask": (lambda x, p: x * (2 * of(p)), (X, P)),
    "where": (lambda x, p: x * jnp.where(p, 1.0, 0.0), (X, P)),
    "call gives the mask": (lambda x, p: x * in_call(p, jnp.float32), (X, P)),
    "call takes the mask": (lambda x, p: takes_mask(x, of(p)), (X, P)),
    "in a loop": (lambda x, p: lax.fori_loop(0, 3, lambda i, y: y * of(p), x), (X, P)),
    "mask from outside the loop": (carried, (X, P)),
    "map": (lambda x, p: lax.map(lambda row: row[0] * of(row[1]), (x, p)), (X, P)),
    "sum": (lambda x, p: jnp.sum(x * of(p)), (M, ROWS)),
    "vdot": (lambda x, p: jnp.vdot(x, of(p)), (M, ROWS)),
    "vdot, mask first": (lambda x, p: jnp.vdot(of(p), x), (M, ROWS)),
    "bi,bi->b": (lambda x, p: jnp.einsum("bi,bi->b", x, of(p)), (M, ROWS)),
    "ij,ji->": (lambda x, p: jnp.einsum("ij,ji->", x, of(p)), (M, ROWS.T)),
    "matrix with a mask": (lambda x, p: x @ of(p), (M, ROWS[0])),
    "outer": (lambda x, p: jnp.outer(x, of(p)), (M[0], P)),
}


@pytest.mark.outside
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("name", CASES)
def test_masks_as_on_jaxs_cpu_client(name: str, backend: str) -> None:
    f, arguments = CASES[name]
    expected = np.asarray(jax.jit(f)(*arguments))
    np.testing.assert_array_equal(hj.jit(f, backend=backend)(*arguments), expected)


@pytest.mark.outside
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64", "float8_e5m2", "float8_e4m3fn"])
def test_masks_of_types_as_on_jaxs_cpu_client(dtype: str) -> None:
    def f(x: Any, p: Any) -> Any:
        return of(x * of(p, x.dtype), jnp.complex64)

    x = jnp.asarray(X).astype(dtype)
    np.testing.assert_array_equal(hj.jit(f)(x, P), np.asarray(jax.jit(f)(x, P)))


def test_hlokits_own_meaning_is_the_product() -> None:
    text = jax.jit(lambda x, p: x * of(p)).lower(X, P).as_text()
    assert np.isnan(hk.compile(hk.parse(text))(X, P)[:3]).all()


@pytest.mark.parametrize("name", ["algsimp", "pred-multiply-simplifier", "pred_multiply_simplifier"])
def test_masks_are_left_alone_where_the_pass_is_disabled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"--xla_disable_hlo_passes={name}")
    assert np.isnan(hj.jit(lambda x, p: x * of(p))(X, P)[:3]).all()
