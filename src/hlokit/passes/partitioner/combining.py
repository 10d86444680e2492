"""All-reduces that do not wait for each other, and sum over the same devices, become one: devices meet once."""

from __future__ import annotations

from collections.abc import Hashable

from hlokit.analysis.reducers import single_op
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.collectives import AllReduce
from hlokit.ops.structure import GetTupleElement

MOST_BYTES = 1 << 25
"""Bytes that one all-reduce sums up at most: what waits for another is kept in memory meanwhile."""


def combined(module: HloModule) -> dict[Instruction, Instruction]:
    """Combines them in place; gives for each all-reduce that is gone the one that it is a part of."""
    found: dict[Instruction, Instruction] = {}
    for computation in module.all_computations:
        found |= _in_computation(computation)
    return found


def _in_computation(computation: Computation) -> dict[Instruction, Instruction]:
    """All-reduces with equally many all-reduces before them, at most, do not depend on each other."""
    levels: dict[Instruction, int] = {}
    groups: dict[Hashable, list[Instruction]] = {}
    for instruction in computation.post_order():
        level = max((levels[operand] for operand in instruction.operands), default=0)
        key = _key(instruction)
        if key is not None:
            level += 1
            groups.setdefault((level, key), []).append(instruction)
        levels[instruction] = level
    gone: dict[Instruction, Instruction] = {}
    for group in groups.values():
        for some in _of_a_size(group):
            if len(some) > 1:
                _combine(computation, some, gone)
    return gone


def _key(instruction: Instruction) -> Hashable:
    """The key that combined ones share; None for anything else than an all-reduce of one array by a known op."""
    op = instruction.op
    if type(op) is not AllReduce or not instruction.shape.is_array or instruction.shape.is_dynamic:
        return None
    by = single_op(instruction.called[0])
    if by is None or op.channel_id is None:
        return None
    return (op.replace(channel_id=0), by, instruction.shape.dtype)


def _of_a_size(group: list[Instruction]) -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    total = MOST_BYTES + 1
    for instruction in group:
        nbytes = instruction.shape.size * instruction.shape.dtype.bits // 8
        if total + nbytes > MOST_BYTES:
            found.append([])
            total = 0
        found[-1].append(instruction)
        total += nbytes
    return found


def _combine(computation: Computation, some: list[Instruction], gone: dict[Instruction, Instruction]) -> None:
    first = some[0]
    operands = [i.operands[0] for i in some]
    whole = computation.add(first.op, operands, first.called, name=first.name)
    whole.extra = first.extra
    for number, instruction in enumerate(some):
        computation.replace(instruction, computation.add(GetTupleElement(number), [whole]))
        gone[instruction] = whole
    for instruction in some:
        computation.remove(instruction)


__all__ = ["combined"]
