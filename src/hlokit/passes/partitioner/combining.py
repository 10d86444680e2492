"""Fewer collectives: values that were moved before are used again, and independent all-reduces are merged."""

from __future__ import annotations

from collections.abc import Hashable

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.collectives import AllGather, AllReduce
from hlokit.ops.exchanges import AllToAll, CollectivePermute
from hlokit.ops.structure import GetTupleElement

MOST_BYTES = 1 << 25
"""Bytes that one all-reduce sums up at most: what waits for another is kept in memory meanwhile."""
_NEAR = 32
"""Instructions that a moved value is kept for, at most, so that the next that moves it can use it. What is used much
later, as weights in a gradient, is moved again instead of kept."""


def combined(module: HloModule) -> dict[Instruction, Instruction]:
    """Combines them in place; gives for each collective that is gone the one that does its work."""
    found: dict[Instruction, Instruction] = {}
    for computation in module.all_computations:
        shared = _shared(computation)
        joined = _in_computation(computation)
        found |= {old: joined.get(new, new) for old, new in shared.items()} | joined
    return found


def _shared(computation: Computation) -> dict[Instruction, Instruction]:
    """Collectives that move a value as another has just moved it, which takes their place."""
    order = computation.post_order()
    last = {instruction: place for place, user in enumerate(order) for instruction in user.operands}
    known: dict[Hashable, Instruction] = {}
    gone: dict[Instruction, Instruction] = {}
    for place, instruction in enumerate(order):
        if type(instruction.op) not in (AllGather, AllToAll, CollectivePermute):
            continue
        key = (instruction.op.replace(channel_id=0), tuple(instruction.operands))
        first = known.get(key)
        if first is not None and place - last.get(first, place) <= _NEAR:
            computation.replace(instruction, first)
            last[first] = max(last.get(first, place), last.get(instruction, place))
            gone[instruction] = first
        else:
            known[key] = instruction
    for instruction in gone:
        computation.remove(instruction)
    return gone


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
    by = instruction.called[0].single_op
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
