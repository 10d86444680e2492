"""Communication traits: an op's communication with other devices, and its part in an asynchronous operation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommunicationTraits:
    """The communication traits of an op, by which passes, analyses and readers go instead of by lists of ops.

    stage           part in an asynchronous operation: "start" begins it, "update" hands it on, "done" waits for it
    waits_for       the ops one of which makes the state that it takes: of what is under way, its start or an update
    peer            the end of a transfer between two devices that meet on a channel: "send" or "recv"
    keeps_operands  the first element of its result, a tuple, is its operands, or the first of them, as they are
    is_collective   the members of a group exchange their operands
    same_in_group   a collective that gives all members of a group the same; but for what it keeps of its operands
    """

    stage: str = ""
    waits_for: tuple[str, ...] = ()
    peer: str = ""
    keeps_operands: bool = False
    is_collective: bool = False
    same_in_group: bool = False
