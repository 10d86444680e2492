"""The order in which the instructions of a computation are evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction


def evaluation_order(computation: Computation) -> Sequence[Instruction]:
    """The schedule, if there is one; else the post-order, but with each send before the recv-done that waits for it.

    A recv-done that depends on no send may stand before it in the post-order (COMM-11). Where that is no order,
    since a send needs what is received on its own channel, another device sends: the post-order stays.
    """
    if computation.module is not None and computation.module.is_scheduled:
        return computation.instructions
    order = computation.post_order()
    if all(i.opcode != "recv-done" for i in order):
        return order
    late = _sends_first(order)
    return late if len(late) == len(order) else order


def _sends_first(order: Sequence[Instruction]) -> list[Instruction]:
    """As much of `order` as can run if sends come before their recv-dones."""
    sends = {channel: i for i in order for channel in _channels_sent_on(i)}
    position = {instruction: number for number, instruction in enumerate(order)}
    missing: dict[Instruction, int] = {}
    followers: dict[Instruction, list[Instruction]] = {i: [] for i in order}
    for instruction in order:
        before = {*instruction.operands, *instruction.control_predecessors}
        if instruction.opcode == "recv-done" and instruction.op.channel_id in sends:  # type: ignore[attr-defined]
            before.add(sends[instruction.op.channel_id])  # type: ignore[attr-defined]
        missing[instruction] = len(before)
        for previous in before:
            followers[previous].append(instruction)
    ready = [position[i] for i in order if not missing[i]]
    heapify(ready)
    done: list[Instruction] = []
    while ready:
        instruction = order[heappop(ready)]
        done.append(instruction)
        for follower in followers[instruction]:
            missing[follower] -= 1
            if not missing[follower]:
                heappush(ready, position[follower])
    return done


def _channels_sent_on(instruction: Instruction) -> set[int | None]:
    """The channels of the sends that an instruction is, or that run in the computations it calls."""
    channels: set[int | None] = set()
    stack = [instruction]
    seen: set[Computation] = set()
    while stack:
        inner = stack.pop()
        if inner.opcode == "send":
            channels.add(inner.op.channel_id)  # type: ignore[attr-defined]
        for computation in inner.called:
            if computation not in seen:
                seen.add(computation)
                stack += computation.instructions
    return channels
