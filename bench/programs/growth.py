"""Programs that come in sizes, for curves of time against size. A name is FAMILY@SIZE.

Each category of the benchmark has a family at least. The size counts elements of what is large: arguments, or what a
step of the work is made of; work for an element may grow with it, as in products of matrices, but never by a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from bench.programs.lazy import jax, jnp, lax, nn
from bench.programs.program import Draw, Program

SMALLEST, LARGEST = 1 << 11, 1 << 22
SIZES = tuple(1 << power for power in range(SMALLEST.bit_length() - 1, LARGEST.bit_length()))
"""More than three decades, each size twice the one before."""
COUNTS = tuple(1 << power for power in range(10))

Made = tuple[Callable[[Draw], tuple[Any, ...]], Callable[..., Any]]


@dataclass(frozen=True)
class Family:
    """make: the arguments and the function of a size; unit: what a size counts; the rest as in Program."""

    category: str
    make: Callable[[int], Made]
    sizes: tuple[int, ...] = SIZES
    unit: str = "elements"
    tolerance: float | None = None
    canonical: Callable[[list[Any]], list[Any]] | None = None


def _vectors(count: int, function: Callable[..., Any], **options: Any) -> Callable[[int], Made]:
    """A function of `count` vectors."""
    return lambda size: (lambda draw: tuple(draw.normal(size, **options) for _ in range(count)), function)


def _square(size: int) -> tuple[int, int]:
    """The two sides of a matrix of so many elements; sizes are powers of two."""
    side = 1 << (size.bit_length() - 1) // 2
    return size // side, side


def _matrix(function: Callable[[Any], Any]) -> Callable[[int], Made]:
    return lambda size: (lambda draw: (draw.normal(*_square(size)),), function)


def _product(dtype: Any, out: Any) -> Callable[[int], Made]:
    """Of two square matrices, whose sides are multiples of eight."""

    def make(size: int) -> Made:
        rows = inner = 8 * round(size**0.5 / 8)

        def draw_one(draw: Draw, *sides: int) -> Any:
            return draw.integers(-9, 9, *sides, dtype=dtype) if dtype is np.int8 else draw.normal(*sides, dtype=dtype)

        return (
            lambda draw: (draw_one(draw, rows, inner), draw_one(draw, inner, rows)),
            lambda x, y: lax.dot(x, y, preferred_element_type=out),
        )

    return make


def _batched_product(size: int) -> Made:
    """Of matrices of 32 x 32."""
    return lambda draw: (draw.normal(size // 1024, 32, 32), draw.normal(size // 1024, 32, 32)), lambda x, y: x @ y


def _matvec(size: int) -> Made:
    rows, inner = _square(size)
    return lambda draw: (draw.normal(rows, inner), draw.normal(inner)), lambda x, y: x @ y


def _convolution(groups: int) -> Callable[[int], Made]:
    """Images of 16 channels, 3 x 3; each channel on its own, if there are 16 groups."""

    def make(size: int) -> Made:
        height, width = _square(size // 16)

        def convolve(x: Any, w: Any) -> Any:
            dimensions = ("NHWC", "HWIO", "NHWC")
            return lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=dimensions, feature_group_count=groups
            )

        return lambda draw: (draw.normal(1, height, width, 16), draw.normal(3, 3, 16 // groups, 16)), convolve

    return make


def _convolution_gradient(size: int) -> Made:
    draw, convolve = _convolution(1)(size)
    return draw, lambda x, w: jax.grad(lambda x, w: (convolve(x, w) ** 2).sum(), (0, 1))(x, w)


def _pooled(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def _pool(function: Callable[[Any], Any]) -> Callable[[int], Made]:
    def make(size: int) -> Made:
        height, width = _square(size // 16)
        return lambda draw: (draw.normal(1, height, width, 16),), function

    return make


def _norm_gradient(size: int) -> Made:
    """Of a layer norm's squares."""

    def norm(x: Any, gain: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (((x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * gain) ** 2).sum()

    rows, width = _square(size)
    return lambda draw: (draw.normal(rows, width), draw.normal(width)), lambda x, g: jax.grad(norm, (0, 1))(x, g)


def _gather(size: int) -> Made:
    return lambda draw: (draw.normal(size), draw.integers(0, size, size)), lambda x, i: x[i]


def _gather_rows(size: int) -> Made:
    """Of 64 numbers."""
    rows = size // 64
    return lambda draw: (draw.normal(4 * rows, 64), draw.integers(0, 4 * rows, rows)), lambda x, i: x[i]


def _scatter(size: int) -> Made:
    def add(x: Any, i: Any, u: Any) -> Any:
        return x.at[i].add(u)

    return lambda draw: (draw.normal(size), draw.integers(0, size, size), draw.normal(size)), add


def _segment_sum(size: int) -> Made:
    """Into 512 sums."""
    return (
        lambda draw: (draw.normal(size), draw.integers(0, 512, size)),
        lambda x, i: jax.ops.segment_sum(x, i, 512),
    )


def _loop(size: int) -> Made:
    """Ten steps of a stencil."""
    return (
        lambda draw: (draw.normal(size),),
        lambda x: lax.fori_loop(0, 10, lambda _, v: 0.5 * v + 0.25 * (jnp.roll(v, 1) + jnp.roll(v, -1)), x),
    )


def _steps(size: int) -> Made:
    """A scan of size / 64 steps on 64 numbers."""
    return (
        lambda draw: (draw.normal(64), draw.normal(size // 64, 64)),
        lambda c, xs: lax.scan(lambda c, x: (0.9 * c + x, c), c, xs),
    )


def _while(size: int) -> Made:
    """A step for each element: what a pass costs."""
    return (
        lambda draw: (draw.normal(size),),
        lambda x: lax.while_loop(lambda s: s[0] < size, lambda s: (s[0] + 1, 0.5 * s[1] + x[s[0]]), (0, 0.0))[1],
    )


def _side(size: int) -> int:
    """Of a square matrix of about so many elements."""
    return round(size**0.5)


def _factor(size: int) -> Made:
    return lambda draw: (draw.positive_definite(_side(size)),), lambda a: jnp.linalg.cholesky(a)


def _orthogonal(size: int) -> Made:
    return lambda draw: (draw.normal(_side(size), _side(size)),), lambda a: jnp.linalg.qr(a)


def _solve(size: int) -> Made:
    n = _side(size)
    return lambda draw: (draw.positive_definite(n), draw.normal(n)), lambda a, b: jnp.linalg.solve(a, b)


def _triangular(size: int) -> Made:
    """As many right-hand sides as equations."""
    n = _side(size)
    return (
        lambda draw: (np.tril(draw.positive_definite(n)), draw.normal(n, n)),
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
    )


def _systems(size: int) -> Made:
    """Many, of eight equations."""
    n = size // 64
    eye = 8 * np.eye(8, dtype=np.float32)
    return lambda draw: (draw.normal(n, 8, 8) + eye, draw.normal(n, 8, 1)), lambda a, b: jnp.linalg.solve(a, b)


def _without_signs(results: list[Any]) -> list[Any]:
    """The columns of Q are free in their sign."""
    return [np.abs(result) for result in results]


def _attention(size: int) -> Made:
    """Four heads, whose scores are so many elements."""
    queries, keys = _square(size // 4)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) / 8, -1) @ v

    return lambda draw: (draw.normal(4, queries, 64), draw.normal(4, keys, 64), draw.normal(4, keys, 64)), attend


def _training(size: int) -> Made:
    """A step of two layers, whose weights are so many elements, on 32 examples."""
    rows, width = _square(size // 2)

    def loss(w: Any, v: Any, x: Any) -> Any:
        return (((nn.relu(x @ w)) @ v) ** 2).mean()

    def step(w: Any, v: Any, x: Any) -> Any:
        return tuple(p - 0.01 * g for p, g in zip((w, v), jax.grad(loss, (0, 1))(w, v, x)))

    return lambda draw: (draw.normal(rows, width), draw.normal(width, rows), draw.normal(32, rows)), step


def _bodies(size: int) -> Made:
    """Forces between pairs of bodies."""
    n = _square(size)[1]

    def forces(x: Any) -> Any:
        d = x[:, None] - x[None]
        r2 = (d * d).sum(-1) + 0.01
        return (d / (r2 * jnp.sqrt(r2))[..., None]).sum(1)

    return lambda draw: (draw.normal(n, 3),), forces


def _arguments(count: int) -> Made:
    """So many arguments and results of four elements."""
    return lambda draw: tuple(draw.normal(4) for _ in range(count)), lambda *xs: tuple(x + 1 for x in xs)


def _key(draw: Draw) -> tuple[Any, ...]:
    return (draw.integers(0, 1 << 30, 2, dtype=np.uint32),)


def _bf16(size: int) -> Made:
    return lambda draw: (draw.normal(size, dtype=ml_dtypes.bfloat16),), lambda x: nn.silu(x) + x


FAMILIES: dict[str, Family] = {
    "elementwise": Family("elementwise", _vectors(2, lambda x, y: x * y + x - 2 * y)),
    "bf16": Family("elementwise", _bf16),
    "transcendental": Family("transcendental", _vectors(1, lambda x: jnp.tanh(x) * jnp.exp(-x))),
    "transpose": Family("movement", _matrix(lambda x: x.T + 1)),
    "concatenate": Family("movement", _vectors(2, lambda x, y: jnp.concatenate([x, y[::-1]]))),
    "sum": Family("reduction", _vectors(1, lambda x: x.sum())),
    "column sums": Family("reduction", _matrix(lambda x: x.sum(0))),
    "argmax": Family("reduction", _matrix(lambda x: x.argmax(1))),
    "softmax": Family("reduction", _matrix(lambda x: nn.softmax(x, -1))),
    "layer norm gradient": Family("reduction", _norm_gradient),
    "matrix product": Family("gemm", _product(np.float32, np.float32)),
    "bf16 product": Family("gemm", _product(ml_dtypes.bfloat16, ml_dtypes.bfloat16)),
    "s8 product": Family("gemm", _product(np.int8, np.int32)),
    "batched product": Family("gemm", _batched_product),
    "matrix times vector": Family("gemm", _matvec),
    "convolution": Family("convolution", _convolution(1)),
    "depthwise convolution": Family("convolution", _convolution(16)),
    "convolution gradient": Family("convolution", _convolution_gradient),
    "max-pool": Family("pool", _pool(_pooled)),
    "max-pool gradient": Family("pool", _pool(lambda x: jax.grad(lambda x: _pooled(x).sum())(x))),
    "attention": Family("model", _attention),
    "training step": Family("model", _training),
    "cumulative sum": Family("scan", _vectors(1, lambda x: jnp.cumsum(x))),
    "cumulative sum of columns": Family("scan", _matrix(lambda x: jnp.cumsum(x, 0))),
    "sort": Family("sort", _vectors(1, lambda x: jnp.sort(x))),
    "argsort": Family("sort", _vectors(1, lambda x: jnp.argsort(x))),
    "top 8": Family("sort", _matrix(lambda x: lax.top_k(x, 8))),
    "gather": Family("gather", _gather),
    "gather of rows": Family("gather", _gather_rows),
    "scatter": Family("scatter", _scatter),
    "segment sum": Family("scatter", _segment_sum),
    "random bits": Family("random", lambda size: (_key, lambda key: jax.random.bits(key, (size,)))),
    "random normal": Family("random", lambda size: (_key, lambda key: jax.random.normal(key, (size,)))),
    "fft": Family("fft", lambda size: (lambda draw: (draw.complex(size),), lambda x: jnp.fft.fft(x))),
    "cholesky": Family("linalg", _factor),
    "qr": Family("linalg", _orthogonal, tolerance=1e-2, canonical=_without_signs),
    "solve": Family("linalg", _solve, tolerance=1e-2),
    "triangular solve": Family("linalg", _triangular, tolerance=1e-2),
    "small systems": Family("linalg", _systems, tolerance=1e-2),
    "stencil loop": Family("loop", _loop),
    "scan": Family("loop", _steps),
    "while": Family("loop", _while),
    "n-body": Family("app", _bodies),
    "arguments": Family("dispatch", _arguments, sizes=COUNTS, unit="arguments"),
}


def named(name: str) -> Program:
    """The program FAMILY@SIZE."""
    name_of, _, size = name.partition("@")
    family = FAMILIES[name_of]
    arguments, function = family.make(int(size))
    return Program(family.category, name, arguments, function, tolerance=family.tolerance, canonical=family.canonical)
