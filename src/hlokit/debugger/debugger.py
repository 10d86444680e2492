"""Debugger: controls and inspects the run of a program on one device or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlokit import memory
from hlokit.debugger.conditions import Condition, condition, named
from hlokit.debugger.machine import Evaluated, Frame, Machine
from hlokit.debugger.taped import Blocked, Hub
from hlokit.debugger.timeline import Timeline
from hlokit.errors import ArgumentError, DeadlockError, EvaluationError, UnsupportedError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import valid_part
from hlokit.interpreter.arguments import argument, arguments_of, result_of
from hlokit.interpreter.checks import device_counts, refuse
from hlokit.interpreter.process import Process
from hlokit.interpreter.routes import Place, routes_of
from hlokit.tracebacks import public

if TYPE_CHECKING:
    from hlokit.debugger.compiled import Parting
    from hlokit.debugger.serving import Served


@dataclass(frozen=True)
class Stop:
    """The position at which a debugger stopped, and the reason.

    kind        "step", "breakpoint", "error", "waits" (for other devices), "end", "start" (going backwards)
    text        the reason, for people
    device      the device that it is about
    evaluated   the instruction that has just run, with the values of its operands and its own; None if none has
    """

    kind: str
    text: str
    device: int = 0
    evaluated: Evaluated | None = None

    def __str__(self) -> str:
        return self.text


@dataclass
class Breakpoint:
    """A condition at which runs stop. `hits`: the number of times that it stopped one."""

    number: int
    condition: Condition
    hits: int = 0
    is_enabled: bool = True

    def __str__(self) -> str:
        state = "" if self.is_enabled else ", disabled"
        return f"{self.number}: {self.condition.text} ({self.hits} hit{'' if self.hits == 1 else 's'}{state})"


class Debugger:
    """A run of a program on the reference interpreter that can step forwards and backwards.

    Made by `hk.debug`. It is stopped before an instruction, which a step evaluates. A time is the number of events on a
    device: instructions evaluated and computations entered.

    Attributes
    ----------
    module : HloModule
        The program.
    arguments : list
        The arguments of each device.
    counts : (int, int)
        The numbers of replicas and partitions.
    seed : int
        The seed of random numbers.
    device : int
        The device to which steps and queries apply.
    breakpoints : list of Breakpoint
        The conditions at which runs stop.
    parting : Parting or None
        For a compiled program, the point at which its machine code first differs from the reference.

    Examples
    --------
    >>> module = hk.parse("HloModule m\\nENTRY e { x = f32[2] parameter(0) y = f32[2] log(x) ROOT z = f32[2] sqrt(y) }")
    >>> d = hk.debug(module, [0.5, 1.0])
    >>> print(d.break_at("nan"))
    1: nan (0 hits)
    >>> print(d.run())
    breakpoint 1: 1 NaN in %z, none in its operands
    >>> d.back().kind, d.value("y")
    ('step', array([-0.6931472,  0.       ], dtype=float32))
    """

    def __init__(
        self,
        module: HloModule,
        args: Sequence[Any],
        *,
        infeed: Any = (),
        seed: int = 0,
        replicas: int | None = None,
        partitions: int | None = None,
        memory_limit: int | None = None,
        from_host: Any = None,
    ) -> None:
        refuse(module, memory.most(), replicas, partitions)
        counts = device_counts(module, replicas, partitions)
        places = Place.grid(*counts)
        several = len(places) > 1
        given: list[Any] = list(args) if several else [args]
        if len(given) != len(places):
            raise ArgumentError(f"{module.name}: {len(given)} lists of arguments for {len(places)} devices [EXEC-3]")
        self.module = module
        self.seed = seed
        self.counts = counts
        self.device = 0
        self.breakpoints: list[Breakpoint] = []
        self.parting: Parting | None = None
        self._names = [str(place) for place in places]
        self._hub = Hub(self._names)
        self.arguments = [arguments_of(module, a) for a in given]
        limit = memory.most() // 4 if memory_limit is None else memory_limit
        routes = routes_of([module] * len(places), places)
        self._timelines: list[Timeline] = []
        for d, place in enumerate(places):
            feed: Iterable[Any] = (infeed[d] if infeed else ()) if several else infeed
            host = from_host[d] if several and from_host is not None else from_host
            process = Process(
                infeed=feed, seed=seed, place=place, transport=self._hub.ends[d], routes=routes[d], from_host=host
            )
            machine = Machine(process, self._hub.ends[d], module, self.arguments[d], limit)
            self._timelines.append(Timeline(machine, limit))

    # -- where it is

    @property
    def times(self) -> list[int]:
        """The time on each device."""
        return [t.time for t in self._timelines]

    @property
    def changes(self) -> list[tuple[int, int, int, Instruction, Any]]:
        """The values that were changed: device, time, frame, instruction, value."""
        return [(d, time, *c) for d, t in enumerate(self._timelines) for time, cs in t.changes.items() for c in cs]

    def resume(self, times: Sequence[int], changes: Sequence[tuple[int, int, int, Instruction, Any]]) -> None:
        """Puts in values and runs the devices to these times, as far as they come."""
        for device, time, depth, instruction, value in changes:
            self._timelines[device].changes.setdefault(time, []).append((depth, instruction, value))
        self._replay(times)

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self._timelines)

    @property
    def time(self) -> int:
        """The number of events before this point, on the device."""
        return self._machine.time

    @property
    def next(self) -> Instruction | None:
        """The instruction that runs next on the device, or whose called computation is running; None at the end."""
        return self._machine.next

    @property
    def frames(self) -> list[Frame]:
        """The active computations on the device, the entry first."""
        return self._machine.frames

    @property
    def is_finished(self) -> bool:
        """Whether the device has run the whole program."""
        return self._machine.is_finished

    @property
    def result(self) -> Any:
        """The program's result on the device, at its end.

        Raises
        ------
        ArgumentError
            The program has not finished.
        """
        if not self._machine.is_finished:
            raise ArgumentError(f"{self.module.name} has not finished: call run() first")
        return result_of(valid_part(self._machine.result), set())

    @property
    def waiting(self) -> list[str]:
        """A line for each device that waits for others: the instruction, and the devices that it waits for."""
        found: list[str] = []
        for device, name in enumerate(self._names):
            wait = self._hub.wait_of(device)
            if wait is not None:
                missing = ", ".join(self._names[d] for d in self._hub.exchange.missing(wait))
                found.append(f"{name} waits at {wait} for {missing or 'a device that does not exist'}")
        return found

    def serve(self, port: int = 0, *, hosts: Sequence[str] = ()) -> Served:
        """Serves a page to browsers on this machine: the viewer with values, which can step forwards and backwards.

        The address contains a random token. The page accepts names, numbers and conditions, but no Python expressions.
        While it is served, the debugger must not be used elsewhere at the same time.

        Parameters
        ----------
        port : int, optional
            The port of 127.0.0.1; by default any free one.
        hosts : sequence of str, optional
            Further accepted values of the header Host, such as those that a proxy sends: "jupyter.example.org".

        Returns
        -------
        Served
            With its `url`; `close()` ends it.

        Raises
        ------
        UnsupportedError
            starlette or uvicorn are not installed: `pip install 'hlokit[view]'`.
        ArgumentError
            The port is taken.
        """
        try:
            serving = import_module("hlokit.debugger.serving")
        except ImportError as error:
            raise UnsupportedError(f"the debugger's page: pip install 'hlokit[view]' ({error})") from None
        return serving.Served(self, port, hosts)

    @property
    def _machine(self) -> Machine:
        return self._timelines[self.device].machine

    @property
    def _timeline(self) -> Timeline:
        return self._timelines[self.device]

    def select(self, device: int) -> None:
        """Selects the device to which steps and queries apply.

        Parameters
        ----------
        device : int
            The number of the device, counted replica by replica and partition by partition.

        Raises
        ------
        ArgumentError
            There is no such device.
        """
        if not 0 <= device < self.devices:
            raise ArgumentError(f"device {device}: there are {self.devices} devices, from 0")
        self.device = device

    # -- forwards

    @public
    def step(self) -> Stop:
        """Runs the next instruction of this computation, including everything that it calls.

        Returns
        -------
        Stop
            The stop: after the instruction, or earlier at a breakpoint, an error or a wait.
        """
        depth, position = len(self.frames), self._place(len(self.frames))
        return self._until(
            lambda m: len(m.frames) < depth or (len(m.frames) == depth and self._place(depth) != position)
        )

    @public
    def into(self) -> Stop:
        """Runs one event: enters the computation that the next instruction calls, if it calls one.

        Returns
        -------
        Stop
            Where it stopped.
        """
        return self._until(lambda m: True)

    @public
    def out(self) -> Stop:
        """Runs this computation to its end.

        Returns
        -------
        Stop
            The stop: after the instruction that called the computation, after all iterations of a loop.
        """
        depth = len(self.frames)
        return self._until(lambda m: len(m.frames) < depth)

    @public
    def run(self, until: str | None = None) -> Stop:
        """Runs all devices to the next breakpoint or to the end.

        Parameters
        ----------
        until : str, optional
            A condition of this run alone, as `break_at` takes it.

        Returns
        -------
        Stop
            Where it stopped.

        Raises
        ------
        ArgumentError
            `until` is not a condition.
        """
        extra = None if until is None else Breakpoint(0, condition(until, self.module))
        order = [*range(self.device, self.devices), *range(self.device)]
        waited: Stop | None = None
        while True:
            moved = False
            for device in order:
                timeline = self._timelines[device]
                if timeline.machine.is_finished:
                    self._hub.exchange.finished.add(device)
                    continue
                before = timeline.time
                stop = self._device_until(device, lambda m: False, extra)
                moved = moved or timeline.time != before
                if stop.kind in ("breakpoint", "error"):
                    self.device = device
                    return stop
                waited = stop if stop.kind == "waits" else waited
            if all(t.machine.is_finished for t in self._timelines):
                return Stop("end", "the program has finished", self.device)
            if not moved:
                assert waited is not None
                error: DeadlockError = self._hub.deadlock()
                return Stop("error", str(error), waited.device)

    def _until(self, is_there: Callable[[Machine], bool]) -> Stop:
        return self._device_until(self.device, is_there, None)

    def _device_until(self, device: int, is_there: Callable[[Machine], bool], extra: Breakpoint | None) -> Stop:
        timeline = self._timelines[device]
        machine = timeline.machine
        breakpoints = [b for b in (*self.breakpoints, *([extra] if extra else [])) if b.is_enabled]
        if machine.is_finished:
            return Stop("end", "the program has finished", device)
        while True:
            previous = machine.next
            try:
                timeline.advance()
            except Blocked:
                waits = [text for text in self.waiting if text.startswith(f"{self._names[device]} ")]
                return Stop("waits", waits[0] if waits else "waits", device)
            except EvaluationError as error:
                return Stop("error", str(error), device)
            reason = self._reason(machine, previous, breakpoints)
            if reason:
                return Stop("breakpoint", reason, device, machine.last)
            if machine.is_finished:
                return Stop("end", "the program has finished", device, machine.last)
            if is_there(machine):
                return Stop("step", "", device, machine.last)

    def _reason(self, machine: Machine, previous: Instruction | None, breakpoints: Sequence[Breakpoint]) -> str:
        """Why to stop here, by the first breakpoint that says so."""
        for b in breakpoints:
            text = b.condition.after(machine, machine.last) if machine.last is not None else ""
            text = text or (b.condition.before(machine, previous) if machine.frames else "")
            if text:
                b.hits += 1
                return f"breakpoint {b.number}: {text}" if b.number else text
        return ""

    # -- backwards

    @public
    def back(self) -> Stop:
        """Undoes the last instruction of this computation; at the first one, goes back to the calling instruction.

        Returns
        -------
        Stop
            Where it stopped.
        """
        if self._machine.is_finished:
            return self._went(self._last_of_entry())
        frame = self.frames[-1]
        earlier = [time for time in frame.started.values() if time < self.time]
        if earlier:
            return self._went(max(earlier))
        caller = self.frames[-2] if len(self.frames) > 1 else None
        return self._went(caller.started[caller.position] if caller is not None else 0)

    @public
    def back_into(self) -> Stop:
        """Undoes one event: enters the computation that the last instruction called, at its end, if it called one.

        Returns
        -------
        Stop
            Where it stopped.
        """
        return self._went(max(self.time - 1, 0))

    @public
    def back_out(self) -> Stop:
        """Goes back to the instruction that called this computation.

        Returns
        -------
        Stop
            Where it stopped.
        """
        if len(self.frames) < 2:
            return self._went(0)
        caller = self.frames[-2]
        return self._went(caller.started[caller.position])

    @public
    def run_back(self, until: str | None = None) -> Stop:
        """Runs backwards to the previous breakpoint, or to the beginning, on this device.

        Parameters
        ----------
        until : str, optional
            A condition of this run alone, as `break_at` takes it.

        Returns
        -------
        Stop
            Where it stopped.

        Raises
        ------
        ArgumentError
            `until` is not a condition.
        """
        breakpoints = [b for b in self.breakpoints if b.is_enabled]
        if until is not None:
            breakpoints.append(Breakpoint(0, condition(until, self.module)))
        timeline, end = self._timeline, self.time
        now = end
        while end > 0:
            begin = timeline.saved_before(end)
            timeline.go(begin)
            found: tuple[int, str, Evaluated | None] | None = None
            while timeline.time < end:
                previous = self._machine.next
                timeline.advance()
                if timeline.time < now:
                    hits = [b.hits for b in breakpoints]
                    reason = self._reason(self._machine, previous, breakpoints)
                    for b, count in zip(breakpoints, hits, strict=True):
                        b.hits = count
                    if reason:
                        found = timeline.time, reason, self._machine.last
            if found is not None:
                timeline.go(found[0])
                return Stop("breakpoint", found[1], self.device, found[2])
            end = begin
        return self._went(0)

    @public
    def go(self, time: int) -> Stop:
        """Goes back to an earlier time of the device.

        Parameters
        ----------
        time : int
            The number of events before it.

        Returns
        -------
        Stop
            Where it stopped.

        Raises
        ------
        ArgumentError
            The time is below 0 or later than now.
        """
        if not 0 <= time <= self.time:
            raise ArgumentError(f"time {time}: this device has been at 0 to {self.time}; run() continues beyond")
        return self._went(time)

    def _went(self, time: int) -> Stop:
        self._timeline.go(time)
        return Stop("step", "", self.device) if time else Stop("start", "the program's beginning", self.device)

    def _last_of_entry(self) -> int:
        """The time, from the end, at which the last instruction of the entry began."""
        time = self.time - 1
        self._timeline.go(time)
        if len(self.frames) > 1:
            time = self.frames[0].started[self.frames[0].position]
        return time

    def _place(self, depth: int) -> tuple[int, int]:
        """The place of a frame in its run: its position, and in a loop the pass."""
        frame = self.frames[depth - 1] if len(self.frames) >= depth else None
        caller = self.frames[depth - 2] if frame is not None and depth > 1 else None
        passes = caller.loop.passes * 2 + (frame.role == "body") if caller and caller.loop and frame else 0
        return (frame.position if frame is not None else -1), passes

    # -- breakpoints

    @public
    def break_at(self, text: str) -> Breakpoint:
        """Stops runs and steps at a condition.

        Parameters
        ----------
        text : str
            The name of an instruction; `opcode:dot`; `line:train.py:12`; `scope:layer/norm`; `iteration:while.3:5`;
            `nan`, `inf` or `denormal`, after an instruction whose value has them and whose operands have none;
            `ulps:1000`, after one whose value differs from that of the same run in f64 by more than this number of
            units in the last place of its type, while none of its operands does; `if EXPRESSION`, after an instruction
            for which the Python expression is true, with the names `value`, `operands`, `name`, `opcode`, `shape`,
            `iteration` and `np`.

        Returns
        -------
        Breakpoint
            With its number, for `remove`.

        Raises
        ------
        ArgumentError
            The module has no such instruction, or the text is not a condition.
        """
        number = max((b.number for b in self.breakpoints), default=0) + 1
        self.breakpoints.append(Breakpoint(number, condition(text, self.module)))
        return self.breakpoints[-1]

    @public
    def remove(self, number: int) -> None:
        """Removes a breakpoint.

        Parameters
        ----------
        number : int
            Its number.

        Raises
        ------
        ArgumentError
            There is no such breakpoint.
        """
        kept = [b for b in self.breakpoints if b.number != number]
        if len(kept) == len(self.breakpoints):
            raise ArgumentError(f"there is no breakpoint {number}")
        self.breakpoints = kept

    # -- values

    @public
    def value(self, name: str) -> Any:
        """The value of an instruction in the innermost active computation that contains it.

        Parameters
        ----------
        name : str
            The name of the instruction.

        Returns
        -------
        numpy.ndarray, tuple or None
            A copy of the value, of its run-time sizes.

        Raises
        ------
        ArgumentError
            No active computation contains the instruction, or it has not run there.
        """
        return result_of(valid_part(self.held(*self.found(name))), set())

    def held(self, depth: int, instruction: Instruction) -> Any:
        """The value of an instruction of a frame, run again if it was let go."""
        frame = self.frames[depth] if self.frames else None
        if frame is None:
            raise ArgumentError("the program has finished: call back() or go(time) first")
        if instruction.id in frame.values:
            return frame.values[instruction.id]
        if frame.loop is not None and frame.next is instruction:
            return frame.loop.state
        position = next(k for k, step in enumerate(frame.steps) if step.instruction is instruction)
        if position >= frame.position:
            raise ArgumentError(f"%{instruction.name} has not run yet")
        now, machine = self.time, self._machine
        try:
            self._timeline.go(frame.started[position])
            while len(machine.frames) > depth + 1 or machine.frames[depth].position <= position:
                self._timeline.advance()
            if machine.last is not None and machine.last.instruction is instruction:
                return machine.last.value
            return machine.frames[depth].values[instruction.id]
        finally:
            self._timeline.go(now)

    def found(self, name: str) -> tuple[int, Instruction]:
        """The innermost frame that has an instruction, and the instruction."""
        instruction = named(self.module, name)
        for depth in range(len(self.frames) - 1, -1, -1):
            if self.frames[depth].computation is instruction.parent:
                return depth, instruction
        where = instruction.parent.name if instruction.parent is not None else "none"
        at_end = "the program has finished: back() steps into it" if self.is_finished else ""
        raise ArgumentError(
            f"%{instruction.name} is in the computation {where}, which does not run here. {at_end}".strip()
        )

    @public
    def operands(self, name: str) -> list[tuple[Instruction, Any]]:
        """The operands of an instruction and their values: where its value comes from.

        Parameters
        ----------
        name : str
            The name of the instruction. For a parameter of a called computation, the operand of the caller is returned.

        Returns
        -------
        list of (Instruction, value)
            Each operand with its value.

        Raises
        ------
        ArgumentError
            No active computation contains the instruction, or an operand has not run.
        """
        depth, instruction = self.found(name)
        return [(o, self.held(d, o)) for d, o in self.sources(depth, instruction)]

    def sources(self, depth: int, instruction: Instruction) -> list[tuple[int, Instruction]]:
        """The operands of an instruction with their frames; of a parameter, what the caller gave for it."""
        if instruction.opcode != "parameter" or depth == 0:
            return [(depth, o) for o in instruction.operands]
        caller, frame = self.frames[depth - 1], self.frames[depth]
        calling = caller.next
        assert calling is not None
        number: int = instruction.op.number  # type: ignore[attr-defined]
        if frame.role.startswith("branch"):
            number = 1 + int(frame.role.removeprefix("branch "))
        if caller.loop is not None and caller.loop.passes:
            return [(depth - 1, calling)]
        return [(depth - 1, calling.operands[number])]

    def inside(self, name: str, *indices: Sequence[int]) -> Debugger:
        """A separate run of the computation that a reduce or a sort applies to elements, with the current operands.

        Parameters
        ----------
        name : str
            The name of a reduce or a sort, whose operands have run.
        indices : sequence of int
            For a reduce, the index of an element of the result: its elements are combined one by one by calls of the
            computation, in the order that the language defines. For a sort, the indices of two elements, which are
            compared.

        Returns
        -------
        Debugger
            The new debugger, at the beginning. `into()` enters a call; this debugger does not move.

        Raises
        ------
        ArgumentError
            An index is not within the result, or an operand has not run.
        UnsupportedError
            Another op, or more than 5,000 elements.

        Examples
        --------
        >>> b = hk.Builder()
        >>> x = b.parameter(0, hk.f32[3], "x")
        >>> d = hk.debug(b.build(hk.reduce(x, b.constant(0.0), hk.add, [0])), [1, 2, 4])
        >>> stop = d.run()
        >>> stop = d.back()
        >>> inner = d.inside(d.next.name, ())
        >>> [inner.step().evaluated is None for _ in range(3)], inner.result
        ([True, True, True], array(7., dtype=float32))
        """
        return import_module("hlokit.debugger.applied").applied(self, name, *indices)

    @public
    def change(self, name: str, value: Any) -> None:
        """Replaces the value of an instruction from this point on; later events are discarded.

        If there are several devices, the others run again to their previous times, as far as they can.

        Parameters
        ----------
        name : str
            The name of an instruction that has run in the innermost computation that has it.
        value : array_like
            Its new value, of the instruction's shape.

        Raises
        ------
        ArgumentError
            The value does not have the shape of the instruction, or the instruction has not run.
        """
        depth, instruction = self.found(name)
        self.held(depth, instruction)
        self._timeline.change(depth, instruction, argument(f"%{instruction.name}", instruction.shape, value))
        if self.devices > 1:
            self._replay(self.times)

    def _replay(self, times: Sequence[int]) -> None:
        """Runs all devices from the beginning to these times, or as far as they come."""
        for timeline in self._timelines:
            timeline.restart()
        self._hub.reset()
        moved = True
        while moved:
            moved = False
            for timeline, time in zip(self._timelines, times, strict=True):
                while timeline.time < time and not timeline.machine.is_finished:
                    try:
                        timeline.advance()
                        moved = True
                    except Blocked:
                        break
