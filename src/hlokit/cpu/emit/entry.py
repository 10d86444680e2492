"""The native entry: calls kernels in their order, with loops and branches inside. One call runs the whole program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from hlokit.analysis.cost import operations
from hlokit.cpu.emit import KernelWriter
from hlokit.cpu.emit.scalars import scalar_function
from hlokit.cpu.jit.frames import OWN, deepest, frame
from hlokit.cpu.kernels.contraction.denormals import flushing
from hlokit.cpu.kernels.epilogue import EpilogueWriter, fuse, suits
from hlokit.cpu.kernels.routine import KERNELS, PACKERS, PHASE, Call, Phase, Routine
from hlokit.cpu.llvm import SYMBOL, Function, Module
from hlokit.cpu.loops.expr import Buffer, reachable
from hlokit.cpu.lower.buffers import Assignment, Home
from hlokit.cpu.lower.chains import link
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.prepacked import hoist
from hlokit.cpu.lower.steps import (
    Block,
    ConditionalStep,
    CopyStep,
    Epilogue,
    HostStep,
    KernelStep,
    PackStep,
    RoutineStep,
    Step,
    WhileStep,
)
from hlokit.cpu.target import Target
from hlokit.types import dtype as dtypes

_COPY_CHUNK = 256 << 10
"""Bytes: copies of twice as many are shared among threads."""

_CHAIN_CHUNKS = 32
"""Of a chain's batch indices, at most."""
_PART = 48
"""Steps in a function: code generation is more than linear in a function's size."""
_TIGHT_NS = 3000.0
"""Work of a pass below which a loop is tight."""
_INLINED = 150
"""Lines of a kernel up to which it goes into a tight loop's function."""
_POLL_NS = 20_000.0
"""Work between two questions for signals in a loop; each costs 20 ns."""
_LONG_NS = 1e6
"""Work of a row of steps after which to ask."""
_INTERRUPTIBLE_NS = 1e7
"""Work of a step from which on it can be interrupted midway, which takes some 25 us."""
_MOST_NS = 1e18
"""The most that is told of a step's work: it must fit an i64."""


@dataclass
class Written:
    """The program's LLVM text in the writing.

    hosts   the steps that call back into Python, by number
    kernels for each kernel function the steps that use it
    polls   the code asks for signals
    leaves  it has steps that can be interrupted midway
    """

    module: Module
    hosts: list[HostStep] = field(default_factory=list[HostStep])
    kernels: dict[str, list[Step]] = field(default_factory=dict[str, list[Step]])
    functions: int = 0
    polls: bool = False
    leaves: bool = False


def work(block: Block) -> float:
    """Estimated nanoseconds of the block's steps on one thread; of a loop's steps those of one pass. Buffers are
    assigned: from then on nothing changes it."""
    if block.work is None:
        block.work = sum(map(_work, block.steps))
    return block.work


def _work(step: Step) -> float:
    if isinstance(step, KernelStep):
        return step.loops.work
    if isinstance(step, (RoutineStep, PackStep, CopyStep)):
        touched = sum(buffer.nbytes for buffer in (*step.reads, *step.writes))
        if isinstance(step, CopyStep):
            return 0.0 if step.vanished else 0.05 * touched
        return 100.0 + touched
    if isinstance(step, WhileStep):
        return work(step.condition) + work(step.body)
    if isinstance(step, ConditionalStep):
        return max(map(work, step.branches), default=0.0)
    return 1e5


def _longest(step: Step) -> float:
    """Nanoseconds that a kernel, routine or copy may take on one thread: where `work` is too low by far, as for what
    routines compute, for memory that no cache holds and for windows over padding, more."""
    touched = 0.05 * sum(buffer.nbytes for buffer in (*step.reads, *step.writes))
    if isinstance(step, KernelStep):
        nodes = reachable([store.node for store in step.loops.stores])
        is_masked = any(node.op == "fold" and node.data.valid is not None for node in nodes)
        return max(touched, (_MASKED if is_masked else 1) * step.loops.work)
    if isinstance(step, RoutineStep):
        instruction = step.instructions[0]
        types = {leaf.dtype.name for operand in instruction.operands for leaf in operand.shape.leaves()}
        is_fast = step.routine in _PRODUCTS and types <= _FAST
        return max(touched, operations(instruction) / (_FAST_RATE if is_fast else _RATE))
    return touched


