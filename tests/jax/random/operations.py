"""Random single operations of random sizes and types, by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax

from tests.jax.random.gathers import gather
from tests.jax.random.linear_algebra import fft, linalg
from tests.jax.random.products import convolution, dot
from tests.jax.random.program import Draw, Program
from tests.jax.random.sorts import sort
from tests.jax.random.windows import window

KINDS: dict[str, Callable[[Draw], Program]] = {
    "dot": dot,
    "conv": convolution,
    "fft": fft,
    "linalg": linalg,
    "sort": sort,
    "window": window,
    "gather": gather,
}
"""The kinds of operations. `gather` draws scatters as well."""


def random_operation(seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Program:
    """The operation of a seed. Seeds take the kinds in turn."""
    kind = kinds[seed % len(kinds)]
    program = KINDS[kind](Draw(f"{kind} {seed}"))
    jax.eval_shape(program.function, *program.arguments)  # pyright: ignore[reportUnknownMemberType]
    return program
