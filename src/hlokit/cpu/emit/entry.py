"""The native entry: calls kernels in their order, with loops and branches inside. One call runs the whole program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from hlokit.cpu import costs
from hlokit.cpu.emit import joined
from hlokit.cpu.emit.estimates import duration, is_tight, step_work
from hlokit.cpu.emit.preparation import Prepared
from hlokit.cpu.jit.frames import OWN, deepest
from hlokit.cpu.kernels.linalg import LAPACK
from hlokit.cpu.kernels.routine import PHASE
from hlokit.cpu.llvm import I32, I64, POINTER, Function, Module, Pointer, Prototype, Value, While
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.buffers import Assignment, Home
from hlokit.cpu.lower.steps import (
    CallStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    PackStep,
    RoutineStep,
    Step,
    StepBlock,
    Subprogram,
    WhileStep,
)
from hlokit.types import dtype as dtypes

_CHAIN_CHUNKS = 32
"""The most chunks of a chain's batch indices."""
_PART = 48
"""Steps in a function: code generation is more than linear in a function's size."""
_POLL_NS = 20_000.0
"""Work between two questions for signals in a loop; each costs 20 ns."""
_LONG_NS = 1e6
"""Work of a row of steps after which to ask."""
_INTERRUPTIBLE_NS = 1e7
"""Work of a step from which on it can be interrupted midway, which takes some 25 us."""
_MOST_NS = 1e18
"""The most that is told of a step's work: it must fit an i64."""
_LITTLE = 1 << 13
"""Bytes of stack that every thread has left."""
_LIBRARY = 1 << 19
"""Bytes of stack for LAPACK."""
ENTRY = "hlokit_entry"
_WHOLE = Prototype("hlokit_whole", I32, {"bases": POINTER})
_PARALLEL = Prototype("hlokit_parallel", None, [POINTER, POINTER, POINTER, I64])
_INTERRUPTED = Prototype("hlokit_interrupted", I32, attributes="nounwind memory(inaccessiblemem: readwrite)")
_INTERRUPTIBLE = Prototype("hlokit_interruptible", I32, [POINTER, POINTER, POINTER, I64, I64])
_ON_STACK = Prototype("hlokit_on_stack", I32, [POINTER, POINTER, I64])
_HOLD, _GO_ON = Prototype("hlokit_hold", None), Prototype("hlokit_go_on", None)


@dataclass
class Written:
    """The program's LLVM text in the writing.

    hosts   the steps that call back into Python, by number
    kernels for each kernel function the steps that use it
    leaves  it has steps that can be interrupted midway
    parallel  it hands out chunks to the pool's threads
    """

    module: Module
    hosts: list[HostStep] = field(default_factory=list[HostStep])
    kernels: dict[str, list[Step]] = field(default_factory=dict[str, list[Step]])
    functions: int = 0
    leaves: bool = False
    parallel: bool = False


def finish(written: Written, interrupts: bool = True, calls_python: bool = False) -> None:
    """Completes the program's module.

    With `interrupts`, which stands for a process around it that has the functions of hlokit.runtime, an entry that
    takes more than a little stack runs on a thread of its own where its caller has less. Not if it calls Python: its
    caller has seen to that, since Python is to find itself on the caller's thread.
    """
    module = written.module
    needed = _stack(written) if interrupts and not (calls_python or written.hosts) else 0
    if written.leaves:
        module.surround(LAPACK, _HOLD, _GO_ON)  # so that nobody ends a routine of LAPACK midway
    if needed:
        module.rename(ENTRY, _WHOLE.name)
        fn = Function(ENTRY, [(POINTER, "bases")], I32, is_cold=True)
        fn.returns(fn.call(_ON_STACK, fn.address(_WHOLE), fn.pointer("bases"), needed))
        module.add(fn, exported=True)


def _stack(written: Written) -> int:
    """Bytes of stack that the entry takes; 0 for as little as any thread has."""
    functions = written.module.functions
    library = _LIBRARY if any(name.startswith(LAPACK) for name in written.module.external) else 0
    if not library and sum(definition.stack for definition in functions.values()) <= _LITTLE:
        return 0
    own = deepest(functions, ENTRY)
    return own + library + OWN if own > _LITTLE or library else 0


