"""The path from a program's result back to the instruction that first produced a NaN or another special number."""

from __future__ import annotations

from typing import Any, NamedTuple

from hlokit.debugger.debugger import Debugger
from hlokit.debugger.machine import Frame
from hlokit.debugger.numbers import count
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import is_sequence, valid_part
from hlokit.ops.control_flow import Conditional, While
from hlokit.ops.structure import GetTupleElement

_Path = tuple[int, ...]


_MOST = 1000
"""Instructions after which the way through a long loop is given up for the first that any value has them from."""


class Crumb(NamedTuple):
    """An instruction on the way, the computation that ran, and the pass of its loop, None outside of loops."""

    instruction: Instruction
    computation: str
    iteration: int | None


def way_back(debugger: Debugger, kind: str) -> list[Crumb]:
    """The instructions from the result to the one whose value has NaNs ("nan"; or "inf") and whose operands have none.

    The debugger is at the program's end; then it stands before that instruction, in the pass where it ran. Empty if the
    result has none. The last is a parameter if an argument has them.
    """
    path = _first(debugger.result, kind)
    if path is None:
        return []
    walk = _Walk(debugger, kind)
    debugger.go(debugger.time - 1)
    if not walk.follow(0, debugger.module.entry.root, path):
        breakpoints, debugger.breakpoints = debugger.breakpoints, []
        debugger.go(0)
        stop = debugger.run(kind)
        debugger.breakpoints = breakpoints
        assert stop.evaluated is not None
        debugger.back_into()
        walk.note(len(debugger.frames) - 1, stop.evaluated.instruction)
    return walk.crumbs


def _first(value: Any, kind: str) -> _Path | None:
    """The index of the first array in a value that has numbers of the kind."""
    if is_sequence(value):
        for k, part in enumerate(value):
            found = _first(part, kind)
            if found is not None:
                return (k, *found)
        return None
    return () if count(kind, valid_part(value)) else None


class _Walk:
    def __init__(self, debugger: Debugger, kind: str) -> None:
        self.debugger = debugger
        self.kind = kind
        self.crumbs: list[Crumb] = []

    def follow(self, depth: int, instruction: Instruction, path: _Path) -> bool:
        """Goes back from an instruction of the frame `depth`, whose value has numbers of the kind at `path`.

        False if the way is too long.
        """
        while len(self.crumbs) < _MOST:
            self.note(depth, instruction)
            found = self._before(depth, instruction, path)
            if found is None:
                frame = self._frames[depth] if depth < len(self._frames) else None
                started = frame.started.get(_position(frame, instruction)) if frame is not None else None
                if started is not None:
                    self.debugger.go(started)
                return True
            depth, instruction, path = found
        return False

    @property
    def _frames(self) -> list[Frame]:
        return self.debugger.frames

    def note(self, depth: int, instruction: Instruction) -> None:
        """Adds an instruction of the frame `depth` to the way."""
        frame = self._frames[depth]
        loop = self._frames[depth - 1].loop if depth else None
        self.crumbs.append(Crumb(instruction, frame.computation.name, loop.passes if loop is not None else None))

    def _before(self, depth: int, instruction: Instruction, path: _Path) -> tuple[int, Instruction, _Path] | None:
        """The value that this one has the numbers from; None if it is where they arise."""
        op = instruction.op
        if instruction.opcode == "parameter":
            return self._given(depth, instruction, path)
        if instruction.opcode == "tuple":
            return depth, instruction.operands[path[0]], path[1:]
        if isinstance(op, GetTupleElement):
            return depth, instruction.operands[0], (op.index, *path)
        if isinstance(op, While | Conditional) or op.calls_through:
            inside = self._inside(depth, instruction, path)
            if inside is not None:
                return inside
        for operand in instruction.operands:
            at = _first(self.debugger.held(depth, operand), self.kind)
            if at is not None:
                return depth, operand, at
        return None

    def _given(self, depth: int, parameter: Instruction, path: _Path) -> tuple[int, Instruction, _Path] | None:
        """The value that the caller gave, or the pass before."""
        if depth == 0:
            return None
        frame, caller = self._frames[depth], self._frames[depth - 1]
        if caller.loop is None or not caller.loop.passes:
            [(outer, operand)] = self.debugger.sources(depth, parameter)
            return outer, operand, path
        if frame.role == "body":
            self.debugger.go(min(frame.started.values()) - 1)
            frame = self._at(depth, "condition")
        return self._end_of_pass(depth, frame, path)

    def _inside(self, depth: int, instruction: Instruction, path: _Path) -> tuple[int, Instruction, _Path] | None:
        """The root of what an instruction called last; None if nothing that it called made an event."""
        frame = self._frames[depth]
        position = _position(frame, instruction)
        if frame.position > position:
            self.debugger.go(min(t for p, t in frame.started.items() if p > position) - 1)
            frame = self._frames[depth]
        if len(self._frames) <= depth + 1 or frame.position != position:
            return None
        child = self._frames[depth + 1]
        if child.role != "condition":
            return depth + 1, child.computation.root, path
        assert frame.loop is not None
        return (
            self._end_of_pass(depth + 1, child, path) if frame.loop.passes else (depth, instruction.operands[0], path)
        )

    def _end_of_pass(self, depth: int, frame: Frame | None, path: _Path) -> tuple[int, Instruction, _Path] | None:
        """The root of the body in the pass before a condition."""
        if frame is None:
            return None
        self.debugger.go(min(frame.started.values()) - 1)
        body = self._at(depth, "body")
        return None if body is None else (depth, body.computation.root, path)

    def _at(self, depth: int, role: str) -> Frame | None:
        frame = self._frames[depth] if depth < len(self._frames) else None
        return frame if frame is not None and frame.role == role else None


def _position(frame: Frame, instruction: Instruction) -> int:
    return next(k for k, step in enumerate(frame.steps) if step.instruction is instruction)
