"""Preparation of steps: their kernels and routines written as LLVM text, those that are alike once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from hlokit.cpu.emit import KernelWriter
from hlokit.cpu.emit.estimates import is_tight
from hlokit.cpu.emit.scalars import scalar_function
from hlokit.cpu.kernels import epilogue, prologue
from hlokit.cpu.kernels.epilogue import EpilogueWriter, suits
from hlokit.cpu.kernels.prologue import PrologueLoader
from hlokit.cpu.kernels.routine import KERNELS, PACKERS, Call, Phase
from hlokit.cpu.llvm import Module
from hlokit.cpu.loops.canonical import canonical
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.loops.moved import joined
from hlokit.cpu.loops.nest import Loops
from hlokit.cpu.lower.chains import link
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.prepacked import hoist
from hlokit.cpu.lower.steps import (
    ConditionalStep,
    HostStep,
    KernelStep,
    PackStep,
    RoutineStep,
    Step,
    StepBlock,
    WhileStep,
)
from hlokit.cpu.target import Target
from hlokit.types import dtype as dtypes

_INLINED = 150
"""Lines of a kernel up to which it goes into a tight loop's function."""


@dataclass(frozen=True)
class Prepared:
    """A step's functions with their chunks, what its table holds, Phase.groups, and by number of the table's entry the
    bytes from the buffer's start to where the entry points."""

    phases: tuple[tuple[str, int], ...]
    table: tuple[Buffer, ...]
    groups: int = 0
    starts: Mapping[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True)
class _Kernel:
    """A kernel's function, and what its table holds: numbers of buffers in the canonical form."""

    name: str
    table: tuple[int, ...]


@dataclass(frozen=True)
class _Routine:
    """The functions of a routine with their chunks, its scratch memory, Phase.groups, and what the table of its
    epilogue holds: numbers of buffers in the canonical form."""

    phases: tuple[tuple[str, int], ...]
    scratch: int
    groups: int
    table: tuple[int, ...] = ()


