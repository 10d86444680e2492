"""The arrays that a computation's instructions produce: their origin, and which are stored in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.leaf import Leaf, Source
from hlokit.cpu.lower.traits import PLAIN_FORMS, leaf_count, literals, may_be_element_loop, only_marks
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.interpreter.order import evaluation_order
from hlokit.ops.control_flow import While
from hlokit.ops.reshaping import Reshape
from hlokit.ops.slicing import Slice
from hlokit.ops.structure import Constant, GetTupleElement, Tuple
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

Key: TypeAlias = "tuple[Instruction, tuple[int, ...]]"
"""The leaves of an instruction that have these dimensions: they are made by one kernel."""


def key_of(leaf: Leaf) -> Key:
    return leaf.instruction, leaf.shape.dimensions


class Leaves(Source):
    """The leaves of one computation; buffers and constants are shared by the whole program.

    order     its instructions as they are evaluated, `position` their places in it
    stored    the leaves in memory
    reshaped  those of them that are reshapes of others, in whose buffers they lie
    is_pass   whether it is a loop's body
    """

    def __init__(
        self,
        computation: Computation,
        arguments: Sequence[Sequence[Buffer]],
        context: Context,
        is_pass: bool = False,
    ) -> None:
        self.computation = computation
        self.is_pass = is_pass
        self.context = context
        self.order = list(evaluation_order(computation))
        self.position = {instruction: k for k, instruction in enumerate(self.order)}
        self.stored: dict[Leaf, Buffer] = {}
        self.reshaped: set[Leaf] = set()
        self._leaves: dict[tuple[Instruction, int], Leaf] = {}
        self._starts: dict[Shape, list[int]] = {}
        for parameter, buffers in zip(computation.parameters, arguments, strict=True):
            for k, buffer in enumerate(buffers):
                self.stored[Leaf(parameter, k)] = buffer

    # -- Source

    def leaf(self, instruction: Instruction, number: int = 0) -> Leaf:
        """Where a leaf of this value is made: through tuples and identities."""
        key = (instruction, number)
        found = self._leaves.get(key)
        if found is None:
            here, k = key
            while True:
                step = self._behind(here, k)
                if step is None:
                    break
                here, k = step
            found = self._leaves[key] = Leaf(here, k)
        return found

    def _behind(self, instruction: Instruction, number: int) -> tuple[Instruction, int] | None:
        op: Any = instruction.op
        if isinstance(op, Tuple):
            starts = self._starts_of(instruction.shape)
            k = bisect_right(starts, number) - 1
            return instruction.operands[k], number - starts[k]
        picked = op.index if isinstance(op, GetTupleElement) else op.picks
        if picked is not None:
            operand = instruction.operands[0]
            return operand, number + self._starts_of(operand.shape)[picked]
        if number < op.kept(instruction.shape):
            for operand in instruction.operands:
                count = leaf_count(operand.shape)
                if number < count:
                    return operand, number
                number -= count
        if only_marks(instruction):
            return instruction.operands[0], number
        return None

    def _starts_of(self, shape: Shape) -> list[int]:
        """The number of leaves before each of a tuple's elements."""
        found = self._starts.get(shape)
        if found is None:
            found = self._starts[shape] = [0, *accumulate(leaf_count(element) for element in shape.elements)][:-1]
        return found

    def buffer(self, leaf: Leaf) -> Buffer | None:
        return self.stored.get(leaf)

    def constant(self, literal: Literal) -> Buffer:
        return self.context.constant(literal)

    def operands(self, instruction: Instruction) -> Iterator[Leaf]:
        """The leaves of all operands."""
        for operand in instruction.operands:
            yield from self.of(operand)

    def of(self, instruction: Instruction) -> Iterator[Leaf]:
        """Where the leaves of an instruction's value are made."""
        for k in range(leaf_count(instruction.shape)):
            yield self.leaf(instruction, k)

    # -- which are stored

    def live(self) -> set[Instruction]:
        """Instructions that the root or an effect needs."""
        stack = [i for i in self.order if i.is_root or self.context.has_effect(i)]
        seen = set(stack)
        while stack:
            for operand in stack.pop().operands:
                if operand not in seen:
                    seen.add(operand)
                    stack.append(operand)
        return seen

    def store(self, leaf: Leaf, reason: str) -> None:
        """Gives the leaf a buffer, if it has none."""
        if leaf not in self.stored:
            op = leaf.instruction.op
            if isinstance(op, Constant):
                self.stored[leaf] = self.context.constant(literals(op.literal)[leaf.number])
                return
            self._store_before(leaf)
            whole = self._reshaped(leaf)
            if whole is not None:
                self.stored[leaf] = whole
                self.reshaped.add(leaf)
                return
            self.stored[leaf] = self.context.buffer(_buffer_name(leaf), leaf.shape)
            self.context.reasons.add(leaf.instruction.name, "not fused", reason)

    def _store_before(self, leaf: Leaf) -> None:
        """Stores a strided slice that is to be stored as a reshape: loops over its own dimensions read it in rows."""
        if isinstance(leaf.instruction.op, Reshape) and not leaf.shape.is_dynamic:
            source = self.leaf(leaf.instruction.operands[0])
            op = source.instruction.op
            if isinstance(op, Slice) and any(stride > 1 for _, _, stride in op.ranges) and self.part(source) is None:
                self.store(source, f"{leaf.instruction.name} is its reshape")

    def _reshaped(self, leaf: Leaf) -> Buffer | None:
        """The buffer of an array in memory of which the leaf is a reshape: arrays are dense and row-major."""
        while isinstance(leaf.instruction.op, Reshape) and not leaf.shape.is_dynamic:
            leaf = self.leaf(leaf.instruction.operands[0])
            if leaf in self.stored:
                return None if leaf.shape.is_dynamic else self.stored[leaf]
        return None

    def part(self, leaf: Leaf) -> tuple[Buffer, int] | None:
        """An array in memory of which the leaf is a part without gaps, and the bytes of that before it."""
        first = 0
        while leaf not in self.stored:
            op, shape = leaf.instruction.op, leaf.shape
            if not isinstance(op, (Reshape, Slice)) or shape.is_dynamic:
                return None
            leaf = self.leaf(leaf.instruction.operands[0])
            if isinstance(op, Slice):
                before = _first_of_part(leaf.shape.dimensions, op)
                if before is None:
                    return None
                first += before
        buffer = self.stored[leaf]
        start = first * buffer.nbytes // max(1, leaf.shape.size)
        return (buffer, start) if start % _ALIGNED == 0 and not leaf.shape.is_dynamic else None

    def is_kernel(self, instruction: Instruction) -> bool:
        """Whether loops over elements are to compute it: it has such a form, and is not left to the reference."""
        if isinstance(instruction.op, Constant) or instruction in self.context.hosted:
            return False
        if instruction.op.form in PLAIN_FORMS:
            return True
        if not isinstance(instruction.op, While) or instruction in self.context.step_loops:
            return False
        return may_be_element_loop(instruction)

    def host(self, instruction: Instruction, reason: str) -> None:
        """The reference evaluates it, from memory to memory."""
        self.context.hosted[instruction] = reason
        for k in range(leaf_count(instruction.shape)):
            self.store(Leaf(instruction, k), "the reference makes it")
        for leaf in self.operands(instruction):
            self.store(leaf, "the reference reads it")


_ALIGNED = 64
"""Bytes of which an array's address is a multiple."""


def _first_of_part(sizes: Sequence[int], op: Slice) -> int | None:
    """The number of the first element of a slice that is a run of elements; None if it is none."""
    first, apart, is_whole = 0, 1, True
    for size, (start, limit, stride) in zip(reversed(sizes), reversed(op.ranges), strict=True):
        count = -(-(limit - start) // stride)
        if count > 1 and (stride > 1 or not is_whole):
            return None
        is_whole &= count == size
        first, apart = first + start * apart, apart * size
    return first


def _buffer_name(leaf: Leaf) -> str:
    return leaf.instruction.name + (f".{leaf.number}" if leaf.instruction.shape.is_tuple else "")
