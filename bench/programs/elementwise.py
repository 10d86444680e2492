"""Arithmetic an element at a time: bound by memory, at any size that matters."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from bench.programs.lazy import jnp, lax
from bench.programs.program import KI, MI, Program


def chain(a: Any, b: Any, c: Any) -> Any:
    return (a * b + c) * 0.5 - a


def chain_program(name: str, count: int, quick: bool = True) -> Program:
    return Program(
        "elementwise", name, lambda draw: (draw.normal(count), draw.normal(count), draw.normal(count)),
        chain, vector_ops=3 * count, numpy=chain, torch=chain, quick=quick,
    )  # fmt: skip


def hashed(x: Any) -> Any:
    """Multiplicative hashing (Knuth's 2654435769 as s32) mixed with the high bits."""
    return (x * (-1640531527)) ^ lax.shift_right_logical(x, 15)


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


PROGRAMS = (
    chain_program("chain_big_16M", 16 * MI, quick=False),
    chain_program("chain_mid_256K", 256 * KI),
    chain_program("chain_small_4K", 4 * KI),
    Program(
        "elementwise", "sgd_update_donated_16M", lambda draw: (draw.normal(16 * MI), draw.normal(16 * MI)),
        lambda p, g: p - 0.01 * g, donate=(0,),
        numpy=lambda p, g: np.subtract(p, 0.01 * g, out=p), torch=lambda p, g: p.sub_(g, alpha=0.01),
    ),
    Program(
        "elementwise", "bf16_chain_16M",
        lambda draw: tuple(draw.normal(16 * MI, dtype=ml_dtypes.bfloat16) for _ in range(2)),
        lambda a, b: a * b + a, vector_ops=6 * 16 * MI, torch=lambda a, b: a * b + a, quick=False,
    ),
    Program(
        "elementwise", "i32_hash_4M", lambda draw: (draw.integers(0, 2**31, 4 * MI),),
        hashed, vector_ops=4 * 4 * MI,
    ),
    Program(
        "elementwise", "adam_donated_8M",
        lambda draw: (draw.normal(8 * MI), draw.normal(8 * MI), draw.normal(8 * MI), draw.uniform(8 * MI)),
        adam, donate=(0, 2, 3), vector_ops=16 * 8 * MI,
    ),
)  # fmt: skip
