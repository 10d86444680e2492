"""Loops whose steps depend on one another: what an iteration costs beside its work."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import jnp, lax
from bench.programs.program import Program


def count_up(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 100000, lambda s: (s[0] + 1, s[1] * 1.00001 + 0.5), (0, x))[1]


def rotate(x: Any) -> Any:
    return lax.fori_loop(0, 100000, lambda _, x: x * 0.999 + jnp.roll(x, 1) * 0.001, x)


def products(a: Any, x: Any) -> Any:
    return lax.scan(lambda carry, _: (jnp.tanh(carry @ a), None), x, None, length=1000)[0]


def smoothed(xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        carry = 0.9 * carry + x
        return carry, carry

    return lax.scan(step, jnp.zeros(128), xs)[1]


# The byte floors of the first two mean nothing: their limit is a chain of 100,000 dependent operations.
PROGRAMS = (
    Program("loop", "while_scalar_1e5", lambda draw: (np.float32(1.0),), count_up, tolerance=1e-2),
    Program("loop", "fori_vec8_1e5", lambda draw: (draw.normal(8),), rotate),
    Program(
        "loop", "scan_matmul64_1000", lambda draw: (draw.normal(64, 64, scale=0.1), draw.normal(64, 64)), products,
        flops=1000 * 2 * 64**3, tolerance=1e-2,
    ),
    Program("loop", "scan_1e4_carry128", lambda draw: (draw.normal(10000, 128),), smoothed),
)  # fmt: skip
