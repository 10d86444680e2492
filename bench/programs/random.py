"""Random bits from a key, and what is made of them. NumPy and torch draw other numbers of the same kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import functional, jax, jnp, torch
from bench.programs.program import MI, Draw, Program

COUNT = 4 * MI


def key(draw: Draw) -> Any:
    return (np.array([1, 2], np.uint32),)


def bits(key: Any) -> Any:
    return jax.random.bits(jax.random.wrap_key_data(key), (COUNT,))


def normal(key: Any) -> Any:
    return jax.random.normal(jax.random.wrap_key_data(key), (COUNT,))


def dropout(key: Any, x: Any) -> Any:
    return jnp.where(jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, (COUNT,)), x / 0.9, 0.0)


PROGRAMS = (
    Program(
        "random", "threefry_bits_4M", key, bits, vector_ops=45 * COUNT,
        numpy=lambda _: np.random.default_rng(0).integers(0, 2**32, COUNT, dtype=np.uint32),
    ),
    Program(
        "random", "normal_4M", key, normal, vector_ops=100 * COUNT,
        numpy=lambda _: np.random.default_rng(0).standard_normal(COUNT, dtype=np.float32),
        torch=lambda _: torch.randn(COUNT),
    ),
    Program(
        "random", "dropout_4M", lambda draw: (*key(draw), draw.normal(COUNT)), dropout, vector_ops=52 * COUNT,
        torch=lambda _, x: functional.dropout(x, 0.1), quick=False,
    ),
)  # fmt: skip
