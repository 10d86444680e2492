"""Random sorts, windows, gathers and scatters: each function draws one, with its arguments."""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.random.program import INTEGERS, Draw, NDArray, Program

# -- sorts


def sort(draw: Draw) -> Program:
    """A sort of keys with or without NaNs, signed zeros and equal ones, or what JAX makes of one."""
    dtype = draw.choice(("float32", "float64", "bfloat16", "float16", "bool", *INTEGERS))
    keys = _keys(draw, draw.sizes(draw.choice([1, 2, 2, 3]), 2e6), dtype)
    kinds = [kind for kind in _SORTS if kind is not _top or dtype != "bool"]
    return draw.choice(kinds)(draw, keys, draw.randrange(keys.ndim))


def _keys(draw: Draw, shape: list[int], dtype: str) -> NDArray:
    keys = draw.array(shape, dtype)
    if dtype in ("float32", "float64") and draw.chance(0.4):
        for special in (np.nan, -0.0):
            keys = np.where(draw.numbers.random(shape) < 0.1, special, keys).astype(dtype)
    if dtype != "bool" and draw.chance(0.3):  # many of them equal
        keys = (keys.astype("float32") * 0.03).round().astype(keys.dtype)
    return keys


def _sorting(name: str, function: Callable[..., Any], *arguments: NDArray) -> Program:
    types = " ".join(f"{argument.dtype}{list(argument.shape)}" for argument in arguments)
    return Program(function, arguments, f"{name} {types}")


def _one(draw: Draw, keys: NDArray, axis: int) -> Program:
    down = draw.chance(0.4)
    return _sorting(f"sort {axis=} {down=}", lambda x: jnp.sort(x, axis, descending=down), keys)


def _places(draw: Draw, keys: NDArray, axis: int) -> Program:
    down = draw.chance(0.4)
    return _sorting(f"argsort {axis=} {down=}", lambda x: jnp.argsort(x, axis, descending=down), keys)


def _pairs(draw: Draw, keys: NDArray, axis: int) -> Program:
    def function(x: jax.Array, y: jax.Array) -> Any:
        return lax.sort((x, y), dimension=axis, num_keys=1, is_stable=True)

    return _sorting(f"sort of pairs {axis=}", function, keys, _carried(draw, keys))


def _triples(draw: Draw, keys: NDArray, axis: int) -> Program:
    def function(x: jax.Array, y: jax.Array) -> Any:
        return lax.sort((x, jnp.flip(x), y), dimension=axis, num_keys=2, is_stable=True)

    return _sorting(f"sort of triples by two keys {axis=}", function, keys, _carried(draw, keys))


def _carried(draw: Draw, keys: NDArray) -> NDArray:
    return draw.array(keys.shape, draw.choice(["float32", "int8", "int64", "float16", "complex64"]))


def _top(draw: Draw, keys: NDArray, axis: int) -> Program:
    count = min(keys.shape[-1], draw.choice([1, 2, 5, 10, 50, 200]))
    return _sorting(f"top_k {count}", lambda x: lax.top_k(x, count), keys)


def _searches(draw: Draw, keys: NDArray, axis: int) -> Program:
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.searchsorted(jnp.sort(x.ravel()[:5000]), y.ravel()[:3000])

    return _sorting("searchsorted", function, keys, np.roll(keys, 3))


def _sums(draw: Draw, keys: NDArray, axis: int) -> Program:
    """Sums of sorted integers; of other keys, the sorted ones."""

    def function(x: jax.Array) -> jax.Array:
        ordered = jnp.sort(x, axis)
        return jnp.cumsum(ordered, axis) if jnp.issubdtype(x.dtype, jnp.integer) else ordered

    return _sorting(f"sort and cumsum {axis=}", function, keys)


_SORTS = (_one, _places, _pairs, _triples, _top, _sums, _sums, _searches)


# -- windows


@dataclass(frozen=True)
class Windows:
    """Windows of reduce-window, a number or a pair of each for each dimension."""

    sizes: list[int]
    strides: list[int]
    padding: list[tuple[int, int]]
    dilation: list[int]
    window_dilation: list[int]

    def results(self, shape: Sequence[int]) -> list[int]:
        """The sizes of the result, which are 0 or less where no window fits."""
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
        fits = min(windows.results(shape)) >= 1 and math.prod(windows.sizes) <= 200
        if fits and (name != "gradient" or dtype in ("float32", "float64")):
            break
    x = draw.array(shape, dtype)
    if "int" in dtype:
        x = x // 8
    elif name == "mul":
        x = np.sign(x).astype(x.dtype)
    description = f"window {name} {dtype}{shape} {windows}"
    if name == "gradient":
        return Program(_gradient(windows), [x], description, 10)
    function = _reduction(name, windows, x.dtype)
    return Program(function, [x], description, math.prod(windows.sizes))


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


