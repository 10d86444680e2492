"""Schedule: the order of a computation's steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.leaves import Leaves
from hlokit.cpu.lower.lives import Lives, Unit
from hlokit.cpu.lower.steps import ConditionalStep, Step, StepBlock, WhileStep
from hlokit.hlo.instruction import Instruction


def ordered(steps: Sequence[Step], leaves: Leaves) -> list[Step]:
    """The steps so that each comes after what it waits for, else in the instructions' order."""
    missing, followers = _waiting(steps, leaves.context, _by_buffers(steps))

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


def lighten(
    block: StepBlock, context: Context, kept: Collection[Buffer] = (), loop: WhileStep | None = None
) -> None:
    """Reorders the steps of a block, and of the blocks in it, if less memory is in use at once then.

    Of the steps that may be next, the one is taken that adds the fewest bytes. The order stays as it is where that does
    not save a megabyte and a tenth: a value that is used soon is more often in the caches. Routines are written, so
    that their scratch memory counts; chains stay together.

    kept, loop  as of Lives
    """
    for step in block.steps:
        if isinstance(step, WhileStep):
            lighten(step.condition, context)
            lighten(step.body, context, loop=step)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                lighten(branch, context)
    lives = Lives(block, context, kept, loop)
    block.peak = lives.peak(lives.units)
    if block.peak < _WORTH:
        return
    order = _lightest(lives, context)
    peak = lives.peak(order)
    if block.peak - peak >= max(_WORTH, block.peak / 10):
        block.steps, block.peak = [step for unit in order for step in unit.steps], peak


_WORTH = 1 << 20
"""Bytes that another order must save at least."""


def _lightest(lives: Lives, context: Context) -> list[Unit]:
    numbers = {step: k for k, unit in enumerate(lives.units) for step in unit.steps}
    missing, followers = [0] * len(lives.units), [set[int]() for _ in lives.units]
    steps = [step for unit in lives.units for step in unit.steps]
    _, after = _waiting(steps, context, _in_order(steps))
    for before, thens in zip(steps, after):
        for then in thens:
            one, other = numbers[before], numbers[steps[then]]
            if one != other and other not in followers[one]:
                followers[one].add(other)
                missing[other] += 1
    growth = lives.growth()
    ready = {k for k in range(len(lives.units)) if not missing[k]}
    heap = [(growth.of(k), k) for k in ready]
    heapify(heap)
    order: list[Unit] = []
    while heap:
        found, k = heappop(heap)
        if k not in ready or found != growth.of(k):
            continue  # a unit whose growth has changed was put in again
        ready.remove(k)
        order.append(lives.units[k])
        changed = growth.done(k)
        for then in followers[k]:
            missing[then] -= 1
            if not missing[then]:
                ready.add(then)
                changed.add(then)
        for other in changed & ready:
            heappush(heap, (growth.of(other), other))
    if len(order) != len(lives.units):
        raise AssertionError("steps need each other")
    return order


def _waiting(
    steps: Sequence[Step], context: Context, by_buffers: Iterable[tuple[int, int]]
) -> tuple[list[int], list[list[int]]]:
    """For each step how many others it waits for (some counted several times), and the numbers of those that wait."""
    missing = [0] * len(steps)
    followers: list[list[int]] = [[] for _ in steps]
    for edges in (by_buffers, _by_effects(steps, context), _by_control(steps)):
        for before, then in edges:
            followers[before].append(then)
            missing[then] += 1
    return missing, followers


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


def _in_order(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Numbers of steps, already in an order, that touch one buffer, which one of the two writes."""
    writer: dict[Buffer, int] = {}
    readers: dict[Buffer, list[int]] = {}
    for k, step in enumerate(steps):
        for buffer in dict.fromkeys((*step.reads, *step.writes)):
            if buffer in writer:
                yield writer[buffer], k
            if buffer in step.writes:
                yield from ((reader, k) for reader in readers.pop(buffer, ()))
                writer[buffer] = k
            else:
                readers.setdefault(buffer, []).append(k)


def _by_effects(steps: Sequence[Step], context: Context) -> Iterator[tuple[int, int]]:
    """Numbers of steps with effects, each with the next one's."""
    has_effect = context.has_effect
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
