"""Steps of a program that the reference evaluates: machine code calls back into Python for them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from hlokit.errors import HlokitError
from hlokit.hlo.values import TOKEN_VALUE
from hlokit.interpreter.evaluate import run_instruction
from hlokit.interpreter.process import Process
from hlokit.interpreter.routes import Place
from hlokit.ops.custom import CustomCall
from hlokit.ops.custom_targets.registry import find_target
from hlokit.runtime.arrays import array_leaves, leaves, tree, view
from hlokit.runtime.collectives import Collectives
from hlokit.runtime.interrupt import step_address
from hlokit.runtime.meetings import Meetings, Round, Switch

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction


class HostSteps:
    """The steps by number: the instruction that each evaluates. `address`: of the C function i32 (ptr context, i64
    number, ptr table) that runs one, which is to be given `context`.

    A step belongs to the call that its thread is in: `running` says which process that is. `grid`: (replicas,
    partitions) of the runs in which small collectives need no Python (hlokit.runtime.meetings).
    """

    def __init__(self, instructions: Sequence[Instruction], grid: tuple[int, int] = (1, 1)) -> None:
        self.instructions = list(instructions)
        for instruction in self.instructions:
            _instantiate(instruction)
        self.collectives = Collectives()
        self._current = threading.local()
        self._function = self._run  # held, since machine code has its address
        self.address, self.context = step_address(), id(self._function)
        self._grid = grid
        if grid != (1, 1):
            self._switch = Switch(self.address, self.context)
            self.address, self.context = self._switch.address, self._switch.context

    @cached_property
    def meetings(self) -> Meetings | None:
        """Where devices that run together in this process meet without Python. Processes never ask."""
        found = self._meetings(alike=False)
        return found if found is not None and found.are_any else None

    def without_python(self) -> Round | None:
        """Meetings for runs of machine code alone, of devices that surely come to the same steps; None if steps take
        Python."""
        found = self._meetings(alike=True)
        return found.without_python() if found is not None else None

    def _meetings(self, alike: bool) -> Meetings | None:
        if self._grid == (1, 1):
            return None
        processes = [Process(place=place) for place in Place.grid(*self._grid)]
        try:
            return self.collectives.meetings(processes, self.instructions, alike)
        except HlokitError:  # about groups: running says it
            return None

    @contextmanager
    def running(self, process: Process, round: Round | None = None) -> Generator[None, None, None]:
        """Steps inside are `process`'s, in a run whose devices meet at `round`."""
        before: tuple[Process | None, Round | None] = getattr(self._current, "run", (None, None))
        self._current.run = process, round
        if round is not None:
            Switch.enter(round.places[process.device])
        try:
            yield
        finally:
            self._current.run = before
            if round is not None:
                Switch.enter(0)

    def _run(self, number: int, table: int) -> None:
        """Runs a step. What it raises, raise_kept raises again when the machine code has been left."""
        instruction = self.instructions[number]
        process, round = self._current.run

        def over() -> None:
            if round is not None:
                round.next(process.device, number)

        shares = process.transport.shares_memory
        if not (shares and self.collectives.run(process, instruction, table, over)):
            _evaluate(process, instruction, table)


def _instantiate(instruction: Instruction) -> None:
    """Has a custom call's handler make its state now, if it is known: what is wrong with it is told before it runs."""
    if isinstance(instruction.op, CustomCall):
        target: Any = find_target(instruction.op.custom_call_target)
        if hasattr(target, "instantiate"):
            target.instantiate(instruction)


def _evaluate(process: Process, instruction: Instruction, table: int) -> None:
    pointers = (ctypes.c_void_p.from_address(place).value for place in count(table, 8))
    is_moved = process.apart is not None and instruction.op.communication.is_collective  # before this returns
    outlives = instruction.op.has_side_effect() and not is_moved  # what goes to a queue outlives the program's memory
    operands: list[Any] = []
    for operand in instruction.operands:
        arrays = [view(next(pointers), leaf) for leaf in array_leaves(operand.shape)]
        operands.append(tree(operand.shape, iter(a.copy() for a in arrays) if outlives else iter(arrays), TOKEN_VALUE))
    kept = instruction.op.kept(instruction.shape)
    results = [view(next(pointers), leaf) for leaf in islice(array_leaves(instruction.shape), kept, None)]
    value = run_instruction(process, instruction, operands, [*[None] * kept, *results])
    for result, array in zip(results, islice(leaves(value), kept, None), strict=True):
        if array is not result:
            result[...] = array
