"""Reductions, and what is made of them along rows: softmax and the norms, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.lazy import functional, jax, jnp, lax, nn, torch
from bench.programs.program import MI, Draw, Program


def layernorm(x: Any, gain: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gain + bias


def rmsnorm(x: Any, gain: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def layernorm_gradients(x: Any, gain: Any, bias: Any, dy: Any) -> Any:
    return jax.vjp(layernorm, x, gain, bias)[1](dy)


def rmsnorm_gradients(x: Any, gain: Any, dy: Any) -> Any:
    return jax.vjp(rmsnorm, x, gain)[1](dy)


def torch_layernorm_gradients(x: Any, gain: Any, bias: Any, dy: Any) -> Any:
    inputs = [value.requires_grad_(True) for value in (x, gain, bias)]
    return torch.autograd.grad(functional.layer_norm(x, (1024,), gain, bias), inputs, dy)


def torch_rmsnorm_gradients(x: Any, gain: Any, dy: Any) -> Any:
    inputs = [value.requires_grad_(True) for value in (x, gain)]
    return torch.autograd.grad(functional.rms_norm(x, (1024,), gain, 1e-6), inputs, dy)


def rows(draw: Draw) -> Any:
    return (draw.normal(4096, 1024),)


def tall(draw: Draw) -> Any:
    return (draw.normal(8192, 2048),)


def softmax_program(name: str, batch: int, length: int) -> Program:
    return Program(
        "reduction", name, lambda draw: (draw.normal(batch, length),), lambda x: nn.softmax(x, -1),
        vector_ops=19 * batch * length, torch=lambda x: x.softmax(-1),
    )  # fmt: skip


PROGRAMS = (
    Program(
        "reduction", "rowsum_8192x2048", tall, lambda x: x.sum(1), numpy=lambda x: x.sum(1), torch=lambda x: x.sum(1)
    ),
    Program(
        "reduction", "colsum_8192x2048", tall, lambda x: x.sum(0), numpy=lambda x: x.sum(0), torch=lambda x: x.sum(0)
    ),
    Program(
        "reduction", "fullsum_16M", lambda draw: (draw.normal(16 * MI),), lambda x: x.sum(),
        numpy=lambda x: x.sum(), torch=lambda x: x.sum(),
    ),
    Program(
        "reduction", "fullsum_1M", lambda draw: (draw.normal(MI),), lambda x: x.sum(),
        numpy=lambda x: x.sum(), torch=lambda x: x.sum(),
    ),
    Program(
        "reduction", "max_abs_1M", lambda draw: (draw.normal(MI),), lambda x: jnp.max(jnp.abs(x)),
        numpy=lambda x: np.abs(x).max(), torch=lambda x: x.abs().max(),
    ),
    Program(
        "reduction", "argmax_rows_4096x1024", rows, lambda x: jnp.argmax(x, 1),
        numpy=lambda x: x.argmax(1), torch=lambda x: x.argmax(1),
    ),
    Program(
        "reduction", "var_rows_4096x1024", rows, lambda x: x.var(1),
        numpy=lambda x: x.var(1), torch=lambda x: x.var(1, correction=0),
    ),
    Program(
        "reduction", "logsumexp_4096x1024", rows, lambda x: nn.logsumexp(x, 1),
        vector_ops=18 * 4 * MI, torch=lambda x: x.logsumexp(1),
    ),
    softmax_program("softmax_4096x1024", 4096, 1024),
    softmax_program("softmax_256x32000", 256, 32000),
    softmax_program("softmax_64x512", 64, 512),
    Program(
        "reduction", "layernorm_8192x1024",
        lambda draw: (draw.normal(8192, 1024), draw.normal(1024), draw.normal(1024)), layernorm,
        vector_ops=8 * 8 * MI, torch=lambda x, gain, bias: functional.layer_norm(x, (1024,), gain, bias),
    ),
    Program(
        "reduction", "layernorm_fwdbwd_8192x1024",
        lambda draw: (draw.normal(8192, 1024), draw.normal(1024), draw.normal(1024), draw.normal(8192, 1024)),
        layernorm_gradients, vector_ops=20 * 8 * MI, torch=torch_layernorm_gradients,
    ),
    Program(
        "reduction", "rmsnorm_fwdbwd_8192x1024",
        lambda draw: (draw.normal(8192, 1024), draw.normal(1024), draw.normal(8192, 1024)),
        rmsnorm_gradients, vector_ops=15 * 8 * MI, torch=torch_rmsnorm_gradients, quick=False,
    ),
)  # fmt: skip
