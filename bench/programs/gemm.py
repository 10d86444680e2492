"""Matrix products of many shapes and types."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from bench.programs.lazy import functional, jnp, lax, nn, torch
from bench.programs.program import Program


def product(a: Any, b: Any) -> Any:
    return a @ b


def product_program(
    name: str, left: tuple[int, ...], right: tuple[int, ...], dtype: Any = np.float32, **others: Any
) -> Program:
    """left @ right, batched in the leading dimensions; 2 flops a multiplication."""
    columns = right[-1] if len(right) > 1 else 1
    return Program(
        "gemm", name, lambda draw: (draw.normal(*left, dtype=dtype), draw.normal(*right, dtype=dtype)),
        product, flops=2.0 * math.prod(left) * columns, numpy=product if dtype in (np.float32, np.float64) else None,
        torch=product, **others,
    )  # fmt: skip


def square_program(name: str, size: int, **others: Any) -> Program:
    return product_program(name, (size, size), (size, size), **others)


PROGRAMS = (
    square_program("gemm_f32_256", 256),
    square_program("gemm_f32_512", 512),
    square_program("gemm_f32_1024", 1024),
    square_program("gemm_f32_2048", 2048, quick=False),
    Program(
        "gemm", "gemm_f32_1024_TN", lambda draw: (draw.normal(1024, 1024), draw.normal(1024, 1024)),
        lambda a, b: a.T @ b, flops=2 * 1024**3, numpy=lambda a, b: a.T @ b, torch=lambda a, b: a.T @ b,
    ),
    square_program("gemm_f64_1024", 1024, dtype=np.float64, peak="f64", x64=True),
    product_program("gemm_skinny_16x4096x4096", (16, 4096), (4096, 4096)),
    product_program("matvec_4096", (4096, 4096), (4096,)),
    product_program("gemm_tall_16384x64x64", (16384, 64), (64, 64)),
    square_program("gemm_tiny_32", 32),
    product_program("batched_256x64x64", (256, 64, 64), (256, 64, 64)),
    product_program("batched_32x256x256", (32, 256, 256), (32, 256, 256)),
    square_program("gemm_bf16_1024", 1024, dtype=ml_dtypes.bfloat16, peak="bf16"),
    Program(
        "gemm", "gemm_i8_1024",
        lambda draw: tuple(draw.integers(-127, 127, 1024, 1024, dtype=np.int8) for _ in range(2)),
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32), flops=2 * 1024**3, peak="i8",
        torch=lambda a, b: torch._int_mm(a, b),
    ),
    square_program("gemm_f16_1024", 1024, dtype=np.float16, quick=False),
    Program(
        "gemm", "dot_bias_gelu_512x1024x4096",
        lambda draw: (draw.normal(512, 1024), draw.normal(1024, 4096), draw.normal(4096)),
        lambda x, w, b: nn.gelu(x @ w + b), flops=2 * 512 * 1024 * 4096,
        torch=lambda x, w, b: functional.gelu(torch.addmm(b, x, w), approximate="tanh"),
    ),
)  # fmt: skip
