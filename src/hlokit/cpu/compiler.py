"""The compiler: translates a module to LLVM text and a plan of the buffers that its entry reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.emit.entry import EntryWriter, Written, finish
from hlokit.cpu.emit.estimates import work
from hlokit.cpu.emit.preparation import Preparation, Prepared
from hlokit.cpu.jit.merging import merged
from hlokit.cpu.llvm import Module
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.buffers import Assignment, assign
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.program import lower, own_results, parameter_buffers
from hlokit.cpu.lower.schedule import lighten
from hlokit.cpu.lower.steps import Step, StepBlock, Subprogram
from hlokit.cpu.rematerialisation import recompute
from hlokit.cpu.target import Target
from hlokit.errors import UnsupportedError
from hlokit.hlo.computation import Computation
from hlokit.hlo.module import HloModule, refuse_buffers
from hlokit.interpreter.process import MAX_CALL_DEPTH
from hlokit.passes.call_inliner import CallInliner
from hlokit.passes.conditional_simplifier import ConditionalSimplifier
from hlokit.passes.constant_folding import ConstantFolding
from hlokit.passes.op_expander import OpExpander
from hlokit.passes.pipeline import DEFAULT, PassLike, optimize
from hlokit.passes.simplify import Simplify
from hlokit.types import dtype as dtypes
from hlokit.types.literal import Literal

EXACT: tuple[PassLike, ...] = (
    "computation-deduplicator",
    "buffer-removal",
    "defuser",
    OpExpander(exact=True),
    CallInliner(composites=True),
    "tuple-simplifier",
    "while-loop-unroller",
    *DEFAULT,
)
"""The passes before lowering, in their order: those that keep every bit, which strict code has alone."""

PIPELINE: tuple[PassLike, ...] = (
    "computation-deduplicator",
    "op-expander",
    *(ConstantFolding(sums=False) if one == "constant-folding" else one for one in EXACT[1:]),
    "conv-canonicalization",
    Simplify(fast=True),
    "tree-reduction-rewriter",
    "reduce-window-rewriter",
    "scatter-splitter",
    ConditionalSimplifier(work=24),
    "while-loop-scalarizer",
    Simplify(fast=True),
    "cse",
    "dce",
)
"""With those that round differently."""


@dataclass
class Program:
    """A compiled module: its text, and what the entry's pointers are.

    module      after the passes
    arguments   one buffer per array leaf of the parameters, results likewise of the root, constants with their values
    """

    module: HloModule
    context: Context
    block: StepBlock
    arguments: list[Buffer]
    results: list[Buffer]
    constants: list[Literal]
    assignment: Assignment
    prepared: dict[Step, Prepared]
    written: Written
    text: str
    work: float
    """Estimated nanoseconds of a call on one thread; a loop counts as one pass."""
    is_limited: bool = False
    """Values are computed again to fit a memory limit."""

    @property
    def subprograms(self) -> list[Subprogram]:
        """The computations that its calls run, callees first."""
        return list(self.context.subprograms.values())

    @property
    def blocks(self) -> list[tuple[StepBlock, Assignment]]:
        """The entry's steps and those of the subprograms, each with the places of its buffers."""
        inner = [(s.block, s.assignment) for s in self.subprograms if s.assignment is not None]
        return [(self.block, self.assignment), *inner]


def compile_program(
    module: HloModule,
    target: Target,
    *,
    strict: bool = False,
    donated: Sequence[int] = (),
    optimised: bool = False,
    interrupts: bool = True,
    memory_limit: int | None = None,
) -> Program:
    """The program of `module`'s entry. `donated`: numbers of argument leaves whose memory may be overwritten.

    `interrupts`: it asks for signals now and then, by the function `hlokit_interrupted` of whoever loads it.
    `memory_limit`: bytes that a call is to need at most, for which values of the entry are computed again if need be.
    Raises UnsupportedError for loops and conditionals in each other deeper than the interpreter calls, and for
    arguments or results that are buffers.
    """
    refuse_buffers(module)
    if not optimised:
        module = optimize(module, EXACT if strict else PIPELINE)
    _refuse_deep(module)
    context = Context(target, strict=strict)
    entry = module.entry
    arguments = parameter_buffers(entry, context)
    block = lower(entry, arguments, context)
    results = own_results(block, context)
    llvm = Module()
    flat = [buffer for buffers in arguments for buffer in buffers]
    subprograms = list(context.subprograms.values())
    blocks = [*(subprogram.block for subprogram in subprograms), block]
    preparation = Preparation(context, llvm)
    for each in blocks:
        preparation.write_routines(each)
    constants = list(context.constants)
    for subprogram in subprograms:
        _place(subprogram, context)
    lighten(block, context, results)
    assignment = assign(block, flat, results, context.constants.values(), donated)
    is_limited = False
    if memory_limit is not None:
        most = memory_limit - assignment.outside
        while assignment.total > memory_limit and recompute(block, context, preparation.found, results, most):
            is_limited = True
            assignment = assign(block, flat, results, context.constants.values(), donated)
            most = block.peak - 1  # the peak is an estimate, as there are gaps between places: one value more
    for each in blocks:
        preparation.block(each, kernels=True)
    prepared = preparation.found
    written = Written(llvm)
    writer = EntryWriter(written, assignment, prepared, (len(flat), len(results), len(constants)), interrupts)
    for subprogram in subprograms:
        writer.subprogram(subprogram)
    writer.entry(block)
    llvm.functions = merged(llvm.functions, (*llvm.exported, *written.kernels))
    finish(written, interrupts)
    text = llvm.text()
    return Program(
        module, context, block, flat, results, constants, assignment, prepared, written, text, work(block), is_limited
    )


def _place(subprogram: Subprogram, context: Context) -> None:
    """Places for a subprogram's buffers; callers keep memory for those that are not theirs."""
    lighten(subprogram.block, context, subprogram.results)
    subprogram.assignment = assign(subprogram.block, subprogram.arguments, subprogram.results, ())
    nbytes = subprogram.assignment.nbytes
    for call in subprogram.calls if nbytes else ():
        call.scratch = context.buffer(f"{call.name}.scratch", dtypes.u8[nbytes])


def _refuse_deep(module: HloModule) -> None:
    depths: dict[Computation, int] = {}
    for computation in module.computations():  # callees first
        calls = (depths[callee] for i in computation.instructions for callee in i.called)
        depths[computation] = 1 + max(calls, default=-1)
        if depths[computation] > MAX_CALL_DEPTH:
            raise UnsupportedError(f"{computation.name}: calls nest deeper than {MAX_CALL_DEPTH}")
