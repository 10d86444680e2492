"""Schedule: the order of a computation's steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.leaves import Leaves
from hlokit.cpu.lower.steps import Step
from hlokit.hlo.instruction import Instruction


def ordered(steps: Sequence[Step], leaves: Leaves) -> list[Step]:
    """The steps so that each comes after what it waits for, else in the instructions' order."""
    missing = [0] * len(steps)
    followers: list[list[int]] = [[] for _ in steps]
    for edges in (_by_buffers(steps), _by_effects(steps, leaves), _by_control(steps)):
        for before, then in edges:
            followers[before].append(then)
            missing[then] += 1

    def place(k: int) -> tuple[int, int]:
        return max((leaves.position.get(i, 0) for i in steps[k].instructions), default=0), k

    ready = [place(k) for k in range(len(steps)) if not missing[k]]
    heapify(ready)
    order: list[Step] = []
    while ready:
        _, k = heappop(ready)
        order.append(steps[k])
        for then in followers[k]:
            missing[then] -= 1
            if not missing[then]:
                heappush(ready, place(then))
    if len(order) != len(steps):
        raise AssertionError(f"{leaves.computation.name}: steps need each other")
    return order


def _by_buffers(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Numbers of a step that writes a buffer, and of one that reads it or writes it over."""
    makers: dict[Buffer, list[int]] = {}
    for k, step in enumerate(steps):
        for buffer in step.writes:
            makers.setdefault(buffer, []).append(k)
    for k, step in enumerate(steps):
        for buffer in step.reads:
            for maker in makers.get(buffer, ()):
                if maker != k and not (buffer in step.writes and maker > k):
                    yield maker, k
        for buffer in step.writes:
            for maker in makers[buffer]:
                if maker < k and buffer not in step.reads:
                    yield maker, k


def _by_effects(steps: Sequence[Step], leaves: Leaves) -> Iterator[tuple[int, int]]:
    """Numbers of steps with effects, each with the next one's."""
    has_effect = leaves.context.has_effect
    return pairwise(k for k, step in enumerate(steps) if any(map(has_effect, step.instructions)))


def _by_control(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Numbers of the steps of a control predecessor, and of its successor."""
    doing: dict[Instruction, list[int]] = {}
    for k, step in enumerate(steps):
        for instruction in step.instructions:
            doing.setdefault(instruction, []).append(k)
    for k, step in enumerate(steps):
        for instruction in step.instructions:
            for before in instruction.control_predecessors:
                for j in doing.get(before, ()):
                    if j != k:
                        yield j, k
