"""Steps: the operations of a program on buffers, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.loops.nest import Loops
from hlokit.cpu.lower.leaf import Leaf, array_leaves
from hlokit.cpu.lower.leaves import Leaves
from hlokit.forms.affine import Affine
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction

if TYPE_CHECKING:
    from hlokit.cpu.lower.buffers import Assignment


@dataclass(eq=False)
class Step:
    """One thing that a program does. `reads` and `writes` are all the buffers that it touches."""

    instructions: tuple[Instruction, ...]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]

    @property
    def name(self) -> str:
        return self.instructions[-1].name if self.instructions else "copy"

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(buffer.nbytes for buffer in dict.fromkeys((*self.reads, *self.writes)))


@dataclass(eq=False)
class KernelStep(Step):
    """Loops over affine places. `source`: what the result holds before, where only parts of it are written.

    roots   the leaves that it computes, and where to
    """

    loops: Loops
    source: Buffer | None = None
    roots: tuple[tuple[Leaf, Buffer], ...] = ()


@dataclass(eq=False)
class RoutineStep(Step):
    """A routine of the kernel form; its table is reads, writes, scratch. With an epilogue or a prologue it is what the
    routine reads, its result and scratch (of these what there is not is left empty), then what their loops touch.

    packed   an operand's number, and the buffer in which it is laid out by a PackStep
    groups   so many batch indices of a product must be chunks of their own, or several for each; 0: any chunks
    starts   by number the operands that are parts of the buffers that it reads: the bytes before them
    """

    routine: str
    functions: Mapping[str, Computation] = field(default_factory=dict[str, Computation])
    scratch: Buffer | None = None
    epilogue: Epilogue | None = None
    prologue: Prologue | None = None
    packed: tuple[int, Buffer] | None = None
    groups: int = 0
    starts: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def operands(self) -> tuple[Buffer, ...]:
        """The buffers in which its operands lie, one for each."""
        return (self.reads if self.epilogue is None else self.epilogue.routine.reads)[: self.count]

    @property
    def nbytes(self) -> int:
        shapes = [leaf for o in self.instructions[0].operands for leaf in array_leaves(o.shape)]
        taken = dict.fromkeys(self.operands, 0)
        for buffer, shape in zip(self.operands, shapes, strict=True):
            taken[buffer] += shape.nbytes
        return super().nbytes - sum(max(0, buffer.nbytes - nbytes) for buffer, nbytes in taken.items())

    @property
    def table(self) -> tuple[Buffer, ...]:
        """The buffers that the routine itself reads: its operands, one of them as it was packed."""
        operands = list(self.operands)
        if self.packed is not None:
            operands[self.packed[0]] = self.packed[1]
        return tuple(operands)

    @property
    def loaded(self) -> tuple[Buffer, ...]:
        """The buffers that its prologue reads."""
        return () if self.prologue is None else self.prologue.kernel.reads

    @property
    def count(self) -> int:
        """Operands that are arrays."""
        return sum(len(array_leaves(o.shape)) for o in self.instructions[0].operands)


@dataclass(eq=False)
class PackStep(Step):
    """Lays out an operand of a routine for it: reads[0], from byte `start` on, to writes[0]. `instructions` is the
    routine's."""

    routine: str
    start: int = 0


@dataclass(frozen=True, eq=False)
class Epilogue:
    """Loops that a routine does element by element, as it makes them.

    routine, kernel   the steps that the fused one is made of
    place             where the loops read the result: of a complex number its real part
    is_kept           the result itself is stored too
    """

    routine: RoutineStep
    kernel: KernelStep
    place: Affine
    is_kept: bool

    @property
    def is_complex(self) -> bool:
        return self.routine.instructions[0].shape.dtype.is_complex


@dataclass(frozen=True, eq=False)
class Prologue:
    """Loops that make an operand of a routine, done by the routine for each element that it reads.

    number   the operand's; in the step's reads and table the first buffer that the loops read is in its place
    """

    kernel: KernelStep
    number: int


@dataclass(eq=False)
class HostStep(Step):
    """An instruction that the reference evaluates, called from machine code; `reason` says why."""

    reason: str
    operands: tuple[Any, ...] = ()


@dataclass(eq=False)
class CopyStep(Step):
    """The bytes of reads[0] to writes[0]; nothing where buffer assignment made both one place, and
    the step `vanished`."""

    reason: str
    vanished: bool = False


@dataclass(eq=False)
class WhileStep(Step):
    """carries: (what a pass reads, what it leaves for the next): the two change places after each. `tight`: see
    entry.is_tight."""

    condition: StepBlock
    predicate: Buffer
    body: StepBlock
    carries: tuple[tuple[Buffer, Buffer], ...]
    tight: bool | None = None


@dataclass(eq=False)
class ConditionalStep(Step):
    """reads[0] is the selector."""

    selector: Instruction
    branches: tuple[StepBlock, ...]


@dataclass(eq=False)
class CallStep(Step):
    """Runs a subprogram: `reads` are its arguments, `writes` its results, `scratch` is its arena."""

    subprogram: Subprogram
    scratch: Buffer | None = None


@dataclass(eq=False)
class Subprogram:
    """A computation that calls run as machine code, compiled once: steps on buffers of its own.

    name        of its function
    arguments   the leaves of its parameters, then the program's constants that its steps read
    constants   these constants
    calls       its callers
    assignment  where its buffers lie, once that is known
    """

    computation: Computation
    name: str
    block: StepBlock
    arguments: list[Buffer]
    results: list[Buffer]
    constants: tuple[Buffer, ...]
    calls: list[CallStep] = field(default_factory=list[CallStep])
    assignment: Assignment | None = None


@dataclass(eq=False)
class StepBlock:
    """Steps in their order, and the buffers of the root's leaves. `leaves`: what knows whose they are.
    `chains`: steps one after the other that run together, one batch index at a time. `work`: see entry.work. `peak`:
    bytes of its own buffers in use at once, estimated by schedule.lighten.
    """

    steps: list[Step]
    results: tuple[Buffer, ...] = ()
    leaves: Leaves | None = None
    chains: list[tuple[Step, ...]] = field(default_factory=list["tuple[Step, ...]"])
    work: float | None = None
    peak: int = 0
