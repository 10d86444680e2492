"""Sorting and selection. The byte floor is far below any sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import jnp, lax
from bench.programs.program import MI, Draw, Program


def numbers(draw: Draw) -> Any:
    return (draw.normal(MI),)


PROGRAMS = (
    Program(
        "sort", "sort_f32_1M", numbers, lambda x: jnp.sort(x), numpy=np.sort, torch=lambda x: x.sort()[0], quick=False
    ),
    Program(
        "sort", "sort_i32_1M", lambda draw: (draw.integers(0, 2**31, MI),), lambda x: jnp.sort(x),
        numpy=np.sort, torch=lambda x: x.sort()[0],
    ),
    Program(
        "sort", "argsort_f32_1M", numbers, lambda x: jnp.argsort(x),
        numpy=np.argsort, torch=lambda x: x.argsort(), quick=False,
    ),
    Program(
        "sort", "sort_rows_1000x1000", lambda draw: (draw.normal(1000, 1000),), lambda x: jnp.sort(x, 1),
        numpy=lambda x: np.sort(x, 1), torch=lambda x: x.sort(1)[0], quick=False,
    ),
    Program(
        "sort", "topk100_1M", numbers, lambda x: lax.top_k(x, 100),
        numpy=lambda x: np.sort(np.partition(x, MI - 100)[MI - 100 :]), torch=lambda x: x.topk(100),
    ),
    Program(
        "sort", "topk8_rows_1024x32000", lambda draw: (draw.normal(1024, 32000),), lambda x: lax.top_k(x, 8),
        torch=lambda x: x.topk(8), quick=False,
    ),
)  # fmt: skip