class EntryWriter:
    """Writes the functions that call the kernels.

    Each takes (ptr %bases, ptr %slots) and gives an i32: 0, or what a step of the reference gave. `bases` holds the
    pointers of arguments, results and constants, then the arena's, the pool's, the host function's and its context's.
    `interrupts`: long programs ask `i32 hlokit_interrupted()` now and then whether to stop.
    """

    chained = True
    extra = 0
    """Pointers after the host function's context."""

    def __init__(
        self,
        written: Written,
        assignment: Assignment,
        prepared: Mapping[Step, Prepared],
        counts: Sequence[int],
        interrupts: bool = True,
    ) -> None:
        self.written = written
        self._place(assignment, counts)
        self.prepared = prepared
        self._tables: dict[str, Pointer] = {}
        self._tight = False
        self.interrupts = interrupts

    def entry(self, block: StepBlock) -> None:
        """`i32 @hlokit_entry(ptr %bases)`."""
        self._whole(ENTRY, block, exported=True)

    def subprogram(self, subprogram: Subprogram) -> None:
        """A function like the entry; what it takes as arguments has the constants that it reads."""
        assert subprogram.assignment is not None
        writer = copy(self)
        writer._place(subprogram.assignment, (len(subprogram.arguments), len(subprogram.results), 0))
        writer._whole(subprogram.name, subprogram.block)

    def _place(self, assignment: Assignment, counts: Sequence[int]) -> None:
        self.assignment = assignment
        arguments, results, constants = counts
        self.starts = {"argument": 0, "result": arguments, "constant": arguments + results}
        self.arena = arguments + results + constants
        self.host = self.arena + 2

    def _whole(self, name: str, block: StepBlock, exported: bool = False) -> None:
        fn = Function(name, [(POINTER, "bases")], I32, is_cold=True)
        fn.alloca(POINTER, max(1, len(self.assignment.slots)), 8, name="%slots")
        slots = fn.pointer("slots", POINTER)
        for number, home in enumerate(self.assignment.slots):
            slots[number].store(self._fixed(fn, home))
        self._steps(fn, block)
        for number, home in enumerate(self.assignment.slots):
            if home.result is not None:  # a loop's last value may lie in the other place
                last, wanted = slots[number].load_pointer(), self._fixed(fn, home)
                with fn.when(last.ne(wanted)):
                    fn.memcpy(wanted, last, home.nbytes)
        fn.returns(0)
        self.written.module.add(fn, exported=exported)
        self._tables.pop(name, None)

    def block(self, block: StepBlock) -> Prototype[Value]:
        """A function that runs the steps."""
        fn, prototype = self._function()
        self._steps(fn, block)
        self._finished(fn)
        return prototype

    def _steps(self, fn: Function, block: StepBlock) -> None:
        steps = block.steps
        if len(steps) > _PART:
            for k in range(0, len(steps), _PART):
                self._call(fn, self.block(StepBlock(steps[k : k + _PART], chains=block.chains)))
            return
        since = 0.0
        chains = {chain[0]: chain for chain in block.chains if set(chain) <= set(steps) and self.is_chained(chain)}
        inside = {step for chain in chains.values() for step in chain}
        for step in steps:
            if step in chains:
                self.chain(fn, chains[step])
            elif step not in inside:
                self.step(fn, step)
            since += step_work(step)
            if since > _LONG_NS:
                self._poll(fn)
                since = 0.0

    def _function(self, kind: str = "block") -> tuple[Function, Prototype[Value]]:
        self.written.functions += 1
        inline = "alwaysinline" if self._tight and kind == "block" else ""
        prototype = Prototype(f"hlokit_{kind}{self.written.functions}", I32, {"bases": POINTER, "slots": POINTER})
        fn = Function.of(prototype, inline)
        fn.is_cold = not self._tight
        return fn, prototype

    def _finished(self, fn: Function) -> None:
        fn.returns(0)
        self.written.module.add(fn)
        self._tables.pop(fn.name, None)

    def _call(self, fn: Function, block: Prototype[Value]) -> None:
        self._checked(fn, fn.call(block, fn.pointer("bases"), fn.pointer("slots")))

    def _checked(self, fn: Function, status: Value) -> None:
        """A call's status, which ends everything if it is not 0."""
        with fn.when(status.ne(0)):
            fn.returns(status)

    # -- chains

    def is_chained(self, chain: Sequence[Step]) -> bool:
        """Whether the steps' chunks are as they were to be."""
        first, loops, last = (self.prepared.get(step) for step in chain)
        if first is None or loops is None or last is None:
            return False
        groups = first.groups if self.chained else 0
        return groups > 1 and last.groups == groups and loops.phases[0][1] == groups

    def chain(self, fn: Function, chain: Sequence[Step]) -> None:
        """All steps of the chain for one batch index, then for the next."""
        prepared = [self.prepared[step] for step in chain]
        groups = prepared[0].groups
        each = max(1, groups // _CHAIN_CHUNKS)
        self.written.functions += 1
        inner = Function(f"hlokit_chain{self.written.functions}", PHASE, is_cold=True)
        low, high = (inner.argument(name) * each for name in ("begin", "end"))
        with inner.loop(low, high.smin(groups)) as group:
            start = 0
            for one, step in zip(prepared, chain, strict=True):
                ((name, chunks),) = one.phases
                self.written.kernels.setdefault(name, []).append(step)
                table = inner.pointer("table", POINTER)[start]
                first = group.index * (chunks // groups)
                inner.call(name, table, first, first + chunks // groups)
                start += len(one.table)
        inner.returns()
        self.written.module.add(inner)
        table = self._table(fn, [buffer for one in prepared for buffer in one.table])  # of whole buffers: chains.py
        chunks = -(-groups // each)
        self._run(fn, inner.name, table, chunks, sum(map(duration, chain)))

    # -- steps

    def step(self, fn: Function, step: Step) -> None:
        if isinstance(step, (KernelStep, RoutineStep, PackStep)):
            self.kernel(fn, step)
        elif isinstance(step, CopyStep):
            self.copy(fn, step)
        elif isinstance(step, HostStep):
            self.host_call(fn, step)
        elif isinstance(step, WhileStep) and is_tight(step) and not self._tight:
            self._tight = True
            inner, prototype = self._function("loop")
            self.loop(inner, step)
            self._finished(inner)
            self._tight = False
            self._call(fn, prototype)
        elif isinstance(step, WhileStep):
            self.loop(fn, step)
        elif isinstance(step, ConditionalStep):
            self.conditional(fn, step)
        elif isinstance(step, CallStep):
            self.call(fn, step)
        else:
            raise AssertionError(f"no code for {type(step).__name__}")

    def kernel(self, fn: Function, step: Step) -> None:
        prepared = self.prepared[step]
        table = self._table(fn, prepared.table, starts=prepared.starts)
        for name, chunks in prepared.phases:
            self.written.kernels.setdefault(name, []).append(step)
            if chunks > 1 and isinstance(step, KernelStep) and step.loops.parted is not None:
                self.written.functions += 1
                kernel, name = name, f"hlokit_joined{self.written.functions}"
                self.written.module.add(joined.written(name, kernel, chunks))
                job, calls = joined.job(fn, self._base(fn, self.arena + 1), table, chunks)
                self._run(fn, name, job, calls, duration(step))
            else:
                self._run(fn, name, table, chunks, duration(step), len(prepared.phases))

    def _run(
        self, fn: Function, name: str, table: Pointer, chunks: int | Value, longest: float, phases: int = 1
    ) -> None:
        """Calls a kernel's function for all its chunks, as one phase of a step; of a long step so that it can be
        interrupted."""
        pool = self._base(fn, self.arena + 1) if chunks != 1 else fn.null()
        self.written.parallel |= chunks != 1
        if self.interrupts and longest > _INTERRUPTIBLE_NS:
            self.written.leaves = True
            share = round(min(longest, _MOST_NS) / phases)
            self._checked(fn, fn.call(_INTERRUPTIBLE, pool, fn.function(name), table, chunks, share))
        elif chunks == 1:
            fn.call(name, table, fn.index(0), fn.index(1))
        else:
            fn.call(_PARALLEL, pool, fn.function(name), table, chunks)

    def copy(self, fn: Function, step: CopyStep) -> None:
        source, result = step.reads[0], step.writes[0]
        if self.assignment.homes[source] is self.assignment.homes[result] or not result.nbytes:
            return
        if result.nbytes >= 2 * costs.COPY_CHUNK_BYTES:
            table = self._table(fn, (result, source))
            name, chunks = self._copier(result.nbytes)
            self._run(fn, name, table, chunks, duration(step))
            return
        fn.memcpy(self.pointer(fn, result), self.pointer(fn, source), result.nbytes)

    def _copier(self, nbytes: int) -> tuple[str, int]:
        """A kernel that copies so many bytes to the table's first array from its second; how many chunks it has."""
        chunk = max(costs.COPY_CHUNK_BYTES, -(-nbytes // (16 << 12)) << 12)
        name = f"copy{nbytes}"
        fn = Function(name, [("ptr noalias readonly", "table"), (I64, "begin"), (I64, "end")], is_cold=True)
        low, high = (fn.index_argument(end) * chunk for end in ("begin", "end"))
        table = fn.pointer("table", POINTER)
        result, source = table.load_pointer(), table[1].load_pointer()
        fn.memcpy(result + low, source + low, high.smin(nbytes) - low)
        fn.returns()
        self.written.module.add(fn)
        return name, -(-nbytes // chunk)

    def host_call(self, fn: Function, step: HostStep) -> None:
        number = len(self.written.hosts)
        self.written.hosts.append(step)
        table = self._table(fn, (*step.reads, *step.writes))
        function, context = self._base(fn, self.host), self._base(fn, self.host + 1)
        self._checked(fn, function.call(I32, context, fn.index(number), table))

    def loop(self, fn: Function, step: WhileStep) -> None:
        condition, body = self.block(step.condition), self.block(step.body)
        counter = fn.local(I64)
        counter.store(0)
        loop = While(fn, [])
        self._call(fn, condition)
        loop.test(self.pointer(fn, step.predicate).load().ne(0))
        self._call(fn, body)
        slots = fn.pointer("slots", POINTER)
        for current, following in step.carries:
            one, two = self.assignment.homes[current], self.assignment.homes[following]
            if one is not two:
                assert one.slot is not None and two.slot is not None
                places = slots[one.slot], slots[two.slot]
                a, b = (place.load_pointer() for place in places)
                places[0].store(b)
                places[1].store(a)
        self._poll_sometimes(fn, counter, step_work(step))
        loop.again()

    def _poll_sometimes(self, fn: Function, counter: Pointer, each: float) -> None:
        """At a loop's end: every so many passes looks for signals."""
        period = 1
        while period < 4096 and period * max(each, 1.0) < _POLL_NS:
            period *= 2
        passes = counter.load() + 1
        counter.store(passes)
        with fn.when((passes & (period - 1)).eq(0)):
            self._poll(fn)

    def _poll(self, fn: Function) -> None:
        """Leaves the program if a signal's handler has raised an exception."""
        if self.interrupts:
            self._checked(fn, fn.call(_INTERRUPTED))

    def conditional(self, fn: Function, step: ConditionalStep) -> None:
        selector = step.reads[0]
        branches = [self.block(branch) for branch in step.branches]
        if selector.dtype is dtypes.pred:
            flag = self.pointer(fn, selector).load()
            number = flag.ne(0).select(fn.constant(0, I32), 1)
        else:
            number = self.pointer(fn, selector).to(I32).load()
        labels = [fn.new_block("branch") for _ in branches]
        after = fn.new_block("joined")
        fn.switch(number, dict(enumerate(labels[:-1])), labels[-1])
        for label, branch in zip(labels, branches, strict=True):
            fn.start(label)
            self._call(fn, branch)
            fn.jump(after)
        fn.start(after)

    def call(self, fn: Function, step: CallStep) -> None:
        bases = self._table(fn, (*step.reads, *step.writes), 4 + self.extra)
        start = len(step.reads) + len(step.writes)
        rest = [fn.null() if step.scratch is None else self.pointer(fn, step.scratch)]
        rest += [self._base(fn, self.arena + 1 + k) for k in range(3 + self.extra)]  # the pool, the host function, ...
        for k, pointer in enumerate(rest, start):
            fn.element_once(bases, k).store(pointer)
        self._checked(fn, fn.call(Prototype(step.subprogram.name, I32, [POINTER]), bases))

    # -- pointers

    def _table(
        self, fn: Function, buffers: Sequence[Buffer], more: int = 0, starts: Mapping[int, int] | None = None
    ) -> Pointer:
        """The buffers' pointers in memory, of some from a byte on, and room for some more."""
        table = self._tables.get(fn.name)
        if table is None:
            table = self._tables[fn.name] = fn.local(POINTER, 64, 64)
        if len(buffers) + more > 64:
            table = fn.local(POINTER, len(buffers) + more, 64)
        for k, buffer in enumerate(buffers):
            pointer = self.pointer(fn, buffer)
            start = starts.get(k, 0) if starts else 0
            fn.element_once(table, k).store(pointer[start] if start else pointer)
        return table

    def pointer(self, fn: Function, buffer: Buffer) -> Pointer:
        home = self.assignment.homes[buffer]
        if home.slot is not None:
            return fn.element_once(fn.pointer("slots", POINTER), home.slot).load_pointer()
        return self._fixed(fn, home)

    def _fixed(self, fn: Function, home: Home) -> Pointer:
        if home.kind == "arena":
            return fn.element_once(self._base(fn, self.arena), home.offset)
        return self._base(fn, self.starts[home.kind] + home.offset)

    def _base(self, fn: Function, number: int) -> Pointer:
        return fn.invariant_pointer(fn.pointer("bases", POINTER), number)