_MASKED = 16
"""How many times longer a fold may take that leaves elements out by a mask."""
_PRODUCTS = ("dot", "convolution", "cholesky", "triangular-solve")
_FAST = {"f64", "f32", "f16", "bf16", "s8", "u8"}
_FAST_RATE, _RATE = 64.0, 24.0
"""Operations in a nanosecond: of the routines that multiply tiles of fast types, and of the rest."""


def is_tight(loop: WhileStep) -> bool:
    """Whether calls, pointers and tables would cost a loop more than its work: it is to be one function."""
    if loop.tight is None:
        inside = (*loop.condition.steps, *loop.body.steps)
        loop.tight = _work(loop) < _TIGHT_NS and all(map(_is_light, inside))
    return loop.tight


def _is_light(step: Step) -> bool:
    if isinstance(step, KernelStep):
        return step.loops.chunks == 1
    if isinstance(step, WhileStep):
        return is_tight(step)
    if isinstance(step, ConditionalStep):
        return all(_is_light(inner) for branch in step.branches for inner in branch.steps)
    return isinstance(step, CopyStep)


@dataclass(frozen=True)
class Prepared:
    """A step's functions with their chunks, what its table holds, and Phase.groups."""

    phases: tuple[tuple[str, int], ...]
    table: tuple[Buffer, ...]
    groups: int = 0


def prepare_routines(block: Block, context: Context, module: Module) -> dict[Step, Prepared]:
    """Writes the routines. One that does not take its case becomes a step of the reference."""
    found: dict[Step, Prepared] = {}
    preparation = _Preparation(context, module, found)
    fuse(block, context)
    hoist(block, context, preparation.call)
    link(block, context)
    preparation.block(block, kernels=False)
    return found


def prepare_kernels(block: Block, context: Context, module: Module, found: dict[Step, Prepared]) -> None:
    """Writes the kernels, to what is found already. After buffer assignment, which says what they do in place."""
    _Preparation(context, module, found).block(block, kernels=True)


