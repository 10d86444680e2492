"""One function of the libm kind an element: bound by the vector units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.programs.lazy import functional, jnp, lax, nn
from bench.programs.program import KI, MI, Draw, Program

COUNT = 4 * MI


def normal(draw: Draw) -> Any:
    return (draw.normal(COUNT),)


def positive(draw: Draw) -> Any:
    return (draw.uniform(COUNT, low=0.1, high=10.0),)


def unary(
    name: str, function: Callable[..., Any], cost: int, arguments: Callable[[Draw], Any] = normal, **others: Any
) -> Program:
    """`cost`: vector operations an element of a good polynomial."""
    return Program("transcendental", name, arguments, function, vector_ops=cost * COUNT, **others)


PROGRAMS = (
    unary("exp_4M", lambda x: jnp.exp(x), 14, numpy=np.exp, torch=lambda x: x.exp()),
    unary(
        "log_4M", lambda x: jnp.log(x), 20, lambda draw: (draw.uniform(COUNT, low=0.01, high=10.0),),
        numpy=np.log, torch=lambda x: x.log(),
    ),
    unary("tanh_4M", lambda x: jnp.tanh(x), 20, numpy=np.tanh, torch=lambda x: x.tanh()),
    unary("erf_4M", lambda x: lax.erf(x), 25, torch=lambda x: x.erf()),
    unary(
        "pow_4M", lambda a, b: a**b, 40, lambda draw: (*positive(draw), *normal(draw)),
        numpy=lambda a, b: a**b, torch=lambda a, b: a**b,
    ),
    unary("sin_4M", lambda x: jnp.sin(x), 18, numpy=np.sin, torch=lambda x: x.sin()),
    unary("rsqrt_4M", lambda x: lax.rsqrt(x), 6, positive, torch=lambda x: x.rsqrt()),
    unary(
        "gelu_tanh_4M", lambda x: nn.gelu(x, approximate=True), 27,
        torch=lambda x: functional.gelu(x, approximate="tanh"),
    ),
    unary("gelu_erf_4M", lambda x: nn.gelu(x, approximate=False), 30, torch=lambda x: functional.gelu(x)),
    Program(
        "transcendental", "tanh_256K", lambda draw: (draw.normal(256 * KI),), lambda x: jnp.tanh(x),
        vector_ops=20 * 256 * KI, numpy=np.tanh, torch=lambda x: x.tanh(),
    ),
    Program(
        "transcendental", "exp_f64_1M", lambda draw: (draw.normal(MI, dtype=np.float64),), lambda x: jnp.exp(x),
        x64=True, vector_ops=2 * 18 * MI, numpy=np.exp, torch=lambda x: x.exp(),
    ),
)  # fmt: skip
