"""Random sorts, and functions of JAX that sort."""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.random.program import INTEGERS, Draw, NDArray, Program


def sort(draw: Draw) -> Program:
    """A sort of keys, some with NaNs, signed zeros or many equal ones; or a function of JAX that sorts."""
    dtype = draw.choice(("float32", "float64", "bfloat16", "float16", "bool", *INTEGERS))
    keys = _keys(draw, draw.sizes(draw.choice([1, 2, 2, 3]), 2e6), dtype)
    kinds = [kind for kind in _SORTS if kind is not _top or dtype != "bool"]
    return draw.choice(kinds)(draw, keys, draw.randrange(keys.ndim))


def _keys(draw: Draw, shape: list[int], dtype: str) -> NDArray:
    keys = draw.array(shape, dtype)
    if dtype in ("float32", "float64") and draw.chance(0.4):
        for special in (np.nan, -0.0):
            keys = np.where(draw.numbers.random(shape) < 0.1, special, keys).astype(dtype)
    if dtype != "bool" and draw.chance(0.3):  # many of them equal
        keys = (keys.astype("float32") * 0.03).round().astype(keys.dtype)
    return keys


def _values(draw: Draw, keys: NDArray, axis: int) -> Program:
    down = draw.chance(0.4)
    return Program(lambda x: jnp.sort(x, axis, descending=down), [keys], "sort")


def _indices(draw: Draw, keys: NDArray, axis: int) -> Program:
    down = draw.chance(0.4)
    return Program(lambda x: jnp.argsort(x, axis, descending=down), [keys], "argsort")


def _pairs(draw: Draw, keys: NDArray, axis: int) -> Program:
    def function(x: jax.Array, y: jax.Array) -> Any:
        return lax.sort((x, y), dimension=axis, num_keys=1, is_stable=True)

    return Program(function, [keys, _payload(draw, keys)], "sort of pairs")


def _triples(draw: Draw, keys: NDArray, axis: int) -> Program:
    def function(x: jax.Array, y: jax.Array) -> Any:
        return lax.sort((x, jnp.flip(x), y), dimension=axis, num_keys=2, is_stable=True)

    return Program(function, [keys, _payload(draw, keys)], "sort of triples by two keys")


def _payload(draw: Draw, keys: NDArray) -> NDArray:
    """Values that a sort moves with the keys."""
    return draw.array(keys.shape, draw.choice(["float32", "int8", "int64", "float16", "complex64"]))


def _top(draw: Draw, keys: NDArray, axis: int) -> Program:
    count = min(keys.shape[-1], draw.choice([1, 2, 5, 10, 50, 200]))
    return Program(lambda x: lax.top_k(x, count), [keys], "top_k")


def _searches(draw: Draw, keys: NDArray, axis: int) -> Program:
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.searchsorted(jnp.sort(x.ravel()[:5000]), y.ravel()[:3000])

    return Program(function, [keys, np.roll(keys, 3)], "searchsorted")


def _sums(draw: Draw, keys: NDArray, axis: int) -> Program:
    """Sums of sorted integers; of other keys, the sorted ones."""

    def function(x: jax.Array) -> jax.Array:
        ordered = jnp.sort(x, axis)
        return jnp.cumsum(ordered, axis) if jnp.issubdtype(x.dtype, jnp.integer) else ordered

    return Program(function, [keys], "sort and cumsum")


_SORTS = (_values, _indices, _pairs, _triples, _top, _sums, _sums, _searches)
