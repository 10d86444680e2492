"""Random reductions of windows, and the windows of convolutions."""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.random.program import Draw, Program, sum_tolerance


@dataclass(frozen=True)
class Windows:
    """Windows of a reduction or a convolution. Each field has an entry for each dimension."""

    sizes: list[int]
    strides: list[int]
    padding: list[tuple[int, int]]
    dilation: list[int]
    window_dilation: list[int]

    def counts(self, shape: Sequence[int]) -> list[int]:
        """The number of windows in each dimension of such an array; 0 or less where none fits."""
        return [
            ((size - 1) * dilation + 1 + low + high - (window - 1) * spacing - 1) // stride + 1
            for size, window, stride, (low, high), dilation, spacing in zip(
                shape, self.sizes, self.strides, self.padding, self.dilation, self.window_dilation
            )
        ]


def window(draw: Draw) -> Program:
    """A sum, product, maximum or minimum of windows, or the gradient of the maximum."""
    while True:
        dtype = draw.choice(["float32", "float64", "int32", "int8", "bfloat16"])
        shape = draw.sizes(draw.choice([1, 2, 3, 4]), 5e5, most=600)
        name = draw.choice(["add", "max", "min", "mul", "gradient"])
        dilations = [1] if name == "gradient" else [1, 1, 1, 2]
        windows = Windows(
            [draw.choice([1, 1, 2, 3, 4, 7]) for _ in shape],
            [draw.choice([1, 1, 2, 3]) for _ in shape],
            [(draw.choice([0, 0, 1, 2]), draw.choice([0, 0, 1, 2])) for _ in shape],
            [draw.choice(dilations) for _ in shape],
            [draw.choice(dilations) for _ in shape],
        )
        fits = min(windows.counts(shape)) >= 1 and math.prod(windows.sizes) <= 200
        if fits and (name != "gradient" or dtype in ("float32", "float64")):
            break
    x = draw.array(shape, dtype)
    if "int" in dtype:
        x = x // 8
    elif name == "mul":
        x = np.sign(x).astype(x.dtype)
    function = _gradient(windows) if name == "gradient" else _reduction(name, windows, x.dtype)
    tolerance = sum_tolerance(math.prod(windows.sizes)) if name in ("add", "gradient") else None
    return Program(function, [x], f"window {name}", tolerance)


def _gradient(windows: Windows) -> Callable[..., Any]:
    """The derivative of the sum of the maxima's squares."""

    def squares(x: jax.Array) -> jax.Array:
        largest = lax.reduce_window(x, -jnp.inf, lax.max, windows.sizes, windows.strides, windows.padding)
        return (largest**2).sum()

    return jax.grad(squares)


def _reduction(name: str, windows: Windows, dtype: np.dtype[Any]) -> Callable[..., Any]:
    integral = dtype.kind in "iu"
    info = jnp.iinfo(dtype) if integral else None
    start = {
        "add": 0,
        "mul": 1,
        "max": info.min if info else -np.inf,
        "min": info.max if info else np.inf,
    }[name]
    initial, combine = np.array(start, dtype), getattr(lax, name)

    def function(x: jax.Array) -> jax.Array:
        return lax.reduce_window(
            x,
            initial,
            combine,
            windows.sizes,
            windows.strides,
            windows.padding,
            windows.dilation,
            windows.window_dilation,
        )

    return function