# -- gathers and scatters


@dataclass(frozen=True)
class Slices:
    """Slices of an operand at places that indices give.

    axes        dimensions that have indices
    places      the shape of the indices, without the last dimension, which holds one for each axis
    sizes       of a slice
    collapsed   dimensions of size 1 that results and updates do not have
    """

    operand: list[int]
    axes: list[int]
    places: list[int]
    sizes: list[int]
    collapsed: list[int]

    @property
    def kept(self) -> list[int]:
        """The sizes of the slices' dimensions that results and updates have."""
        return [size for axis, size in enumerate(self.sizes) if axis not in self.collapsed]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The dimensions of results and updates that a slice has."""
        return tuple(range(len(self.places), len(self.places) + len(self.kept)))


def gather(draw: Draw) -> Program:
    """A gather, or a scatter, of slices of any sizes at indices that may be out of bounds."""
    dtype = draw.choice(("float32", "float64", "bfloat16", "complex64", "bool", *INTEGERS))
    slices = _slices(draw)
    operand, indices = draw.array(slices.operand, dtype), _indices(draw, slices)
    mode = draw.choice(["clip", "fill"])
    text = f"{dtype} {slices}, {indices.dtype} {mode}"
    if draw.chance(0.5):
        numbers = lax.GatherDimensionNumbers(slices.offsets, tuple(slices.collapsed), tuple(slices.axes))

        def function(x: jax.Array, where: jax.Array) -> jax.Array:
            return lax.gather(x, where, numbers, slices.sizes, mode=mode)

        return Program(function, [operand, indices], f"gather {text}")
    return _scatter(draw, slices, operand, indices, mode, text)


def _slices(draw: Draw) -> Slices:
    while True:
        rank = draw.choice([1, 2, 3])
        operand = draw.sizes(rank, 1e6)
        axes = sorted(draw.sample(range(rank), draw.randint(1, rank)))
        long = [draw.choice([1, 3, 8, 100, 1000, 5000])]
        places = long if draw.chance(0.7) else [draw.choice([1, 3, 20]), draw.choice([2, 7, 64])]
        sizes = [_slice_size(draw, size, axis in axes) for axis, size in enumerate(operand)]
        collapsed = [axis for axis in axes if sizes[axis] == 1 and draw.chance(0.8)]
        if math.prod(places) * math.prod(sizes) <= 3e6:
            return Slices(operand, axes, places, sizes, collapsed)


def _slice_size(draw: Draw, size: int, indexed: bool) -> int:
    if indexed:
        return draw.randint(1, size) if draw.chance(0.4) else 1
    return draw.choice([size, max(1, size // 2)])


def _indices(draw: Draw, slices: Slices) -> NDArray:
    below, above = draw.choice([(0, 0), (5, 3)])
    columns = [draw.numbers.integers(-below, slices.operand[axis] + above, slices.places) for axis in slices.axes]
    narrow = "int8" if max(slices.operand) < 100 else "int32"
    return np.stack(columns, -1).astype(draw.choice(["int32", "int64", narrow]))


_SCATTERS: dict[str, Callable[..., jax.Array]] = {
    "add": lax.scatter_add,
    "min": lax.scatter_min,
    "max": lax.scatter_max,
    "mul": lax.scatter_mul,
    "set": lax.scatter,
}


def _scatter(draw: Draw, slices: Slices, operand: NDArray, indices: NDArray, mode: str, text: str) -> Program:
    dtype = str(operand.dtype)
    updates = draw.array([*slices.places, *slices.kept], dtype)
    name = "max" if dtype == "bool" else draw.choice(list(_SCATTERS))
    if dtype == "complex64" and name in ("min", "max"):
        name = "add"
    if name == "set":  # equal ones: which of several is written last is open
        updates = np.full_like(updates, updates.flat[0])
    if name == "mul":  # products of many numbers would overflow
        updates = np.sign(updates.real.astype("float32")).astype(operand.dtype)
    numbers = lax.ScatterDimensionNumbers(slices.offsets, tuple(slices.collapsed), tuple(slices.axes))
    scatter = _SCATTERS[name]

    def function(x: jax.Array, where: jax.Array, y: jax.Array) -> jax.Array:
        return scatter(x, where, y, numbers, mode=mode)

    tolerance = 20 * math.sqrt(math.prod(slices.places))
    return Program(function, [operand, indices, updates], f"scatter {name} {text}", tolerance)