class _Preparation:
    def __init__(self, context: Context, module: Module, found: dict[Step, Prepared]) -> None:
        self.context = context
        self.module = module
        self.found = found
        self.target: Target = context.target
        self.known: dict[tuple[Any, ...], tuple[Routine | None, tuple[tuple[str, int], ...]]] = {}

    def block(self, block: Block, kernels: bool, tight: bool = False) -> None:
        for step in list(block.steps):
            if isinstance(step, KernelStep):
                if kernels:
                    self.found[step] = self.kernel(step, tight)
            elif isinstance(step, RoutineStep):
                if not kernels:
                    k = block.steps.index(step)
                    block.steps[k : k + 1] = self.routine(step)
            elif isinstance(step, PackStep):
                if not kernels:
                    self.found[step] = self.pack(step)
            elif isinstance(step, WhileStep):
                inside = tight or (kernels and is_tight(step))
                self.block(step.condition, kernels, inside)
                self.block(step.body, kernels, inside)
            elif isinstance(step, ConditionalStep):
                for branch in step.branches:
                    self.block(branch, kernels, tight)

    def kernel(self, step: KernelStep, tight: bool) -> Prepared:
        """Equal kernels have equal text but for the name, which is made from it."""
        writer = KernelWriter(step.loops, "kernel", self.target)
        function = writer.write()
        if tight and len(function.lines) <= _INLINED:
            function.attributes = "alwaysinline"
        text = function.text()
        name = "k" + sha256(text.encode()).hexdigest()[:16]
        self.module.add_text(name, text.replace("@kernel(", f"@{name}(", 1))
        return Prepared(((name, step.loops.chunks),), tuple(writer.buffers))

    def routine(self, step: RoutineStep) -> list[Step]:
        """The step, ready to be called, or what takes its place."""
        instruction = step.instructions[0]
        module = Module()
        store = self.epilogue(step)
        if step.epilogue is not None and store is None:
            return self.unfused(step.epilogue)
        functions = {role: scalar_function(c, module, self.context) for role, c in step.functions.items()}
        more = {"packed": step.packed is not None, "by_batch": step.groups > 0}
        call = replace(self.call(step), functions=functions, store=store, **more)
        plain = (step.routine, call.op, call.operands, call.results, call.backend_config, call.packed, call.by_batch)
        if store is None and not functions and plain in self.known:
            routine, named = self.known[plain]
        else:
            routine = KERNELS[step.routine](call, module) if all(functions.values()) else None
            named = self.written(routine, module)
            if store is None and not functions:
                self.known[plain] = routine, named
        if routine is None and step.epilogue is not None:
            return self.unfused(step.epilogue)
        if routine is None:
            reason = f"{step.routine} has no machine code for this case"
            self.context.reasons.add(instruction.name, "not compiled", reason)
            return [HostStep(step.instructions, step.reads, step.writes, reason)]
        table = [*step.table, *step.writes]
        if routine.scratch:
            step.scratch = self.context.buffer(f"{instruction.name}.scratch", dtypes.u8[routine.scratch])
            table.append(step.scratch)
        if step.epilogue is not None and store is not None:
            nothing = step.writes[0]
            results = step.epilogue.routine.writes if step.epilogue.is_kept else (nothing,)
            table = [*step.table, *results, step.scratch or nothing, *store.buffers]
        groups = routine.phases[0].groups if len(routine.phases) == 1 else 0
        self.found[step] = Prepared(named, tuple(table), groups)
        return [step]

    def written(self, routine: Routine | None, module: Module) -> tuple[tuple[str, int], ...]:
        """Its phases, in the program's module."""
        if routine is None:
            return ()
        phases = routine.phases
        if routine.flushes:
            for phase in phases:
                flushing(phase.function, module, self.target)
        return self.taken(module, phases)

    def call(self, step: RoutineStep | PackStep) -> Call:
        """What its routine is asked for, without functions and epilogue."""
        instruction = step.instructions[0]
        return Call(
            instruction.op,
            tuple(leaf for o in instruction.operands for leaf in o.shape.leaves() if leaf.is_array),
            tuple(leaf for leaf in instruction.shape.leaves() if leaf.is_array),
            self.target,
            computations=dict(step.functions) if isinstance(step, RoutineStep) else {},
            strict=self.context.strict,
            backend_config=instruction.extra.backend_config if instruction.extra is not None else "",
        )

    def pack(self, step: PackStep) -> Prepared:
        """The function that lays out an operand."""
        module, call = Module(), self.call(step)
        packing = PACKERS[step.routine](call, module)
        assert packing is not None
        named = self.taken(module, (packing.write(),))
        return Prepared(named, (*(step.reads * len(call.operands)), *step.writes))

    def taken(self, module: Module, phases: Sequence[Phase]) -> tuple[tuple[str, int], ...]:
        """Takes over a routine's functions; gives those of its phases as they are called now, with their chunks."""
        names = _shared_names(module)
        self.module.called.update((name, module.called[name]) for name in module.external)
        for name, text in module.globals.items():
            self.module.globals.setdefault(names[name], _renamed(text, names))
        for name, text in module.functions.items():
            self.module.functions.setdefault(names[name], _renamed(text, names))
        return tuple((names[p.function], p.chunks) for p in phases)

    def epilogue(self, step: RoutineStep) -> EpilogueWriter | None:
        """What the routine hands elements to; None where it has no epilogue, or one that does not lie as they do."""
        if step.epilogue is None:
            return None
        sizes = step.instructions[0].shape.dimensions
        if not suits(step.epilogue, sizes):
            return None
        return EpilogueWriter(step.epilogue, sizes, len(step.epilogue.routine.reads) + 2, self.target)

    def unfused(self, epilogue: Epilogue) -> list[Step]:
        """The two steps that were to be one."""
        return [*self.routine(epilogue.routine), epilogue.kernel]


def _shared_names(module: Module) -> dict[str, str]:
    """Names for a routine's functions and tables, made from all that each refers to: the same for the same."""
    texts = module.globals | module.functions
    used = {name: [n for n in dict.fromkeys(SYMBOL.findall(text)) if n in texts] for name, text in texts.items()}
    digests = {name: sha256(text.encode()).digest() for name, text in texts.items()}
    names: dict[str, str] = {}
    for name in texts:
        reached = dict.fromkeys([name])
        stack = [name]
        while stack:
            new = [n for n in used[stack.pop()] if n not in reached]
            reached |= dict.fromkeys(new)
            stack += new
        names[name] = f"{name}.r{sha256(b''.join(digests[n] for n in reached)).hexdigest()[:16]}"
    return names


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return SYMBOL.sub(lambda m: f"@{names.get(m[1], m[1])}", text)


