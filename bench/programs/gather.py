"""Reading at computed indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import jnp
from bench.programs.program import MI, Program


def at(x: Any, i: Any) -> Any:
    return x[i]


PROGRAMS = (
    Program(
        "gather", "embedding_50000x256_8192", lambda draw: (draw.normal(50000, 256), draw.integers(0, 50000, 8192)),
        at, moved=2 * 4 * 8192 * 256, numpy=at, torch=at,
    ),
    Program(
        "gather", "gather_scalar_1M", lambda draw: (draw.normal(MI), draw.integers(0, MI, MI)), at, numpy=at, torch=at
    ),
    Program(
        "gather", "take_along_4096x1024", lambda draw: (draw.normal(4096, 1024), draw.integers(0, 1024, 4096, 1024)),
        lambda x, i: jnp.take_along_axis(x, i, 1), numpy=lambda x, i: np.take_along_axis(x, i, 1),
        torch=lambda x, i: x.gather(1, i.long()),
    ),
)  # fmt: skip
