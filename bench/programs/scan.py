"""Prefix sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import jnp
from bench.programs.program import MI, Draw, Program


def rows(draw: Draw) -> Any:
    return (draw.normal(4096, 1024),)


PROGRAMS = (
    Program(
        "scan", "cumsum_1D_4M", lambda draw: (draw.normal(4 * MI),), lambda x: jnp.cumsum(x),
        numpy=np.cumsum, torch=lambda x: x.cumsum(0),
    ),
    Program(
        "scan", "cumsum_rows_4096x1024", rows, lambda x: jnp.cumsum(x, 1),
        numpy=lambda x: np.cumsum(x, 1), torch=lambda x: x.cumsum(1),
    ),
    Program(
        "scan", "cumsum_cols_4096x1024", rows, lambda x: jnp.cumsum(x, 0),
        numpy=lambda x: np.cumsum(x, 0), torch=lambda x: x.cumsum(0),
    ),
    Program(
        "scan", "cumprod_1D_1M", lambda draw: (1 + draw.normal(MI, scale=1e-3),), lambda x: jnp.cumprod(x),
        numpy=np.cumprod, torch=lambda x: x.cumprod(0),
    ),
)  # fmt: skip
