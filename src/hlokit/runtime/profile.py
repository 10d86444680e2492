"""Profile: the time of each step of a program, and how close it is to the machine's limits."""

from __future__ import annotations

import ctypes
import io
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.analysis.cost import cost_of_module
from hlokit.cpu.emit.traced import EVENT, HEADER, TOTAL, Traced, timed
from hlokit.cpu.lower.portion import inner_blocks, portions
from hlokit.cpu.lower.steps import CopyStep, HostStep, KernelStep, PackStep, RoutineStep, Step, WhileStep
from hlokit.errors import HlokitError
from hlokit.forms.cost import Cost
from hlokit.hlo.sources import source_lines
from hlokit.runtime.instrumented import twin
from hlokit.runtime.limits import Limits, limits_for

if TYPE_CHECKING:
    from hlokit.runtime.executable import Executable

_LONG = 1e-4
"""Seconds of a step whose rate says something of the machine."""
_EVENTS = 20_000
"""Runs of steps that a call's trace holds; of more only the sums are known."""


@dataclass(frozen=True)
class StepProfile:
    """One step of a profile.

    Attributes
    ----------
    name : str
        Its name.
    kind : str
        "kernel", "routine", "copy", "reference" or "loop" (a small one).
    instructions : tuple of str
        The names of all instructions that it computes.
    around : tuple of str
        The names of the loops and conditionals around it, outermost first; if several calls share the step, those of
        the first call.
    seconds : float
        The time that a call of the program spends in it, the median over the calls.
    runs : int
        The number of times that a call runs it.
    bytes : int
        The bytes that one run must read and write.
    flops, transcendentals : float
        The operations that its instructions require.
    source : str
        The line of the user's program that its result comes from, "file:line"; empty if the module does not say.
    """

    name: str
    kind: str
    instructions: tuple[str, ...]
    around: tuple[str, ...]
    seconds: float
    runs: int
    bytes: int
    flops: float
    transcendentals: float
    source: str = ""

    @property
    def bytes_per_second(self) -> float:
        """The bytes that the step reads and writes in a second."""
        return self.bytes * self.runs / self.seconds if self.seconds else 0.0

    @property
    def flops_per_second(self) -> float:
        """The floating-point operations that the step does in a second."""
        return self.flops * self.runs / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Profile:
    """A profile of calls on the same arguments. str() is a table, the slowest steps first.

    Attributes
    ----------
    program : str
        The program's name.
    steps : list of StepProfile
        The steps, each with its time, bytes and operations.
    total : float
        The median time of a call in seconds.
    traced : float
        The median time of a call in which the clock is read around each step.
    limits : Limits
        The memory bandwidth and the arithmetic performance that the machine reaches.
    threads : int
        The number of threads of a call.
    events : list of (int, int, int)
        For each step of the last call its number, start and end in nanoseconds.
    lost : int
        The number of events for which there was no room.
    """

    program: str
    steps: list[StepProfile]
    total: float
    traced: float
    limits: Limits
    threads: int
    events: list[tuple[int, int, int]] = field(repr=False)
    lost: int = 0

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return import_module("hlokit.view.notebook").profile_html(self)

    def table(self, rows: int = 40) -> str:
        """A table of the steps that take the most time, with the share of the machine's limits that they reach.

        Parameters
        ----------
        rows : int, optional
            The number of steps that are shown.

        Returns
        -------
        str
            Text: a title, a line for each step, and the limits.
        """
        times = f"{time_text(self.total)} a call, {time_text(self.traced)} timed step by step"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        title = f"{self.program}: {times}, {threads}"
        return table_of([("", step) for step in self.steps], rows, title, self.limits)

    def trace(self) -> dict[str, Any]:
        """The last call in the Trace Event Format, which Perfetto and chrome://tracing read.

        Returns
        -------
        dict
            Values that `json.dumps` takes; times are in microseconds.
        """
        start = min((begun for _, begun, _ in self.events), default=0)
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": self.program}},
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "steps"}},
        ]
        for number, begun, ended in self.events:
            step = self.steps[number]
            seconds = (ended - begun) * 1e-9
            events.append({
                "ph": "X", "pid": 1, "tid": 1, "cat": step.kind, "name": step.name,
                "ts": (begun - start) * 1e-3, "dur": (ended - begun) * 1e-3,
                "args": {
                    "instructions": " ".join(step.instructions), "bytes": step.bytes, "flops": step.flops,
                    "source": step.source,
                    "GB/s": round(step.bytes / seconds * 1e-9, 3) if seconds else 0,
                },
            })  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"lost events": self.lost}}

    def save(self, path: str | Path) -> None:
        """Writes the trace as JSON.

        Parameters
        ----------
        path : str or Path
            The file; it is overwritten.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        Path(path).write_text(json.dumps(self.trace()), encoding="utf-8")


def table_of(
    named: Sequence[tuple[str, StepProfile]], rows: int, title: str | None = None, machine: Limits | None = None
) -> str:
    """A table of the steps that take the most time, with the names of their programs, if they have any.

    machine   the limits to compare with; None: this machine's
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    machine = machine or limits_of([step for _, step in named])
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    has_names = any(name for name, _ in named)
    if has_names:
        table.add_column("program", overflow="fold", max_width=30)
    table.add_column("step", overflow="fold", max_width=44)
    for name in ("time", "share", "runs", "GB/s", "of limit", "GF/s", "of peak"):
        table.add_column(name, justify="right")
    has_sources = any(step.source for _, step in named)
    if has_sources:
        table.add_column("line", overflow="fold", max_width=40)
    steps = sorted(((n, s) for n, s in named if s.bytes or s.kind != "copy"), key=lambda pair: -pair[1].seconds)
    whole = sum(step.seconds for _, step in steps) or 1.0
    for name, step in steps[:rows]:
        line = [step.source.removeprefix(f"{os.getcwd()}{os.sep}")]
        table.add_row(*filter(None, [name]), *_row(step, whole, machine), *line * has_sources)
    if len(steps) > rows:
        rest = time_text(sum(step.seconds for _, step in steps[rows:]))
        table.add_row(*[""] * has_names, f"... {len(steps) - rows} more", rest)
    out = io.StringIO()
    Console(file=out, width=120 + 30 * has_names + 42 * has_sources).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    lines.append(
        f"limits: {machine.memory / 1e9:.0f} GB/s memory, {machine.cached / 1e9:.0f} GB/s within caches, "
        f"{machine.flops / 1e9:.0f} GF/s in f32"
    )
    return "\n".join(lines) + "\n"


