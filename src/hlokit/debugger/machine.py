"""Machine: one device's run of a program, one instruction at a time, whose whole state can be saved and restored.

The interpreter evaluates a called computation within the instruction that calls it. Here the computations that run are
a stack of frames, so that the run can stop anywhere. Computations that an op applies to elements (reduce's, sort's) run
within their instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hlokit.debugger.taped import Taped
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import Dynamic, is_ndarray, is_sequence
from hlokit.interpreter.evaluate import Step, as_declared, conform, evaluated, plan
from hlokit.interpreter.process import NOT_YET, Process
from hlokit.ops.control_flow import Conditional, While, check_ends


class Loop(NamedTuple):
    """A while instruction that runs: its state before the present pass, and the number of passes before it."""

    state: Any
    passes: int


@dataclass(slots=True)
class Frame:
    """A computation that runs.

    role      what it is to the instruction that calls it: "body", "condition", "to_apply", "branch 1"; "" for the entry
    started   the times at which its steps began, by their positions
    values    by the instruction's id
    loop      of the while instruction that it is at
    """

    computation: Computation
    steps: list[Step]
    role: str
    started: dict[int, int] = field(default_factory=dict[int, int])
    values: dict[int, Any] = field(default_factory=dict[int, Any])
    position: int = 0
    loop: Loop | None = None

    @property
    def next(self) -> Instruction | None:
        """The instruction that it is before, or in; None at its end."""
        return self.steps[self.position].instruction if self.position < len(self.steps) else None

    def copy(self) -> Frame:
        return Frame(
            self.computation, self.steps, self.role, self.started.copy(), self.values.copy(), self.position, self.loop
        )


class Evaluated(NamedTuple):
    """An instruction that has run, with the values of its operands and its own."""

    instruction: Instruction
    operands: tuple[Any, ...]
    value: Any


@dataclass(frozen=True, slots=True)
class State:
    """All of a machine at a time. Arrays are shared with the machine, which never writes to one."""

    time: int
    frames: tuple[Frame, ...]
    result: Any
    exchanged: int
    random: Any
    rng_state: int
    read: tuple[int, ...]
    written: tuple[int, ...]

    def arrays(self) -> Iterator[np.ndarray[Any, Any]]:
        """The arrays that it keeps alive, each as often as it occurs."""
        for frame in self.frames:
            for value in frame.values.values():
                yield from arrays_in(value)


class Tape:
    """An iterator that can be taken back: it keeps what it has given."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._given: list[Any] = []
        self.position = 0

    def __iter__(self) -> Tape:
        return self

    def __next__(self) -> Any:
        if self.position == len(self._given):
            item = next(self._items)
            if item is NOT_YET:
                return item
            self._given.append(item)
        self.position += 1
        return self._given[self.position - 1]


