"""What a benchmark program is, and the drawing of its arguments."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
Arrays = tuple[Any, ...]
KI = 1 << 10
MI = 1 << 20


class Draw:
    """Draws arguments; float32 unless told otherwise."""

    def __init__(self, name: str) -> None:
        self.generator = np.random.default_rng(zlib.crc32(name.encode()))

    def normal(self, *shape: int, dtype: Any = np.float32, scale: float = 1.0) -> Array:
        """Standard normal numbers times `scale`, drawn in f64 for f64 and in f32 otherwise."""
        drawn = np.float64 if dtype == np.float64 else np.float32
        values = self.generator.standard_normal(shape, dtype=drawn)
        return (values if scale == 1.0 else values * drawn(scale)).astype(dtype, copy=False)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Array:
        values = self.generator.random(shape, dtype=np.float32)
        return values * np.float32(high - low) + np.float32(low)

    def integers(self, low: int, high: int, *shape: int, dtype: Any = np.int32) -> Array:
        """Whole numbers in [low, high)."""
        return self.generator.integers(low, high, shape, dtype=dtype)

    def complex(self, *shape: int) -> Array:
        """complex64 with standard normal parts."""
        values = np.empty(shape, np.complex64)
        values.real = self.normal(*shape)
        values.imag = self.normal(*shape)
        return values

    def positive_definite(self, size: int) -> Array:
        """f32[size, size], symmetric, with eigenvalues of at least 1."""
        a = self.normal(size, size)
        return (a @ a.T / size + np.eye(size)).astype(np.float32)


@dataclass(frozen=True)
class Program:
    """A piece of work, what it costs at least, and how to say it in JAX, NumPy and torch.

    arguments   draws NumPy arrays
    function    the program in JAX, a function of these arrays
    donate      arguments whose memory the results take; output i is the next call's argument donate[i]
    flops, peak arithmetic of the kind `peak` (limits.PEAKS) that no formulation avoids
    vector_ops  element operations on 512-bit registers of 16 f32, in element counts (f64 counts twice)
    moved       bytes to and from memory; None: those of the arguments and results
    numpy, torch the same work there, where it can be said
    tolerance   of results against XLA's; None: that of their type
    canonical   maps results to what is unique about them, where a sign or an order is free
    quick       in `make bench-quick`: the programs that take XLA less than about 50 ms a call
    """

    category: str
    name: str
    arguments: Callable[[Draw], Arrays]
    function: Callable[..., Any]
    donate: tuple[int, ...] = ()
    x64: bool = False
    flops: float = 0.0
    peak: str = "f32"
    vector_ops: float = 0.0
    moved: int | None = None
    numpy: Callable[..., Any] | None = None
    torch: Callable[..., Any] | None = None
    tolerance: float | None = None
    canonical: Callable[[list[Any]], list[Any]] | None = None
    quick: bool = True

    def draw(self) -> list[Any]:
        """The arguments, the same each time."""
        return [np.asarray(value) for value in self.arguments(Draw(self.name))]


class Programs(list[Program]):
    """A list that functions are added to where they are defined."""

    def of(
        self, category: str, name: str, arguments: Callable[[Draw], Arrays], **options: Any
    ) -> Callable[[Callable[..., Any]], None]:
        """Makes a program of the function below; `options` are those of Program."""
        return lambda function: self.append(Program(category, name, arguments, function, **options))


def aligned(value: Array, alignment: int = 64) -> Array:
    """A C-contiguous copy of `value` that starts on a cache line, as results of JAX and hlokit do."""
    room = np.empty(value.nbytes + alignment, np.uint8)
    start = -room.ctypes.data % alignment
    copy = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy
