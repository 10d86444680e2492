"""Patterns: what a kernel computes, with numbers for instructions and buffers. Each pattern is built once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.leaves import Leaves
from hlokit.hlo.instruction import Instruction
from hlokit.ops.control_flow import While
from hlokit.ops.structure import Constant


class Pattern(NamedTuple):
    """form: all that building a kernel depends on; the instructions and the buffers in it by number."""

    form: Hashable
    instructions: list[Instruction]
    buffers: list[Buffer]


def pattern(leaves: Leaves, groups: Sequence[Sequence[Leaf]]) -> Pattern | None:
    """The pattern of the kernel that stores these leaves; None where it has values that are no arrays, or loops."""
    roots = {leaf for group in groups for leaf in group}
    waiting = list(dict.fromkeys(leaf.instruction for group in groups for leaf in group))
    numbers = {instruction: k for k, instruction in enumerate(waiting)}
    buffers: dict[Buffer, int] = {}
    entries: list[Hashable] = []
    functions = leaves.context.functions
    for instruction in waiting:  # grows
        if isinstance(instruction.op, While):
            return None
        operands: list[Hashable] = []
        for operand in instruction.operands:
            if not operand.shape.is_array:
                return None
            leaf = leaves.leaf(operand)
            buffer = None if leaf in roots else leaves.stored.get(leaf)
            if buffer is None:
                number = numbers.setdefault(leaf.instruction, len(numbers))
                if number == len(waiting):
                    waiting.append(leaf.instruction)
                operands.append((number, leaf.number))
                continue
            held = leaf.instruction.op if isinstance(leaf.instruction.op, Constant) else None
            operands.append((buffers.setdefault(buffer, len(buffers)), leaf.number, leaf.shape, held))
        called = tuple(functions.number(computation) for computation in instruction.called)
        entries.append((instruction.op, instruction.shape, called, *operands))
    stores = tuple(
        tuple((numbers[i], k, buffers.setdefault(leaves.stored[Leaf(i, k)], len(buffers))) for i, k in group)
        for group in groups
    )
    return Pattern((tuple(entries), stores), waiting, list(buffers))
