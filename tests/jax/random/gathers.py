"""Random gathers and scatters."""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jax import lax

from tests.jax.random.program import INTEGERS, Draw, NDArray, Program, sum_tolerance


@dataclass(frozen=True)
class Slices:
    """Slices of an operand that start at given indices.

    operand     the operand's shape
    axes        dimensions in which indices give the start; in the others slices start at 0
    places      the shape of the indices, without the last dimension, which holds one index for each of `axes`
    sizes       a slice's shape
    collapsed   dimensions of size 1 that results and updates do not have
    """

    operand: list[int]
    axes: list[int]
    places: list[int]
    sizes: list[int]
    collapsed: list[int]

    @property
    def kept(self) -> list[int]:
        """The sizes of a slice's dimensions that are not collapsed."""
        return [size for axis, size in enumerate(self.sizes) if axis not in self.collapsed]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The dimensions of results and updates that are dimensions of a slice."""
        return tuple(range(len(self.places), len(self.places) + len(self.kept)))


def gather(draw: Draw) -> Program:
    """A gather, or a scatter, of slices of any sizes at indices that may be out of bounds."""
    dtype = draw.choice(("float32", "float64", "bfloat16", "complex64", "bool", *INTEGERS))
    slices = _slices(draw)
    operand, indices = draw.array(slices.operand, dtype), _indices(draw, slices)
    mode = draw.choice(["clip", "fill"])
    if draw.chance(0.5):
        numbers = lax.GatherDimensionNumbers(slices.offsets, tuple(slices.collapsed), tuple(slices.axes))

        def function(x: jax.Array, where: jax.Array) -> jax.Array:
            return lax.gather(x, where, numbers, slices.sizes, mode=mode)

        return Program(function, [operand, indices], "gather")
    return _scatter(draw, slices, operand, indices, mode)


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


def _scatter(draw: Draw, slices: Slices, operand: NDArray, indices: NDArray, mode: str) -> Program:
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

    tolerance = sum_tolerance(math.prod(slices.places)) if name == "add" else None
    return Program(function, [operand, indices, updates], f"scatter {name}", tolerance)
