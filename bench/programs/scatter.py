"""Writing at computed indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import jax, jnp, lax, torch
from bench.programs.program import MI, Program


def numpy_add_at(x: Any, i: Any, u: Any) -> Any:
    x = x.copy()
    np.add.at(x, i, u)
    return x


PROGRAMS = (
    Program(
        "scatter", "scatter_add_1M_into_1M", lambda draw: (draw.normal(MI), draw.integers(0, MI, MI), draw.normal(MI)),
        lambda x, i, u: x.at[i].add(u), numpy=numpy_add_at, torch=lambda x, i, u: x.index_add(0, i, u),
    ),
    Program(
        "scatter", "embedding_grad_8192x256", lambda draw: (draw.integers(0, 50000, 8192), draw.normal(8192, 256)),
        lambda i, u: jnp.zeros((50000, 256)).at[i].add(u),
        torch=lambda i, u: torch.zeros(50000, 256).index_add_(0, i, u),
    ),
    Program(
        "scatter", "segment_sum_1M_to_1000", lambda draw: (draw.normal(MI), draw.integers(0, 1000, MI)),
        lambda x, i: jax.ops.segment_sum(x, i, 1000), numpy=lambda x, i: np.bincount(i, x, 1000),
        torch=lambda x, i: torch.zeros(1000).index_add_(0, i, x),
    ),
    Program(
        "scatter", "dyn_update_slice_donated",
        lambda draw: (draw.normal(4096, 1024), draw.normal(16, 1024), np.int32(77)),
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)), donate=(0,), moved=2 * 4 * 16 * 1024,
    ),
)  # fmt: skip
