"""hlokit.interop.jax.jit against jax.jit on JAX's own CPU client, in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import hlokit.interop.jax as hj

TOLERANCE = {
    "float32": 2e-4,
    "complex64": 2e-4,
    "float64": 1e-10,
    "complex128": 1e-10,
    "float16": 2e-2,
    "bfloat16": 1e-1,
}


def agrees(f: Callable[..., Any], *args: Any, scale: float = 1.0, **options: Any) -> None:
    """Both give the same tree of arrays: element types, shapes, and values within the type's tolerance."""
    wanted, tree = jax.tree.flatten(jax.jit(f)(*args))
    found, found_tree = jax.tree.flatten(hj.jit(f, **options)(*args))
    assert found_tree == tree
    for got, expected in zip(found, wanted, strict=True):
        same(got, np.asarray(expected), scale)


def same(got: Any, expected: Any, scale: float = 1.0) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    tolerance = scale * TOLERANCE.get(str(expected.dtype), 0.0)
    wide = np.result_type(expected.dtype, np.float32) if tolerance else expected.dtype
    np.testing.assert_allclose(got.astype(wide), expected.astype(wide), tolerance, tolerance)


def matrix(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Normal numbers, complex for complex types."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * rng.normal(size=shape)
    return values.astype(dtype)


def hermitian(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    a = matrix(*shape, dtype=dtype, seed=seed)
    return a + a.conj().swapaxes(-1, -2)


def positive(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    a = matrix(*shape, dtype=dtype, seed=seed)
    return a @ a.conj().swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1], dtype=dtype)
