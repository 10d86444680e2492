"""A random program, and the source of the choices and numbers that make it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

NDArray = np.ndarray[Any, Any]

FLOATS = ("float32", "float32", "float64", "bfloat16", "float16", "complex64", "complex128")
"""Types of numbers with rounding; float32 is drawn more often."""
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "uint16")
SIZES = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65, 96, 100, 127, 128, 129, 160, 200,
    255, 256, 257, 300, 384, 511, 512, 513, 640, 777, 1000, 1024, 1031, 2000, 2048, 2049, 3000, 4096, 5000,
)  # fmt: skip
"""Sizes of dimensions: multiples of the lengths of vectors and of blocks in machine code, one more, one less, others."""


@dataclass(frozen=True)
class Program:
    """A function of JAX and the arguments of a call.

    description     the operation or the steps, for people; the types are in the StableHLO
    tolerance       the greatest difference between two floating results, in epsilons of the largest element (compare.py);
                    None: results must be equal
    """

    function: Callable[..., Any]
    arguments: Sequence[NDArray]
    description: str
    tolerance: float | None = None


def sum_tolerance(terms: float) -> float:
    """The tolerance of sums in different orders: their rounding errors grow with the square root of the terms' number."""
    return 3 * math.sqrt(terms)


class Draw(random.Random):
    """A source of choices and of arrays. The same name gives the same draws, in any process."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.numbers = np.random.default_rng(self.getrandbits(64))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def sizes(self, rank: int, elements: float, most: int = SIZES[-1]) -> list[int]:
        """Sizes of `rank` dimensions, none above `most`, of an array of at most `elements` elements."""
        allowed = [size for size in SIZES if size <= most]
        while True:
            drawn = [self.choice(allowed) for _ in range(rank)]
            if math.prod(drawn) <= elements:
                return drawn

    def array(self, shape: Sequence[int], dtype: str) -> NDArray:
        """An array of normally distributed numbers, of integers of up to 7 bits, or of booleans."""
        if dtype == "bool":
            return self.numbers.random(shape) < 0.4
        if dtype.startswith("complex"):
            return (self.numbers.standard_normal(shape) + 1j * self.numbers.standard_normal(shape)).astype(dtype)
        if "int" in dtype:
            low, high = (0, 120) if dtype.startswith("u") else (-100, 100)
            return self.numbers.integers(low, high, shape).astype(dtype)
        return self.numbers.standard_normal(shape).astype(jnp.dtype(dtype))
