"""Pooling over windows, forward and backward."""

from __future__ import annotations

from typing import Any

from bench.programs.lazy import functional, jax, jnp, lax
from bench.programs.program import Program


def max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def max_pool_gradient(x: Any, dy: Any) -> Any:
    return jax.vjp(max_pool, x)[1](dy)


PROGRAMS = (
    Program(
        "pool", "maxpool3s2_n8_112_64", lambda draw: (draw.normal(8, 112, 112, 64),), max_pool,
        torch=lambda x: functional.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1),
    ),
    Program(
        "pool", "maxpool3s2_bwd_n8_112_64", lambda draw: (draw.normal(8, 112, 112, 64), draw.normal(8, 56, 56, 64)),
        max_pool_gradient, moved=4 * 8 * (112 * 112 * 64 * 2 + 56 * 56 * 64), quick=False,
    ),
    Program(
        "pool", "avgpool_global_n32_7_2048", lambda draw: (draw.normal(32, 7, 7, 2048),), lambda x: x.mean((1, 2)),
        numpy=lambda x: x.mean((1, 2)), torch=lambda x: x.mean((1, 2)),
    ),
)  # fmt: skip