def _row(step: StepProfile, whole: float, machine: Limits) -> list[str]:
    label = " > ".join((*step.around, step.name)) + ("" if step.kind == "kernel" else f" ({step.kind})")
    moved, done = step.bytes_per_second, step.flops_per_second
    return [
        label,
        time_text(step.seconds),
        f"{step.seconds / whole:.0%}",
        str(step.runs),
        f"{moved / 1e9:.1f}",
        f"{moved / machine.bandwidth(step.bytes):.0%}",
        f"{done / 1e9:.2f}" if done else "-",
        f"{done / machine.flops:.0%}" if done else "-",
    ]


def time_text(seconds: float) -> str:
    """A time in seconds, milliseconds or microseconds."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3f} {unit}"
    return f"{seconds * 1e6:.2f} us"


def profile(executable: Executable, args: Sequence[Any], repeat: int, options: dict[str, Any]) -> Profile:
    """Calls the program `repeat` times as it is, and as often with its steps timed."""
    if repeat < 1:
        raise HlokitError(f"profile: repeat={repeat}, expected at least 1")
    traced = timed(executable.program, executable.target)
    log = StepLog(len(traced.steps), _EVENTS)
    watched = twin(executable, traced, (log.address,), log)
    totals: list[float] = []
    timings: list[float] = []
    sums: list[np.ndarray[Any, Any]] = []
    for number in range(repeat + 1):  # the first run of each is to warm up
        start = time.perf_counter()
        executable(*args, **options)
        middle = time.perf_counter()
        log.clear()
        watched(*args, **options)
        if number:
            totals.append(middle - start)
            timings.append(time.perf_counter() - middle)
            sums.append(log.sums())
    each = np.median(np.stack([s[:, 0] for s in sums]), axis=0) * 1e-9 if sums[0].size else np.zeros(0)
    steps = step_profiles(executable, traced, each, sums[-1][:, 1])
    events, lost = log.events()
    total, by_step = statistics.median(totals), statistics.median(timings)
    workers = executable.workers
    return Profile(executable.source.name, steps, total, by_step, limits_of(steps), workers, events, lost)


def limits_of(steps: Sequence[StepProfile]) -> Limits:
    """The machine's limits, which none of the steps exceeds in operations of f32."""
    return limits_for(max((step.flops_per_second for step in steps if step.seconds > _LONG), default=0.0))