_LITTLE = 1 << 13
"""Bytes of stack that every thread has left."""
_LIBRARY = 1 << 19
"""Bytes of stack for LAPACK."""
_DECLARATIONS = """
declare void @hlokit_parallel(ptr, ptr, ptr, i64)
!0 = !{i32 1}
!1 = !{}
"""
_INTERRUPTED = "declare i32 @hlokit_interrupted() nounwind memory(inaccessiblemem: readwrite)\n"
_INTERRUPTIBLE = "declare i32 @hlokit_interruptible(ptr, ptr, ptr, i64, i64)\n"
_ON_STACK = "declare i32 @hlokit_on_stack(ptr, ptr, i64)\n"


def finished(written: Written, interrupts: bool = True, calls_python: bool = False) -> str:
    """The program's whole text.

    With `interrupts`, which stands for a process around it that has the functions of hlokit.runtime, an entry that
    takes more than a little stack runs on a thread of its own where its caller has less. Not if it calls Python: its
    caller has seen to that, since Python is to find itself on the caller's thread.
    """
    module = written.module
    needed = _stack(written) if interrupts and not (calls_python or written.hosts) else 0
    more = _INTERRUPTED if written.polls else ""
    if written.leaves:
        more += _INTERRUPTIBLE + _held(module)
    if needed:
        module.functions["hlokit_whole"] = module.functions.pop(ENTRY).replace(f"@{ENTRY}(", "@hlokit_whole(", 1)
        fn = Function(ENTRY, [("ptr", "bases")], "i32", is_cold=True)
        status = fn.let(f"call i32 @hlokit_on_stack(ptr @hlokit_whole, ptr %bases, i64 {needed})")
        fn.do(f"ret i32 {status}")
        module.add(fn, exported=True)
        more += _ON_STACK
    return module.text() + _DECLARATIONS + more


def _held(module: Module) -> str:
    """Has routines of LAPACK called so that nobody ends them midway; gives the declarations for that."""
    calls = {name: text for name, text in module.functions.items() if "call void @hlokit_lapack_" in text}
    for name, text in calls.items():
        if "call void @hlokit_hold()" not in text:
            module.functions[name] = _LAPACK_CALL.sub(_HELD_CALL, text)
    return "declare void @hlokit_hold()\ndeclare void @hlokit_go_on()\n" if calls else ""


_LAPACK_CALL = re.compile(r"^( *)call void @hlokit_lapack_.*$", re.MULTILINE)
_HELD_CALL = r"\1call void @hlokit_hold()\n\g<0>\n\1call void @hlokit_go_on()"


def _stack(written: Written) -> int:
    """Bytes of stack that the entry takes; 0 for as little as any thread has."""
    functions = written.module.functions
    library = _LIBRARY if any("@hlokit_lapack_" in text for text in functions.values()) else 0
    if not library and sum(map(frame, functions.values())) <= _LITTLE:
        return 0
    own = deepest(functions, ENTRY)
    return own + library + OWN if own > _LITTLE or library else 0


ENTRY = "hlokit_entry"