class Preparation:
    """Writes routines and kernels, those that differ by their buffers alone once. Kernels are written after buffer
    assignment, which says what they do in place.

    found     the functions of each step
    kernels   kernels by their canonical form, and whether they are part of a tight loop
    routines  routines by what they are asked for; None: there is none for that
    """

    def __init__(self, context: Context, module: Module) -> None:
        self.context = context
        self.module = module
        self.found: dict[Step, Prepared] = {}
        self.target: Target = context.target
        self.kernels: dict[Hashable, _Kernel] = {}
        self.routines: dict[Hashable, _Routine | None] = {}

    def write_routines(self, block: StepBlock) -> None:
        """Writes the routines of a program's block. One that does not take its case becomes a step of the reference."""
        prologue.fuse(block, self.context, self.call)
        epilogue.fuse(block, self.context)
        hoist(block, self.context, self.call)
        link(block, self.context)
        self.block(block, kernels=False)

    def block(self, block: StepBlock, kernels: bool, tight: bool = False) -> None:
        """Writes the kernels of a block and of those in it, or the routines."""
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
        """The kernel, ready to be called."""
        loops = joined(step.loops, self.target.vector_bytes)
        form, buffers = canonical(loops)
        kernel = self.kernels.get((form, tight))
        if kernel is None:
            kernel = self.kernels[form, tight] = self.written_kernel(loops, tight, buffers)
        return Prepared(((kernel.name, loops.chunks),), tuple(buffers[k].base for k in kernel.table))

    def written_kernel(self, loops: Loops, tight: bool, buffers: list[Buffer]) -> _Kernel:
        """Equal kernels have equal text but for the name, which is made from it."""
        writer = KernelWriter(loops, "kernel", self.target)
        function = writer.write()
        if tight and len(function.lines) <= _INLINED:
            function.attributes = "alwaysinline"
        definition = function.definition()
        name = "k" + sha256(definition.text().encode()).hexdigest()[:16]
        self.module.add(definition.renamed(name))
        return _Kernel(name, tuple(map(buffers.index, writer.buffers)))

    def routine(self, step: RoutineStep) -> list[Step]:
        """The step, ready to be called, or what takes its place."""
        instruction, after = step.instructions[0], step.epilogue
        more = {"packed": step.packed is not None, "by_batch": step.groups > 0}
        call = replace(self.call(step), **more)
        key: tuple[Any, ...] = (step.routine, call.op, call.operands, call.results, call.backend_config)
        key += (call.packed, call.by_batch, *step.functions.items())
        touched: list[Buffer] = []
        if after is not None:
            form, touched = canonical(after.kernel.loops, after.place)
            key += (form, touched.index(after.routine.writes[0]), after.is_kept)
        if step.prologue is not None:
            form, read = canonical(step.prologue.kernel.loops)
            key += (form, step.prologue.number, *map(read.index, step.loaded))
        if key not in self.routines:
            self.routines[key] = self.written_routine(step, call, touched)
        routine = self.routines[key]
        if routine is None and after is not None:
            return [*self.routine(after.routine), after.kernel]
        if routine is None:
            assert not step.starts, "products and convolutions have code for all operands"
            reason = f"{step.routine} has no machine code for this case"
            self.context.reasons.add(instruction.name, "not compiled", reason)
            return [HostStep(step.instructions, step.reads, step.writes, reason)]
        if routine.scratch:
            step.scratch = self.context.buffer(f"{instruction.name}.scratch", dtypes.u8[routine.scratch])
        table = [*step.table, *step.writes, *([step.scratch] if step.scratch is not None else ())]
        if after is not None or step.prologue is not None:
            nothing = step.writes[0]
            results = step.writes if after is None else after.routine.writes if after.is_kept else (nothing,)
            table = [*step.table, *results, step.scratch or nothing, *step.loaded]
            table += [touched[k] for k in routine.table]
        starts = {n: start for n, start in step.starts.items() if step.packed is None or n != step.packed[0]}
        self.found[step] = Prepared(routine.phases, tuple(table), routine.groups, starts)
        return [step]

    def written_routine(self, step: RoutineStep, call: Call, touched: list[Buffer]) -> _Routine | None:
        """The routine of a step with its epilogue, which touches these buffers; None where there is none."""
        module = Module()
        store = self.epilogue(step)
        if step.epilogue is not None and store is None:
            return None
        functions = {role: scalar_function(c, module, self.context) for role, c in step.functions.items()}
        if not all(functions.values()):
            return None
        routine = KERNELS[step.routine](replace(call, functions=functions, store=store), module)
        if routine is None:
            return None
        groups = routine.phases[0].groups if len(routine.phases) == 1 else 0
        table = tuple(map(touched.index, store.buffers)) if store is not None else ()
        return _Routine(self.taken(module, routine.phases), routine.scratch, groups, table)

    def call(self, step: RoutineStep | PackStep) -> Call:
        """The call that its routine is asked for, without functions and epilogue."""
        instruction = step.instructions[0]
        return Call(
            instruction.op,
            tuple(leaf for o in instruction.operands for leaf in o.shape.leaves() if leaf.is_array),
            tuple(leaf for leaf in instruction.shape.leaves() if leaf.is_array),
            self.target,
            computations=dict(step.functions) if isinstance(step, RoutineStep) else {},
            strict=self.context.strict,
            loader=self.loader(step),
            backend_config=instruction.extra.backend_config if instruction.extra is not None else "",
        )

    def pack(self, step: PackStep) -> Prepared:
        """The function that lays out an operand."""
        module, call = Module(), self.call(step)
        packing = PACKERS[step.routine](call, module)
        assert packing is not None
        named = self.taken(module, (packing.write(),))
        count = len(call.operands)
        starts = dict.fromkeys(range(count), step.start)
        return Prepared(named, (*(step.reads * count), *step.writes), starts=starts)

    def taken(self, module: Module, phases: Sequence[Phase]) -> tuple[tuple[str, int], ...]:
        """Takes over a routine's functions; gives those of its phases as they are called now, with their chunks."""
        names = _shared_names(module)
        self.module.called.update((name, module.called[name]) for name in module.external)
        for name, symbol in module.globals.items():
            self.module.globals.setdefault(names[name], symbol.renamed(names[name]))
        for name, definition in module.functions.items():
            self.module.functions.setdefault(names[name], definition.renamed(names[name], names))
        return tuple((names[p.function], p.chunks) for p in phases)

    def loader(self, step: RoutineStep | PackStep) -> PrologueLoader | None:
        """The operand's elements that a prologue gives to the routine."""
        if not isinstance(step, RoutineStep) or step.prologue is None:
            return None
        return PrologueLoader(step.prologue, step.count + 2, self.target)

    def epilogue(self, step: RoutineStep) -> EpilogueWriter | None:
        """The writer that the routine hands elements to; None without an epilogue, or if that lies otherwise."""
        if step.epilogue is None:
            return None
        sizes = step.instructions[0].shape.dimensions
        if not suits(step.epilogue, sizes):
            return None
        return EpilogueWriter(step.epilogue, sizes, step.count + 2 + len(step.loaded), self.target)


def _shared_names(module: Module) -> dict[str, str]:
    """Names for a routine's functions and tables, made from all that each refers to: the same for the same."""
    used: dict[str, list[str]] = {name: [symbol.name for symbol in g.used] for name, g in module.globals.items()}
    used |= {name: list(definition.symbols) for name, definition in module.functions.items()}
    texts = {name: symbol.definition() for name, symbol in module.globals.items()}
    texts |= {name: definition.text() for name, definition in module.functions.items()}
    digests = {name: sha256(text.encode()).digest() for name, text in texts.items()}
    names: dict[str, str] = {}
    for name in texts:
        reached = dict.fromkeys([name])
        stack = [name]
        while stack:
            new = [n for n in used[stack.pop()] if n in texts and n not in reached]
            reached |= dict.fromkeys(new)
            stack += new
        names[name] = f"{name}.r{sha256(b''.join(digests[n] for n in reached)).hexdigest()[:16]}"
    return names
