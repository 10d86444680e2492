"""The program with code around each step: it reads the clock, or calls a function that may inspect memory.

The kernels are the program's own; only the functions that call them are written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.compiler import Program
from hlokit.cpu.emit.entry import EntryWriter, Written, finish
from hlokit.cpu.emit.estimates import is_tight
from hlokit.cpu.jit.libc import monotonic_ns
from hlokit.cpu.llvm import I32, I64, POINTER, Field, Function, Module, Prototype, Record
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.steps import CallStep, ConditionalStep, HostStep, Step, Subprogram, WhileStep
from hlokit.cpu.target import Target


@dataclass(frozen=True)
class Traced:
    """The module, and what its numbers mean.

    steps   by number, and the innermost loops and branches round each; of a subprogram's steps its first call
    hosts   the steps of the reference, by their own number
    extra   pointers that its table of pointers has after the program's
    """

    module: Module
    steps: list[Step]
    around: list[tuple[Step, ...]]
    hosts: list[HostStep]
    extra: int


def timed(program: Program, target: Target) -> Traced:
    """Notes the time of each step in the log that the last pointer points to. A tight loop is one step."""
    return _traced(program, _Timed, (_now(target), _record()), 1)


def watched(program: Program) -> Traced:
    """Calls `i32 (ptr context, i64 number, ptr table)` before step k (number 2k) and after it (2k + 1).

    The last two pointers are the function and its context; the table holds what the step reads, then what it writes.
    Something else than 0 ends the program.
    """
    return _traced(program, _Watched, (), 2)


def _traced(program: Program, kind: type[_Traced], more: Sequence[Function], extra: int) -> Traced:
    module = Module()
    own = program.written.module
    module.globals |= own.globals
    module.called |= own.called
    waiting = [name for name in own.functions if not name.startswith("hlokit_")]
    while waiting:  # with the functions that they call, whatever their names
        name = waiting.pop(0)
        if name not in module.functions:
            module.functions[name] = own.functions[name]
            waiting += [called for called in own.functions[name].symbols if called in own.functions]
    written = Written(module)
    counts = (len(program.arguments), len(program.results), len(program.constants))
    writer = kind(written, program.assignment, program.prepared, counts)
    writer.steps, writer.around, writer.extra = [], [], extra
    for subprogram in program.subprograms:
        writer.subprogram(subprogram)
    writer.entry(program.block)
    for function in more:
        module.add(function)
    finish(written, calls_python=True)
    return Traced(module, writer.steps, writer.around, written.hosts, extra)


class _Traced(EntryWriter):
    chained = False  # each step is seen alone
    steps: list[Step]
    around: list[tuple[Step, ...]]
    _open: tuple[Step, ...] = ()
    _inside = False

    def step(self, fn: Function, step: Step) -> None:
        if self._inside:
            super().step(fn, step)
        elif self.is_whole(step):
            number = len(self.steps)
            self.steps.append(step)
            self.around.append(self._open)
            self._inside = True
            self.round(fn, step, number)
            self._inside = False
        else:
            before, self._open = self._open, (*self._open, step)
            super().step(fn, step)
            self._open = before

    def subprogram(self, subprogram: Subprogram) -> None:
        self._open = tuple(subprogram.calls[:1])
        super().subprogram(subprogram)
        self._open = ()

    def is_whole(self, step: Step) -> bool:
        return not isinstance(step, (WhileStep, ConditionalStep, CallStep))

    def round(self, fn: Function, step: Step, number: int) -> None:
        raise NotImplementedError


class _Timed(_Traced):
    def is_whole(self, step: Step) -> bool:
        return super().is_whole(step) or (isinstance(step, WhileStep) and is_tight(step))

    def round(self, fn: Function, step: Step, number: int) -> None:
        start = fn.call(_NOW)
        self.step(fn, step)
        fn.call(_RECORD, self._base(fn, self.host + 2), number, start, fn.call(_NOW))


class _Watched(_Traced):
    def round(self, fn: Function, step: Step, number: int) -> None:
        self._asked(fn, step, 2 * number)
        self.step(fn, step)
        self._asked(fn, step, 2 * number + 1)

    def _asked(self, fn: Function, step: Step, number: int) -> None:
        table = self._table(fn, touched(step))
        function, context = self._base(fn, self.host + 2), self._base(fn, self.host + 3)
        self._checked(fn, function.call(I32, context, fn.index(number), table))


def touched(step: Step) -> tuple[Buffer, ...]:
    """The buffers whose addresses a watcher gets."""
    return (*step.reads, *step.writes)


_NOW = Prototype("hlokit_now", I64)
_RECORD = Prototype("hlokit_record", None, {"log": POINTER, "step": I64, "start": I64, "end": I64})
_ROW = Record("Row", {"nanoseconds": I64, "runs": I64})
_EVENT = Record("Event", {"step": I64, "start": I64, "end": I64})
_LOG = Record("Log", {"capacity": I64, "seen": I64, "events": POINTER, "unused": I64, "rows": Field(_ROW, 0)})
"""A log: `rows` has one for each step, `events` points to one for each run of one, as far as they fit."""
HEADER, TOTAL, EVENT = _LOG.bytes, _ROW.bytes, _EVENT.bytes


def _now(target: Target) -> Function:
    f = Function.of(_NOW)
    f.returns(monotonic_ns(f, target))
    return f


def _record() -> Function:
    """Notes one run of a step."""
    f = Function.of(_RECORD)
    log, step, start, end = f.pointer("log", _LOG), f.argument("step"), f.argument("start"), f.argument("end")
    row = log["rows"][step]
    row["nanoseconds"].store(row["nanoseconds"].load() + (end - start))
    row["runs"].store(row["runs"].load() + 1)
    seen = log["seen"].load()
    log["seen"].store(seen + 1)
    with f.when(seen.compare("ult", log["capacity"].load())):
        event = log["events"].load_pointer(_EVENT)[seen]
        event["step"].store(step)
        event["start"].store(start)
        event["end"].store(end)
    f.returns()
    return f
