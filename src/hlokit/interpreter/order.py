"""The order in which the instructions of a computation are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from hlokit.hlo.computation import contains

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction

_AT_ONCE, _SOON, _TOGETHER, _LATE = range(4)


def evaluation_order(computation: Computation) -> Sequence[Instruction]:
    """The schedule, if there is one; else the post-order, but such that few devices have to wait for each other.

    What receives begins as early as it can; what waits for others comes when there is nothing else to do: collectives,
    then recv-dones, each after the sends on its own channel (COMM-11). Where a send needs what is received on its own
    channel, that is not an order, since another device sends: it is then left out of account.
    """
    if computation.module is not None and computation.module.is_scheduled:
        return computation.instructions
    order = computation.post_order()
    if not any(i.op.communication.peer for i in order):
        return order
    late = _by_urgency(order, sends_first=True)
    return late if len(late) == len(order) else _by_urgency(order, sends_first=False)


def _by_urgency(order: Sequence[Instruction], *, sends_first: bool) -> list[Instruction]:
    """As much of `order` as can run; with `sends_first`, if sends come before their recv-dones."""
    sends = {channel: i for i in order for channel in _channels_sent_on(i)} if sends_first else {}
    position = {instruction: number for number, instruction in enumerate(order)}
    urgency = _urgencies(order)
    missing: dict[Instruction, int] = {}
    followers: dict[Instruction, list[Instruction]] = {i: [] for i in order}
    for instruction in order:
        before = {*instruction.operands, *instruction.control_predecessors}
        if _is_recv_done(instruction) and instruction.op.channel_id in sends:  # type: ignore[attr-defined]
            before.add(sends[instruction.op.channel_id])  # type: ignore[attr-defined]
        missing[instruction] = len(before)
        for previous in before:
            followers[previous].append(instruction)
    ready = [(urgency[i], position[i]) for i in order if not missing[i]]
    heapify(ready)
    done: list[Instruction] = []
    while ready:
        instruction = order[heappop(ready)[1]]
        done.append(instruction)
        for follower in followers[instruction]:
            missing[follower] -= 1
            if not missing[follower]:
                heappush(ready, (urgency[follower], position[follower]))
    return done


def _urgencies(order: Sequence[Instruction]) -> dict[Instruction, int]:
    """The rank of each by which it is to run early: recvs and what they need without waiting first, what waits last."""
    communicates = communication_of()
    urgency = {i: _LATE if _is_recv_done(i) else _SOON for i in order}
    for instruction in order:
        if not instruction.op.communication.peer and communicates(instruction):
            urgency[instruction] = _TOGETHER
    for instruction in reversed(order):
        needed_at_once = any(urgency[user] == _AT_ONCE for user in instruction.users)
        if urgency[instruction] == _SOON and not _is_send(instruction):
            if _is_recv(instruction) or needed_at_once:
                urgency[instruction] = _AT_ONCE
    return urgency


def _is_send(instruction: Instruction) -> bool:
    return instruction.op.communication.peer == "send" and instruction.op.communication.stage == "start"


def _is_recv(instruction: Instruction) -> bool:
    return instruction.op.communication.peer == "recv" and instruction.op.communication.stage == "start"


def _is_recv_done(instruction: Instruction) -> bool:
    return instruction.op.communication.peer == "recv" and instruction.op.communication.stage == "done"


def communication_of() -> Callable[[Instruction], bool]:
    """A function that says whether an instruction, or one that it calls, has to do with other devices."""
    known: dict[Computation, bool] = {}

    def communicates(instruction: Instruction) -> bool:
        return _is_communication(instruction) or any(contains(c, _is_communication, known) for c in instruction.called)

    return communicates


def _is_communication(instruction: Instruction) -> bool:
    op = instruction.op
    return op.form == "communicate" and op.has_side_effect() and op.opcode not in ("infeed", "outfeed")


def _channels_sent_on(instruction: Instruction) -> set[int | None]:
    """The channels of the sends that an instruction is, or that run in the computations it calls."""
    channels: set[int | None] = set()
    stack = [instruction]
    seen: set[Computation] = set()
    while stack:
        inner = stack.pop()
        if _is_send(inner):
            channels.add(inner.op.channel_id)  # type: ignore[attr-defined]
        for computation in inner.called:
            if computation not in seen:
                seen.add(computation)
                stack += computation.instructions
    return channels