class Machine:
    """A device that runs a program, event by event.

    An event evaluates the instruction that the machine is before, or enters the computation that it calls; the returns
    that follow belong to it. `time` counts the events.

    frames    the computations that run, the entry first; empty at the end
    result    the program's value, at the end
    last      the instruction that the last event evaluated; None where it entered a computation
    """

    def __init__(
        self, process: Process, transport: Taped, module: HloModule, arguments: Sequence[Any], memory_limit: int
    ) -> None:
        self.process = process
        self.transport = transport
        self.module = module
        self.time = 0
        self.frames: list[Frame] = []
        self.result: Any = None
        self.last: Evaluated | None = None
        self._limit = self._trim_at = memory_limit
        self._held = 0
        self._feeds = [Tape(process.infeed), *map(Tape, process.from_host.values())]
        process.infeed = self._feeds[0]
        process.from_host = dict(zip(process.from_host, self._feeds[1:], strict=True))
        self._enter(module.entry, arguments, "")
        self._settle()

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def next(self) -> Instruction | None:
        """The instruction that the next event is about; None at the end."""
        return self.frames[-1].next if self.frames else None

    @property
    def is_finished(self) -> bool:
        return not self.frames

    def advance(self) -> None:
        """Makes the next event. What raises leaves the machine as it was, but for values that it has written."""
        frame = self.frame
        step = frame.steps[frame.position]
        operands = [frame.values[i] for i in step.operands]
        op = step.instruction.op
        self.last = None
        if isinstance(op, While):
            frame.loop = Loop(operands[0], 0)
            self._enter(step.instruction.called[0], operands, "condition")
        elif isinstance(op, Conditional):
            number = op.branch(operands[0], len(operands) - 1)
            self._enter(step.instruction.called[number], operands[number + 1 : number + 2], f"branch {number}")
        elif op.calls_through:
            self._enter(step.instruction.called[0], operands, op.roles[0])
        else:
            with np.errstate(all="ignore"):
                value = evaluated(self.process, step, list(operands))
            self.last = Evaluated(step.instruction, tuple(operands), value)
            frame.values[step.instruction.id] = value
            frame.position += 1
            self._held += sum(a.nbytes for a in arrays_in(value))
            if self._held > self._trim_at:
                self._trim()
        self.time += 1
        self._settle()

    def change(self, depth: int, instruction: Instruction, value: Any) -> None:
        """Gives an instruction of the frame `depth` another value."""
        self.frames[depth].values[instruction.id] = value

    def _trim(self) -> None:
        """Lets go of values that no later instruction takes, but for parameters, which the caller has too."""
        for frame in self.frames:
            kept = {p.id for p in frame.computation.parameters}
            for step in frame.steps[: frame.position]:
                for dead in step.dead:
                    if dead not in kept:
                        frame.values.pop(dead, None)
        arrays = {id(a): a.nbytes for f in self.frames for value in f.values.values() for a in arrays_in(value)}
        self._held = sum(arrays.values())
        self._trim_at = max(self._limit, self._held + self._held // 4)

    def _enter(self, computation: Computation, arguments: Sequence[Any], role: str) -> None:
        steps: list[Step] | None = self.process.plans.get(computation)
        if steps is None:
            steps = self.process.plans[computation] = plan(self.process, computation)
        self.frames.append(Frame(computation, steps, role))
        for step in steps:
            if step.parameter is not None:
                shape = step.instruction.shape
                self.frame.values[step.instruction.id] = as_declared(shape, arguments[step.parameter])

    def _settle(self) -> None:
        """Goes past parameters, and out of computations that are done, to the next instruction or to the end."""
        while self.frames:
            frame = self.frame
            while frame.position < len(frame.steps) and frame.steps[frame.position].parameter is not None:
                frame.position += 1
            if frame.position < len(frame.steps):
                frame.started.setdefault(frame.position, self.time)
                return
            self.frames.pop()
            value = frame.values[frame.computation.root.id]
            if self.frames:
                self._return(frame.role, value)
            else:
                self.result = as_declared(self.module.entry.root.shape, value)

    def _return(self, role: str, value: Any) -> None:
        """Gives a called computation's value to the frame that called it."""
        frame = self.frame
        instruction = frame.steps[frame.position].instruction
        if frame.loop is not None:
            condition, body = instruction.called
            state, passes = frame.loop
            if role == "body":
                check_ends(condition, body, passes + 1)
                frame.loop = Loop(value, passes + 1)
                self._enter(condition, [value], "condition")
                return
            if value:
                self._enter(body, [state], "body")
                return
            value, frame.loop = state, None
        frame.values[instruction.id] = conform(instruction, instruction.shape, value)
        frame.position += 1

    # -- states

    def state(self) -> State:
        """The state now."""
        process = self.process
        return State(
            self.time,
            tuple(f.copy() for f in self.frames),
            self.result,
            self.transport.position,
            process.random_state,
            process.rng_state,
            tuple(tape.position for tape in self._feeds),
            tuple(len(written) for written in self._written()),
        )

    def restore(self, state: State) -> None:
        """Goes to a state that it had."""
        process = self.process
        self.time, self.result, self.last = state.time, state.result, None
        self.frames = [f.copy() for f in state.frames]
        self.transport.position = state.exchanged
        process.random_state = state.random
        process.rng_state = state.rng_state
        for tape, position in zip(self._feeds, state.read, strict=True):
            tape.position = position
        lengths = (*state.written, *[0] * len(self._written()))
        for written, length in zip(self._written(), lengths, strict=False):
            del written[length:]

    def _written(self) -> list[list[Any]]:
        """The lists that the program writes to."""
        outfeed = self.process.outfeed
        assert isinstance(outfeed, list)
        return [outfeed, *self.process.to_host.values()]


def arrays_in(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays of a value, those whose memory it holds in place of views."""
    if is_sequence(value):
        for part in value:
            yield from arrays_in(part)
    elif isinstance(value, Dynamic):
        yield from arrays_in(value.buffer)
    elif is_ndarray(value):
        while is_ndarray(value.base):
            value = value.base
        yield value
