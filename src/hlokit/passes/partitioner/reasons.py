"""Reasons of a partitioned program: each collective, and each op that runs on whole values, with its cause."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.types.mesh import Axis


@dataclass(frozen=True)
class Reason:
    """The cause of a collective, or of an op on whole values.

    collective   name of the collective in the partitioned module; "" for an op that runs on whole values as they are
    kind         its opcode, or "whole"
    op, opcode   the instruction of the given module that asked for it
    axes         along which devices meet
    value        what is moved: "operand 1", "result", "state 0"
    before, after   its placement, as dimensions' axes
    nbytes       bytes on each device, of the larger of what goes in and comes out; seconds: by the assumed network
    because      the conflict, in a sentence
    advice       the sharding that would avoid it; "" where there is none
    """

    collective: str
    kind: str
    op: str
    opcode: str
    axes: tuple[Axis, ...]
    value: str
    before: str
    after: str
    nbytes: int
    seconds: float
    because: str
    advice: str = ""

    def __str__(self) -> str:
        along = f" along {', '.join(map(str, self.axes))}" if self.axes else ""
        where = f"{self.before} -> {self.after}" if self.after else self.before
        head = f"{self.collective or self.kind}{along} for {self.opcode} {self.op}: {self.value} {where}"
        moved = f", {self.nbytes:,} bytes" if self.nbytes else ""
        return f"{head}{moved}\n    {self.because}" + (f"\n    to avoid it: {self.advice}" if self.advice else "")