def step_profiles(
    executable: Executable, traced: Traced, seconds: np.ndarray[Any, Any], runs: np.ndarray[Any, Any]
) -> list[StepProfile]:
    """The steps of a timed program, each with its time and its runs."""
    costs: dict[Step, tuple[Cost, tuple[str, ...]]] = {
        step: (cost_of_module(part.module), tuple(part.fused))
        for block, _ in executable.program.blocks
        for step, part in portions(block)
    }
    found: list[StepProfile] = []
    for number, step in enumerate(traced.steps):
        cost, names = costs.get(step, (Cost(), tuple(i.name for i in step.instructions)))
        around = tuple(outer.name for outer in traced.around[number])
        moved = _moved(step)
        if isinstance(step, WhileStep):
            names = tuple(n for b in inner_blocks(step) for s in b.steps for n in costs.get(s, (Cost(), ()))[1])
        found.append(
            StepProfile(
                step.name, _kind(step), names, around, float(seconds[number]), int(runs[number]), moved,
                float(cost.flops), float(cost.transcendentals), _source(step),
            )
        )  # fmt: skip
    return found


def _source(step: Step) -> str:
    """The line of the instruction that the step is called after, else of another one that it computes."""
    for instruction in sorted(step.instructions, key=lambda i: i.name != step.name):
        for place in source_lines(instruction):
            return f"{place.file}:{place.line}"
    return ""


def _kind(step: Step) -> str:
    return next(name for kind, name in _KINDS.items() if isinstance(step, kind))


_KINDS: dict[type[Step], str] = {
    KernelStep: "kernel",
    RoutineStep: "routine",
    CopyStep: "copy",
    HostStep: "reference",
    PackStep: "packing",
    WhileStep: "loop",
}


def _moved(step: Step) -> int:
    """Bytes that a run has to move: of arrays of which only some elements are touched, those alone."""
    if isinstance(step, CopyStep):
        return 0 if step.vanished else 2 * step.writes[0].nbytes
    if isinstance(step, KernelStep):
        return kernel_bytes(step)
    return step.nbytes


def kernel_bytes(step: KernelStep) -> int:
    """Bytes that a kernel's loads and stores reach: at most each array whole, and as many elements as are accessed."""
    from hlokit.cpu.loops.expr import affine_deps, reachable

    loops = step.loops
    extents = {axis.bit: axis.extent for axis in loops.order}
    roots = [r for s in loops.stores for r in (s.node, *s.guards)]
    nodes = reachable(roots)
    for node in nodes:
        if node.op == "fold":
            extents |= {axis.bit: axis.extent for axis in node.data.bound}

    def reached(deps: int) -> int:
        count = 1
        for bit, extent in extents.items():
            count *= extent if deps & bit else 1
        return count

    read: dict[Any, int] = {}
    written: dict[Any, int] = {}
    for node in nodes:
        if node.op in ("load", "current"):
            buffer, affine = node.data[:2]
            read[buffer] = min(buffer.size, read.get(buffer, 0) + reached(affine_deps(affine)))
    for store in loops.stores:
        written[store.buffer] = min(store.buffer.size, written.get(store.buffer, 0) + reached(affine_deps(store.place)))
    return sum(n * b.dtype.numpy.itemsize for found in (read, written) for b, n in found.items())


class StepLog:
    """The memory that the timed code writes to: the sums of each step, and that many of the last call's events."""

    def __init__(self, steps: int, events: int) -> None:
        self.steps = steps
        self._events = np.zeros((events, EVENT // 8), np.int64)
        self._memory = np.zeros((HEADER + TOTAL * steps) // 8, np.int64)
        self._memory[0] = events
        self._memory[2] = self._events.ctypes.data
        self.address = int(self._memory.ctypes.data)

    def clear(self) -> None:
        ctypes.memset(self.address + HEADER, 0, TOTAL * self.steps)
        self._memory[1] = 0

    def sums(self) -> np.ndarray[Any, Any]:
        """(nanoseconds, runs) of each step."""
        return self._memory[HEADER // 8 :].reshape(-1, 2).copy()

    def events(self) -> tuple[list[tuple[int, int, int]], int]:
        """The events that were kept, and how many were not."""
        seen = int(self._memory[1])
        kept = self._events[: min(seen, len(self._events))].tolist()
        return [(int(a), int(b), int(c)) for a, b, c in kept], max(0, seen - len(self._events))


__all__ = ["Profile", "StepProfile", "profile"]
