"""Overlap: an order of instructions in which collectives with a start and a done overlap with others."""

from __future__ import annotations

from hlokit.hlo.instruction import Instruction


def overlapping(order: list[Instruction]) -> list[Instruction]:
    """The order with every start of a collective as early, and every done as late, as its operands and users allow."""
    successors: dict[Instruction, list[Instruction]] = {}
    for instruction in order:
        for previous in instruction.control_predecessors:
            successors.setdefault(previous, []).append(instruction)
    for is_moved, backwards in ((_is_start, False), (_is_done, True)):
        if not any(map(is_moved, order)):
            continue
        order = order[::-1] if backwards else order
        place = {instruction: float(k) for k, instruction in enumerate(order)}
        for k, i in enumerate(order):
            if is_moved(i):
                others = (*i.users, *successors.get(i, ())) if backwards else (*i.operands, *i.control_predecessors)
                place[i] = max((place[o] for o in others), default=-1.0) + (k + 1) / (2 * len(order) + 2)
        order = sorted(order, key=lambda i: place[i])
        order = order[::-1] if backwards else order
    return order


def _is_start(instruction: Instruction) -> bool:
    return instruction.op.communication.stage == "start" and not instruction.op.communication.peer


def _is_done(instruction: Instruction) -> bool:
    return instruction.op.communication.stage == "done" and not instruction.op.communication.peer
