"""The short form of async instructions (HASYNC): `add-start`, `add-update`, `add-done` for a wrapped `add`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from hlokit.errors import ShapeError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import OPS, Op
from hlokit.ops.asynchronous import AsyncStart
from hlokit.text.spelling import Spelling, spelling_of
from hlokit.types.shape import Shape

STEPS = ("-start", "-update", "-done")
_NOT_WRAPPED = ("parameter", "constant", "async-start", "async-update", "async-done")


def short_form(opcode: str) -> tuple[str, str] | None:
    """(wrapped opcode, step) of an opcode of the short form; None for another (HASYNC-2, HASYNC-4)."""
    for step in STEPS:
        base = opcode.removesuffix(step)
        if base != opcode and has_short_form(base):
            return base, step
    return None


def has_short_form(opcode: str) -> bool:
    """Whether the op has no -start opcode of its own."""
    return opcode in OPS and f"{opcode}-start" not in OPS and opcode not in _NOT_WRAPPED


@cache
def start_spelling(base: str) -> Spelling:
    """The wrapped op's attributes with those of the start."""
    spelling, start = spelling_of(OPS[base]), spelling_of(OPS["async-start"])
    role_names = {**spelling.role_names, **start.role_names}
    return replace(spelling, readers={**spelling.readers, **start.readers}, role_names=role_names)


@cache
def repeating_spelling(opcode: str, wrapped: str | None) -> Spelling:
    """The spelling of an async-update or async-done, which may repeat attributes of its start (HASYNC-8)."""
    spelling, start = spelling_of(OPS[opcode]), spelling_of(OPS["async-start"])
    role_names = start.role_names if wrapped is None else {}
    return replace(spelling, readers={**spelling.readers, **start.readers}, role_names=role_names)


def wrap(
    op: Op, operands: Sequence[Shape], called: Sequence[Computation], result: Shape, verify: bool = True
) -> Computation:
    """A computation of just this op on its parameters; without `verify`, whatever the op's rules say of them."""
    wrapped = Computation("async_wrapped")
    parameter = OPS["parameter"]
    parameters = [wrapped.add(parameter(i, shape), name="async_param") for i, shape in enumerate(operands)]
    add = wrapped.add if verify else wrapped.add_unchecked
    wrapped.set_root(add(op, parameters, called, shape=result, name=op.opcode))
    return wrapped


def wrapped_root(start: Instruction) -> Instruction | None:
    """The one op of a start's computation, if it is all of it and takes the parameters in order (HASYNC-3)."""
    (computation,) = start.called
    root, parameters = computation.root, computation.parameters
    if len(start.shape.elements) < 2:  # of a module that was read unchecked: the short form cannot say it
        return None
    if len(computation) != len(parameters) + 1 or list(root.operands) != parameters or not has_short_form(root.opcode):
        return None
    return root


class AsyncChains:
    """Finds the start of an update or done; remembers, so that a long chain takes no longer than its length."""

    def __init__(self) -> None:
        self._starts: dict[Instruction, Instruction] = {}
        self._threads: dict[Computation, str] = {}

    def start_of(self, instruction: Instruction) -> Instruction | None:
        """The async-start at the beginning of the chain; None if there is none."""
        chain: list[Instruction] = []
        while instruction not in self._starts:
            if instruction.opcode == "async-start":
                self._starts[instruction] = instruction
            elif "async-start" in instruction.op.communication.waits_for and len(instruction.operands) == 1:
                chain.append(instruction)
                instruction = instruction.operands[0]
            else:
                return None
        start = self._starts[instruction]
        for member in chain:
            self._starts[member] = start
        return start

    def opcode_text(self, instruction: Instruction) -> str:
        """The opcode of an async instruction as it is written."""
        start = self.start_of(instruction)
        root = wrapped_root(start) if start is not None else None
        return instruction.opcode if root is None else root.opcode + instruction.opcode.removeprefix("async")

    def hand_down(self, instruction: Instruction) -> None:
        """Gives all that a start calls its thread, and the wrapped op the frontend attributes of the chain's last."""
        start = self.start_of(instruction)
        assert start is not None and isinstance(start.op, AsyncStart)
        thread = start.op.async_execution_thread
        pending = list(start.called) if instruction is start else []
        while pending:
            computation = pending.pop()
            if self._threads.get(computation) != thread:
                self._threads[computation] = computation.execution_thread = thread
                pending += [called for inner in computation.instructions for called in inner.called]
        if instruction.extra is not None and instruction.extra.frontend_attributes:
            start.called[0].root.ensure_extra().frontend_attributes = instruction.extra.frontend_attributes

    def check(
        self, instruction: Instruction, base: str | None, thread: str | None, computation: Computation | None
    ) -> None:
        """HASYNC-1, 2, 8: an update or done follows a start or update, of the op, thread and computation it names."""
        wanted = instruction.op.communication.waits_for
        if not instruction.operands:
            raise ShapeError("HINST-5", f"operands of {instruction.opcode}", 0, 1)
        operand = instruction.operands[0]
        start = self.start_of(operand) if operand.opcode in wanted else None
        if start is None:
            raise ShapeError("HASYNC-1", f"operand of {instruction.opcode}", operand.opcode, " or ".join(wanted))
        found = start.called[0].root.opcode
        if base is not None and found != base:
            raise ShapeError("HASYNC-2", "wrapped op", base, found)
        op = start.op
        assert isinstance(op, AsyncStart)
        if thread is not None and thread != op.async_execution_thread:
            raise ShapeError("HASYNC-8", "async_execution_thread", thread, f"the start's, {op.async_execution_thread}")
        if computation is not None and computation is not start.called[0]:
            raise ShapeError("HASYNC-8", "calls", computation.name, f"the start's, {start.called[0].name}")
