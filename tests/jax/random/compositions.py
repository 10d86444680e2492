"""Random compositions of functions of JAX on large arrays, which a compiler fuses and cuts into chunks.

All values are small integers, whatever their type, so that two engines' results are equal in every order of evaluation.
"""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax.random.program import SIZES, Draw, NDArray, Program
from tests.jax.random.steps import TYPES, NotApplicable, any_step, small

LENGTHS = (1000, 4097, 65536, 100_003, 1 << 20, (1 << 20) + 7, 3_000_000, 10_000_000, (1 << 24) + 5)
"""Sizes of arrays of one dimension."""


def random_composition(seed: int, elements: int = 2_000_000) -> Program:
    """The composition of a seed. Arguments have at most so many elements, intermediate values twice as many."""
    draw = Draw(f"composition {seed}")
    arguments = [_argument(draw, elements) for _ in range(draw.choice([1, 2, 2, 3]))]
    composition = Composition(f"steps {seed}", draw.randint(3, 12), elements)
    jax.eval_shape(composition, *arguments)
    return Program(composition, arguments, "\n".join(composition.description))


def _argument(draw: Draw, elements: int) -> NDArray:
    shape, dtype = _shape(draw, elements), draw.choice(TYPES)
    numbers = draw.numbers.integers(-8, 8, shape)
    if dtype == "bool":
        return numbers > 0
    if dtype.startswith("u"):
        return (numbers & 7).astype(dtype)
    if dtype.startswith("complex"):
        return (numbers + 1j * np.roll(numbers, 1)).astype(dtype)
    return numbers.astype(jnp.dtype(dtype))


def _shape(draw: Draw, elements: int) -> tuple[int, ...]:
    """A shape of at most `elements` elements and more than a 300th of that."""
    while True:
        rank = draw.choice([1, 1, 2, 2, 2, 2, 3, 3, 4])
        shape = tuple(draw.choice(LENGTHS if rank == 1 else SIZES) for _ in range(rank))
        if elements / 300 < math.prod(shape) <= elements:
            return shape


@dataclass(eq=False)  # jax.jit wants functions that it can hash
class Composition:
    """A function that draws its steps while JAX traces it, since they depend on shapes; the same ones in each trace.

    Its results are the values that no step used, and some of the others. Draw(`name`) makes the choices; `length` is the
    number of steps. No value has more than twice `elements`. `description` has a line for each step of the last trace.
    """

    name: str
    length: int
    elements: int
    description: list[str] = field(default_factory=list[str])

    def __call__(self, *arguments: jax.Array) -> list[jax.Array]:
        draw = Draw(self.name)
        self.description.clear()
        values, used = list(arguments), set[int]()
        while len(values) < len(arguments) + self.length:
            number = draw.randrange(len(values)) if draw.chance(0.4) else len(values) - 1
            step, operand = any_step(draw), values[number]
            try:
                value = step(draw, operand, values)
            except NotApplicable:
                continue
            if not 0 < value.size <= 2 * self.elements:
                continue
            value = small(value)
            result = f"v{len(values)} {_type(value)}"
            self.description.append(f"{result} = {step.__name__}(v{number} {_type(operand)})")
            used.add(number)
            values.append(value)
        new = range(len(arguments), len(values))
        return [values[number] for number in new if number not in used or draw.chance(0.2)]


def _type(value: jax.Array) -> str:
    return f"{value.dtype}{list(value.shape)}"
