"""Data movement: every byte is read and written once, and nothing is computed to speak of."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import functional, jnp, torch
from bench.programs.program import MI, Draw, Program


def square(draw: Draw) -> Any:
    return (draw.normal(4096, 4096),)


def add(x: Any, y: Any) -> Any:
    return x + y


PROGRAMS = (
    Program(
        "movement", "transpose_4096", square, lambda x: x.T + 0.0,
        numpy=lambda x: np.ascontiguousarray(x.T), torch=lambda x: x.t().contiguous(),
    ),
    Program(
        "movement", "nchw2nhwc_32x64x56x56", lambda draw: (draw.normal(32, 64, 56, 56),),
        lambda x: jnp.transpose(x, (0, 2, 3, 1)), numpy=lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)),
        torch=lambda x: x.permute(0, 2, 3, 1).contiguous(),
    ),
    Program(
        "movement", "bcast_add_row_4096", lambda draw: (*square(draw), draw.normal(4096)), add, numpy=add, torch=add
    ),
    Program(
        "movement", "bcast_add_col_4096", lambda draw: (*square(draw), draw.normal(4096, 1)), add,
        numpy=add, torch=add, quick=False,
    ),
    Program(
        "movement", "concat_4x1024x1024_ax1", lambda draw: tuple(draw.normal(1024, 1024) for _ in range(4)),
        lambda *a: jnp.concatenate(a, 1), numpy=lambda *a: np.concatenate(a, 1), torch=lambda *a: torch.cat(a, 1),
    ),
    Program(
        "movement", "pad_4000x4000", lambda draw: (draw.normal(4000, 4000),), lambda x: jnp.pad(x, 48),
        numpy=lambda x: np.pad(x, 48), torch=lambda x: functional.pad(x, (48, 48, 48, 48)),
    ),
    Program(
        "movement", "slice_rev_stride_4096", square, lambda x: x[::-1, ::2],
        # every cache line is read; half the elements are written
        moved=4 * 16 * MI + 4 * 8 * MI, numpy=lambda x: np.ascontiguousarray(x[::-1, ::2]),
    ),
    Program(
        "movement", "copy_16M", lambda draw: (draw.normal(16 * MI),), lambda x: jnp.copy(x) * 1.5,
        numpy=lambda x: x * 1.5, torch=lambda x: x * 1.5,
    ),
)  # fmt: skip
