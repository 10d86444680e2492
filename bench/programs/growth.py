"""Programs that come in sizes, for curves of time against size. A name is FAMILY@SIZE; the size counts elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from bench.programs.program import Draw, Lazy, Program

jax = Lazy("jax")
jnp = Lazy("jax.numpy")
lax = Lazy("jax.lax")
nn = Lazy("jax.nn")

SMALLEST, LARGEST = 1 << 11, 1 << 22
SIZES = tuple(1 << power for power in range(SMALLEST.bit_length() - 1, LARGEST.bit_length()))
"""More than three decades, each size twice the one before."""

Family = Callable[[int], tuple[Callable[[Draw], tuple[Any, ...]], Callable[..., Any]]]


def _vectors(count: int, function: Callable[..., Any], **options: Any) -> Family:
    """A function of `count` vectors."""
    return lambda size: (lambda draw: tuple(draw.normal(size, **options) for _ in range(count)), function)


def _square(size: int) -> tuple[int, int]:
    """The two sides of a matrix of so many elements; sizes are powers of two."""
    side = 1 << (size.bit_length() - 1) // 2
    return size // side, side


def _matrix(function: Callable[[Any], Any]) -> Family:
    return lambda size: (lambda draw: (draw.normal(*_square(size)),), function)


def _gemm(size: int) -> Any:
    rows, inner = _square(size)
    return lambda draw: (draw.normal(rows, inner), draw.normal(inner, rows)), lambda x, y: x @ y


def _convolution(size: int) -> Any:
    """Images of 16 channels, 3 x 3."""
    height, width = _square(size // 16)

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return lambda draw: (draw.normal(1, height, width, 16), draw.normal(3, 3, 16, 16)), convolve


def _pool_gradient(size: int) -> Any:
    height, width = _square(size // 16)

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME").sum()

    return lambda draw: (draw.normal(1, height, width, 16),), lambda x: jax.grad(pooled)(x)


def _gather(size: int) -> Any:
    return lambda draw: (draw.normal(size), draw.integers(0, size, size)), lambda x, i: x[i]


def _scatter(size: int) -> Any:
    def add(x: Any, i: Any, u: Any) -> Any:
        return x.at[i].add(u)

    return lambda draw: (draw.normal(size), draw.integers(0, size, size), draw.normal(size)), add


def _loop(size: int) -> Any:
    """Ten steps of a stencil."""
    return (
        lambda draw: (draw.normal(size),),
        lambda x: lax.fori_loop(0, 10, lambda _, v: 0.5 * v + 0.25 * (jnp.roll(v, 1) + jnp.roll(v, -1)), x),
    )


def _steps(size: int) -> Any:
    """A scan of size / 64 steps on 64 numbers."""
    return (
        lambda draw: (draw.normal(64), draw.normal(size // 64, 64)),
        lambda c, xs: lax.scan(lambda c, x: (0.9 * c + x, c), c, xs),
    )


def _linear(size: int) -> Any:
    """A Cholesky factor of a matrix of size^(2/3) elements: work then grows with the size."""
    side = max(4, round(size ** (1 / 3)))
    return lambda draw: (draw.positive_definite(side),), lambda a: jnp.linalg.cholesky(a)


def _attention(size: int) -> Any:
    """Four heads, so long that their scores are so many elements."""
    length = 1 << (size // 4).bit_length() // 2

    def attend(q: Any, k: Any, v: Any) -> Any:
        return nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) / 8, -1) @ v

    return lambda draw: tuple(draw.normal(4, length, 64) for _ in range(3)), attend


def _normal(size: int) -> Any:
    return lambda draw: (draw.integers(0, 1 << 30, 2, dtype=np.uint32),), lambda key: jax.random.normal(key, (size,))


FAMILIES: dict[str, Family] = {
    "elementwise": _vectors(2, lambda x, y: x * y + x - 2 * y),
    "transcendental": _vectors(1, lambda x: jnp.tanh(x) * jnp.exp(-x)),
    "bf16": lambda size: (lambda draw: (draw.normal(size, dtype=ml_dtypes.bfloat16),), lambda x: nn.silu(x) + x),
    "transpose": _matrix(lambda x: x.T + 1),
    "concatenate": _vectors(2, lambda x, y: jnp.concatenate([x, y[::-1]])),
    "sum": _vectors(1, lambda x: x.sum()),
    "column sums": _matrix(lambda x: x.sum(0)),
    "argmax": _matrix(lambda x: x.argmax(1)),
    "softmax": _matrix(lambda x: nn.softmax(x, -1)),
    "matrix product": _gemm,
    "convolution": _convolution,
    "max-pool gradient": _pool_gradient,
    "attention": _attention,
    "cumulative sum": _vectors(1, lambda x: jnp.cumsum(x)),
    "cumulative sum of columns": _matrix(lambda x: jnp.cumsum(x, 0)),
    "sort": _vectors(1, lambda x: jnp.sort(x)),
    "argsort": _vectors(1, lambda x: jnp.argsort(x)),
    "top 8": _matrix(lambda x: lax.top_k(x, 8)),
    "gather": _gather,
    "scatter": _scatter,
    "random normal": _normal,
    "fft": lambda size: (lambda draw: (draw.complex(size),), lambda x: jnp.fft.fft(x)),
    "cholesky": _linear,
    "stencil loop": _loop,
    "scan": _steps,
}


def named(name: str) -> Program:
    """The program FAMILY@SIZE."""
    family, _, size = name.partition("@")
    arguments, function = FAMILIES[family](int(size))
    return Program("growth", name, arguments, function)