class EntryWriter:
    """Writes the functions that call the kernels.

    Each takes (ptr %bases, ptr %slots) and gives an i32: 0, or what a step of the reference gave. `bases` holds the
    pointers of arguments, results and constants, then the arena's, the pool's, the host function's and its context's.
    `interrupts`: long programs ask `i32 hlokit_interrupted()` now and then whether to stop.
    """

    chained = True

    def __init__(
        self,
        written: Written,
        assignment: Assignment,
        prepared: Mapping[Step, Prepared],
        counts: Sequence[int],
        interrupts: bool = True,
    ) -> None:
        self.written = written
        self.assignment = assignment
        self.prepared = prepared
        arguments, results, constants = counts
        self.starts = {"argument": 0, "result": arguments, "constant": arguments + results}
        self.arena = arguments + results + constants
        self.host = self.arena + 2
        self._tables: dict[str, str] = {}
        self._tight = False
        self.interrupts = interrupts

    def entry(self, block: Block) -> None:
        """`i32 @hlokit_entry(ptr %bases)`."""
        fn = Function(ENTRY, [("ptr", "bases")], "i32", is_cold=True)
        fn.alloca("ptr", max(1, len(self.assignment.slots)), 8, name="%slots")
        for number, home in enumerate(self.assignment.slots):
            slot = fn.let(f"getelementptr ptr, ptr %slots, i64 {number}")
            fn.do(f"store ptr {self._fixed(fn, home)}, ptr {slot}")
        self._steps(fn, block)
        for number, home in enumerate(self.assignment.slots):
            if home.result is not None:  # a loop's last value may lie in the other place
                self._brought_home(fn, number, home)
        fn.do("ret i32 0")
        self.written.module.add(fn, exported=True)

    def _brought_home(self, fn: Function, number: int, home: Home) -> None:
        slot = fn.let(f"getelementptr ptr, ptr %slots, i64 {number}")
        last, wanted = fn.let(f"load ptr, ptr {slot}"), self._fixed(fn, home)
        with fn.when(fn.let(f"icmp ne ptr {last}, {wanted}")):
            fn.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {wanted}, ptr {last}, i64 {home.nbytes}, i1 false)")

    def block(self, block: Block) -> str:
        """A function that runs the steps; gives its name."""
        fn = self._function()
        self._steps(fn, block)
        return self._finished(fn)

    def _steps(self, fn: Function, block: Block) -> None:
        steps = block.steps
        if len(steps) > _PART:
            for k in range(0, len(steps), _PART):
                part = self.block(Block(steps[k : k + _PART], chains=block.chains))
                self._checked(fn, f"call i32 @{part}(ptr %bases, ptr %slots)")
            return
        since = 0.0
        chains = {chain[0]: chain for chain in block.chains if set(chain) <= set(steps) and self.is_chained(chain)}
        inside = {step for chain in chains.values() for step in chain}
        for step in steps:
            if step in chains:
                self.chain(fn, chains[step])
            elif step not in inside:
                self.step(fn, step)
            since += _work(step)
            if since > _LONG_NS:
                self._poll(fn)
                since = 0.0

    def _function(self, kind: str = "block") -> Function:
        self.written.functions += 1
        inline = "alwaysinline" if self._tight and kind == "block" else ""
        name = f"hlokit_{kind}{self.written.functions}"
        return Function(name, [("ptr", "bases"), ("ptr", "slots")], "i32", inline, is_cold=not self._tight)

    def _finished(self, fn: Function) -> str:
        fn.do("ret i32 0")
        self.written.module.add(fn)
        self._tables.pop(fn.name, None)
        return fn.name

    def _checked(self, fn: Function, call: str) -> None:
        """A call whose status, if it is not 0, ends everything."""
        status = fn.let(call)
        failed = fn.let(f"icmp ne i32 {status}, 0")
        stop, go_on = fn.new_block("stop"), fn.new_block("on")
        fn.branch(failed, stop, go_on)
        fn.start(stop)
        fn.do(f"ret i32 {status}")
        fn.start(go_on)

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
        name = f"hlokit_chain{self.written.functions}"
        inner = Function(name, PHASE, is_cold=True)
        low, high = (inner.let(f"mul i64 {end}, {each}") for end in ("%begin", "%end"))
        high = inner.let(f"call i64 @llvm.smin.i64(i64 {high}, i64 {groups})")
        with inner.loop(low, high) as group:
            start = 0
            for one, step in zip(prepared, chain, strict=True):
                ((name, chunks),) = one.phases
                self.written.kernels.setdefault(name, []).append(step)
                table = inner.let(f"getelementptr ptr, ptr %table, i64 {start}")
                first = inner.let(f"mul i64 {group.index}, {chunks // groups}")
                last = inner.let(f"add i64 {first}, {chunks // groups}")
                inner.do(f"call void @{name}(ptr {table}, i64 {first}, i64 {last})")
                start += len(one.table)
        inner.do("ret void")
        self.written.module.add(inner)
        table = self._table(fn, [buffer for one in prepared for buffer in one.table])
        chunks = -(-groups // each)
        self._run(fn, inner.name, table, chunks, sum(map(_longest, chain)))

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
            inner = self._function("loop")
            self.loop(inner, step)
            name = self._finished(inner)
            self._tight = False
            self._checked(fn, f"call i32 @{name}(ptr %bases, ptr %slots)")
        elif isinstance(step, WhileStep):
            self.loop(fn, step)
        elif isinstance(step, ConditionalStep):
            self.conditional(fn, step)
        else:
            raise AssertionError(f"no code for {type(step).__name__}")

    def kernel(self, fn: Function, step: Step) -> None:
        prepared = self.prepared[step]
        table = self._table(fn, prepared.table)
        for name, chunks in prepared.phases:
            self.written.kernels.setdefault(name, []).append(step)
            self._run(fn, name, table, chunks, _longest(step), len(prepared.phases))

    def _run(self, fn: Function, name: str, table: str, chunks: int, longest: float, phases: int = 1) -> None:
        """Calls a kernel's function for all its chunks, as one phase of a step; of a long step so that it can be
        interrupted."""
        pool = self._base(fn, self.arena + 1) if chunks != 1 else "null"
        if self.interrupts and longest > _INTERRUPTIBLE_NS:
            self.written.leaves = True
            share = round(min(longest, _MOST_NS) / phases)
            arguments = f"ptr {pool}, ptr @{name}, ptr {table}, i64 {chunks}, i64 {share}"
            self._checked(fn, f"call i32 @hlokit_interruptible({arguments})")
        elif chunks == 1:
            fn.do(f"call void @{name}(ptr {table}, i64 0, i64 1)")
        else:
            fn.do(f"call void @hlokit_parallel(ptr {pool}, ptr @{name}, ptr {table}, i64 {chunks})")

    def copy(self, fn: Function, step: CopyStep) -> None:
        source, result = step.reads[0], step.writes[0]
        if self.assignment.homes[source] is self.assignment.homes[result] or not result.nbytes:
            return
        if result.nbytes >= 2 * _COPY_CHUNK:
            table = self._table(fn, (result, source))
            name, chunks = self._copier(result.nbytes)
            self._run(fn, name, table, chunks, _longest(step))
            return
        a, b = self.pointer(fn, result), self.pointer(fn, source)
        fn.do(f"call void @llvm.memcpy.p0.p0.i64(ptr align 1 {a}, ptr align 1 {b}, i64 {result.nbytes}, i1 false)")

    def _copier(self, nbytes: int) -> tuple[str, int]:
        """A kernel that copies so many bytes to the table's first array from its second; how many chunks it has."""
        chunk = max(_COPY_CHUNK, -(-nbytes // (16 << 12)) << 12)
        name = f"copy{nbytes}"
        fn = Function(name, [("ptr noalias readonly", "table"), ("i64", "begin"), ("i64", "end")], is_cold=True)
        low, high = (fn.let(f"mul nuw nsw i64 {end}, {chunk}") for end in ("%begin", "%end"))
        size = fn.let(f"sub i64 {fn.let(f'call i64 @llvm.smin.i64(i64 {high}, i64 {nbytes})')}, {low}")
        source = fn.let(f"load ptr, ptr {fn.let('getelementptr ptr, ptr %table, i64 1')}")
        result = fn.let("load ptr, ptr %table")
        to, of = (fn.let(f"getelementptr i8, ptr {base}, i64 {low}") for base in (result, source))
        fn.do(f"call void @llvm.memcpy.p0.p0.i64(ptr align 1 {to}, ptr align 1 {of}, i64 {size}, i1 false)")
        fn.do("ret void")
        self.written.module.add(fn)
        return name, -(-nbytes // chunk)

    def host_call(self, fn: Function, step: HostStep) -> None:
        number = len(self.written.hosts)
        self.written.hosts.append(step)
        table = self._table(fn, (*step.reads, *step.writes))
        function, context = self._base(fn, self.host), self._base(fn, self.host + 1)
        self._checked(fn, f"call i32 {function}(ptr {context}, i64 {number}, ptr {table})")

    def loop(self, fn: Function, step: WhileStep) -> None:
        condition, body = self.block(step.condition), self.block(step.body)
        head, inside, after = fn.new_block("while"), fn.new_block("pass"), fn.new_block("done")
        counter = fn.alloca("i64", 1, 8)
        fn.do(f"store i64 0, ptr {counter}")
        fn.jump(head)
        fn.start(head)
        self._checked(fn, f"call i32 @{condition}(ptr %bases, ptr %slots)")
        flag = fn.let(f"load i8, ptr {self.pointer(fn, step.predicate)}")
        fn.branch(fn.let(f"icmp ne i8 {flag}, 0"), inside, after)
        fn.start(inside)
        self._checked(fn, f"call i32 @{body}(ptr %bases, ptr %slots)")
        for current, following in step.carries:
            one, two = self.assignment.homes[current], self.assignment.homes[following]
            if one is not two:
                places = [fn.let(f"getelementptr ptr, ptr %slots, i64 {home.slot}") for home in (one, two)]
                a, b = (fn.let(f"load ptr, ptr {place}") for place in places)
                fn.do(f"store ptr {b}, ptr {places[0]}")
                fn.do(f"store ptr {a}, ptr {places[1]}")
        self._poll_sometimes(fn, counter, _work(step))
        fn.jump(head)
        fn.start(after)

    def _poll_sometimes(self, fn: Function, counter: str, each: float) -> None:
        """At a loop's end: every so many passes looks for signals."""
        period = 1
        while period < 4096 and period * max(each, 1.0) < _POLL_NS:
            period *= 2
        passes = fn.let(f"add i64 {fn.let(f'load i64, ptr {counter}')}, 1")
        fn.do(f"store i64 {passes}, ptr {counter}")
        phase = fn.let(f"and i64 {passes}, {period - 1}")
        with fn.when(fn.let(f"icmp eq i64 {phase}, 0")):
            self._poll(fn)

    def _poll(self, fn: Function) -> None:
        """Leaves the program if a signal's handler has raised an exception."""
        if self.interrupts:
            self.written.polls = True
            self._checked(fn, "call i32 @hlokit_interrupted()")

    def conditional(self, fn: Function, step: ConditionalStep) -> None:
        selector = step.reads[0]
        branches = [self.block(branch) for branch in step.branches]
        last = len(branches) - 1
        if selector.dtype is dtypes.pred:
            flag = fn.let(f"load i8, ptr {self.pointer(fn, selector)}")
            number = fn.let(f"select i1 {fn.let(f'icmp ne i8 {flag}, 0')}, i32 0, i32 1")
        else:
            number = fn.let(f"load i32, ptr {self.pointer(fn, selector)}")
        labels = [fn.new_block("branch") for _ in branches]
        after = fn.new_block("joined")
        cases = " ".join(f"i32 {k}, label %{label}" for k, label in enumerate(labels[:last]))
        fn.do(f"switch i32 {number}, label %{labels[last]} [ {cases} ]")
        for label, branch in zip(labels, branches, strict=True):
            fn.start(label)
            self._checked(fn, f"call i32 @{branch}(ptr %bases, ptr %slots)")
            fn.jump(after)
        fn.start(after)

    # -- pointers

    def _table(self, fn: Function, buffers: Sequence[Buffer]) -> str:
        table = self._tables.get(fn.name)
        if table is None:
            table = self._tables[fn.name] = fn.alloca("ptr", 64)
        if len(buffers) > 64:
            table = fn.alloca("ptr", len(buffers))
        for k, buffer in enumerate(buffers):
            pointer = self.pointer(fn, buffer)
            place = fn.once(f"getelementptr ptr, ptr {table}, i64 {k}") if k else table
            fn.do(f"store ptr {pointer}, ptr {place}")
        return table

    def pointer(self, fn: Function, buffer: Buffer) -> str:
        home = self.assignment.homes[buffer]
        if home.slot is not None:
            place = fn.once(f"getelementptr ptr, ptr %slots, i64 {home.slot}")
            return fn.let(f"load ptr, ptr {place}")
        return self._fixed(fn, home)

    def _fixed(self, fn: Function, home: Home) -> str:
        if home.kind == "arena":
            base = self._base(fn, self.arena)
            return fn.once(f"getelementptr i8, ptr {base}, i64 {home.offset}")
        return self._base(fn, self.starts[home.kind] + home.offset)

    def _base(self, fn: Function, number: int) -> str:
        place = fn.once(f"getelementptr ptr, ptr %bases, i64 {number}")
        return fn.once(f"load ptr, ptr {place}, !invariant.load !1")
