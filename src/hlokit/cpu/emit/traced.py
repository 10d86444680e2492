"""The program with something done round each step: its time noted, or a function called that may look at memory.

The kernels are the program's own; only the functions that call them are written anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.compiler import Program
from hlokit.cpu.emit.entry import EntryWriter, Written, finished, is_tight
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.steps import ConditionalStep, HostStep, Step, WhileStep
from hlokit.cpu.target import Target

HEADER, TOTAL, EVENT = 32, 16, 24
"""Bytes of a log's parts: (capacity, events seen, address of the events, unused), then for each step (nanoseconds,
runs); elsewhere for each event (step, start, end)."""


@dataclass(frozen=True)
class Traced:
    """The text, and what its numbers mean.

    steps   by number, and the innermost loops and branches round each
    hosts   the steps of the reference, by their own number
    extra   pointers that its table of pointers has after the program's
    """

    text: str
    steps: list[Step]
    around: list[tuple[Step, ...]]
    hosts: list[HostStep]
    extra: int


def timed(program: Program, target: Target) -> Traced:
    """Notes the time of each step in the log that the last pointer points to. A tight loop is one step."""
    return _traced(program, _Timed, _LOG.replace("$CLOCK", "6" if "darwin" in target.triple else "1"), 1)


def watched(program: Program) -> Traced:
    """Calls `i32 (ptr context, i64 number, ptr table)` before step k (number 2k) and after it (2k + 1).

    The last two pointers are the function and its context; the table holds what the step reads, then what it writes.
    Something else than 0 ends the program.
    """
    return _traced(program, _Watched, "", 2)


def _traced(program: Program, kind: type[_Traced], more: str, extra: int) -> Traced:
    module = Module()
    own = program.written.module
    module.globals |= own.globals
    module.called |= own.called
    module.functions |= {name: text for name, text in own.functions.items() if not name.startswith("hlokit_")}
    written = Written(module)
    counts = (len(program.arguments), len(program.results), len(program.constants))
    writer = kind(written, program.assignment, program.prepared, counts)
    writer.steps, writer.around = [], []
    writer.entry(program.block)
    return Traced(finished(written, calls_python=True) + more, writer.steps, writer.around, written.hosts, extra)


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

    def is_whole(self, step: Step) -> bool:
        return not isinstance(step, (WhileStep, ConditionalStep))

    def round(self, fn: Function, step: Step, number: int) -> None:
        raise NotImplementedError


class _Timed(_Traced):
    def is_whole(self, step: Step) -> bool:
        return super().is_whole(step) or (isinstance(step, WhileStep) and is_tight(step))

    def round(self, fn: Function, step: Step, number: int) -> None:
        start = fn.let("call i64 @hlokit_now()")
        self.step(fn, step)
        end = fn.let("call i64 @hlokit_now()")
        log = self._base(fn, self.host + 2)
        fn.do(f"call void @hlokit_record(ptr {log}, i64 {number}, i64 {start}, i64 {end})")


class _Watched(_Traced):
    def round(self, fn: Function, step: Step, number: int) -> None:
        self._asked(fn, step, 2 * number)
        self.step(fn, step)
        self._asked(fn, step, 2 * number + 1)

    def _asked(self, fn: Function, step: Step, number: int) -> None:
        table = self._table(fn, touched(step))
        function, context = self._base(fn, self.host + 2), self._base(fn, self.host + 3)
        self._checked(fn, f"call i32 {function}(ptr {context}, i64 {number}, ptr {table})")


def touched(step: Step) -> tuple[Buffer, ...]:
    """The buffers whose addresses a watcher gets."""
    return (*step.reads, *step.writes)


_LOG = """
declare i32 @clock_gettime(i32, ptr)

define internal i64 @hlokit_now() {
  %time = alloca [2 x i64], align 8
  call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %large = mul i64 %seconds, 1000000000
  %now = add i64 %large, %rest
  ret i64 %now
}

; the log: capacity, events seen, a pointer to the events, unused; then a row for each step
define internal void @hlokit_record(ptr %log, i64 %step, i64 %start, i64 %end) {
entry:
  %row.at = mul i64 %step, 16
  %row.from = add i64 %row.at, 32
  %row = getelementptr i8, ptr %log, i64 %row.from
  %runs.at = getelementptr i8, ptr %row, i64 8
  %total = load i64, ptr %row
  %time = sub i64 %end, %start
  %total.next = add i64 %total, %time
  store i64 %total.next, ptr %row
  %runs = load i64, ptr %runs.at
  %runs.next = add i64 %runs, 1
  store i64 %runs.next, ptr %runs.at
  %seen.at = getelementptr i8, ptr %log, i64 8
  %capacity = load i64, ptr %log
  %seen = load i64, ptr %seen.at
  %seen.next = add i64 %seen, 1
  store i64 %seen.next, ptr %seen.at
  %fits = icmp ult i64 %seen, %capacity
  br i1 %fits, label %keep, label %done

keep:
  %events.at = getelementptr i8, ptr %log, i64 16
  %events = load ptr, ptr %events.at
  %event.at = mul i64 %seen, 24
  %event = getelementptr i8, ptr %events, i64 %event.at
  %event.start = getelementptr i8, ptr %event, i64 8
  %event.end = getelementptr i8, ptr %event, i64 16
  store i64 %step, ptr %event
  store i64 %start, ptr %event.start
  store i64 %end, ptr %event.end
  br label %done

done:
  ret void
}
"""
