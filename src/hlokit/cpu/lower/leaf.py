"""Leaves: the arrays in the values of instructions, and where a kernel finds them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from hlokit.cpu.loops.expr import Buffer
from hlokit.hlo.instruction import Instruction
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape


class Leaf(NamedTuple):
    """An array: the k-th array leaf of an instruction's value, found through tuples."""

    instruction: Instruction
    number: int

    @property
    def shape(self) -> Shape:
        shape = self.instruction.shape
        return shape if shape.is_array else array_leaves(shape)[self.number]


@lru_cache(256)  # of a tuple of thousands each element is asked for by number
def array_leaves(shape: Shape) -> tuple[Shape, ...]:
    """The arrays in a shape: tokens hold nothing."""
    return tuple(leaf for leaf in shape.leaves() if leaf.is_array)


class Source:
    """The source of what a kernel reads: where leaves come from, and which of them lie in memory."""

    def leaf(self, instruction: Instruction, number: int = 0) -> Leaf:
        raise NotImplementedError

    def buffer(self, leaf: Leaf) -> Buffer | None:
        raise NotImplementedError

    def constant(self, literal: Literal) -> Buffer:
        raise NotImplementedError
