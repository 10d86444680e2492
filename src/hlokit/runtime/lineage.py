"""Lineage of machine code: the instructions that each step, buffer and line of the listing comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlokit.cpu.compiler import EXACT, PIPELINE, Program
from hlokit.cpu.listing import program_lines
from hlokit.cpu.lower.portion import inner_blocks, owners_of, portions
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
    WhileStep,
)
from hlokit.errors import ArgumentError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.lineage import Lineage, Origin
from hlokit.hlo.module import HloModule
from hlokit.passes.pipeline import optimize
from hlokit.runtime.dump import left_in

if TYPE_CHECKING:
    from hlokit.runtime.compilation import Compilation

_KINDS: dict[type[Step], str] = {
    KernelStep: "kernel", RoutineStep: "routine", PackStep: "packing", CopyStep: "copy", HostStep: "reference",
    WhileStep: "while", ConditionalStep: "conditional", CallStep: "call",
}  # fmt: skip


@dataclass(frozen=True)
class StepOrigins:
    """A step of the machine code.

    kind           kernel, routine, packing, copy, reference, while, conditional or call
    functions      the names of its functions in the LLVM text, before those that are alike become one
    instructions   all that it computes, after the passes: a kernel's with what is fused into it
    results        those of them whose values it stores
    reads, writes  the names of its buffers
    around         the numbers of the loops and conditionals that it is in, outermost first, in its own computation
    """

    number: int
    name: str
    kind: str
    functions: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    results: tuple[Instruction, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    around: tuple[int, ...]


@dataclass(frozen=True)
class LineOrigins:
    """A line of the listing of loops. `step`: its number, None for the head; `instructions`: what it computes, which is
    one for a line that stores a result, else those of its step."""

    text: str
    step: int | None
    instructions: tuple[Instruction, ...]


class CodeLineage:
    """Which instructions of the program the machine code comes from.

    passes    from the program as it was given to the module that is compiled, with its stages
    steps     kernels, routines and the other steps, in the order of the listing
    buffers   the instructions whose values lie in each buffer, by its name
    lines     the listing of loops, as `Executable.as_text("loops")`

        >>> b = hk.Builder()
        >>> x = b.parameter(0, hk.f32[64], "x")
        >>> lineage = hk.compile(b.build(hk.exp(x * 1.0) + 2.0)).lineage
        >>> [(step.kind, [i.opcode for i in step.instructions]) for step in lineage.steps]
        [('kernel', ['exponential', 'broadcast', 'add'])]
        >>> lineage.origins(lineage.steps[0])
        [exponential.4: same value, broadcast.6: same value, add.7: same value]
    """

    def __init__(self, compilation: Compilation) -> None:
        program = compilation.program
        self.program = program
        self.passes = _of_passes(compilation)
        self.buffers: dict[str, tuple[Instruction, ...]] = {}
        self.steps: list[StepOrigins] = []
        numbers: dict[Step, int] = {}
        fused: dict[Step, tuple[Instruction, ...]] = {
            step: _fused(part.fused, program.module) for whole, _ in program.blocks for step, part in portions(whole)
        }
        for step, around in (pair for whole, _ in program.blocks for pair in _steps(whole, ())):
            numbers[step] = len(self.steps)
            self.steps.append(self._step(step, tuple(numbers[s] for s in around), fused.get(step, ())))
        for block in (inner for whole, _ in program.blocks for inner in _blocks(whole)):
            assert block.leaves is not None
            for buffer, leaves in owners_of(block.leaves).items():
                known = self.buffers.get(buffer.name, ())
                self.buffers[buffer.name] = tuple(dict.fromkeys((*known, *(leaf.instruction for leaf in leaves))))
        self.lines = [
            LineOrigins(line.text, number, self._of_line(line.text, number))
            for line in program_lines(program)
            for number in (None if line.step is None else numbers[line.step],)
        ]

    def __repr__(self) -> str:
        return f"<CodeLineage {self.program.module.name}: {len(self.steps)} steps, {len(self.lines)} lines>"

    def origins(self, of: StepOrigins | LineOrigins | str) -> list[Origin]:
        """The instructions of the program as it was given that a step, a line or a buffer comes from.

        Parameters
        ----------
        of : StepOrigins, LineOrigins or str
            A step, a line, or the name of a buffer.

        Returns
        -------
        list of Origin
            The instructions, each with the nearest of its marks.

        Raises
        ------
        ArgumentError
            There is no such buffer.
        """
        if isinstance(of, str) and of not in self.buffers:
            raise ArgumentError(f"{self.program.module.name} has no buffer {of!r}")
        nearest: dict[Instruction, Origin] = {}
        for instruction in self.buffers[of] if isinstance(of, str) else of.instructions:
            for origin in self.passes.origins(instruction):
                known = nearest.get(origin.instruction)
                if known is None or origin.mark < known.mark:
                    nearest[origin.instruction] = origin
        return sorted(nearest.values(), key=lambda origin: origin.mark)

    def steps_of(self, instruction: Instruction | str) -> list[StepOrigins]:
        """The steps that compute what comes from an instruction of the program as it was given.

        Parameters
        ----------
        instruction : Instruction or str
            An instruction of the source, or its name.

        Returns
        -------
        list of StepOrigins
            The steps, in the order of the listing.

        Raises
        ------
        ArgumentError
            The source has no instruction of this name.
        """
        wanted = {origin.instruction for origin in self.passes.results(instruction)}
        return [step for step in self.steps if wanted.intersection(step.instructions)]

    def _step(self, step: Step, around: tuple[int, ...], fused: tuple[Instruction, ...]) -> StepOrigins:
        prepared = self.program.prepared.get(step)
        functions = tuple(name for name, _ in prepared.phases) if prepared is not None else ()
        reads, writes = (tuple(dict.fromkeys(b.name for b in buffers)) for buffers in (step.reads, step.writes))
        own = step.instructions or _behind(self.program, step)
        everything = tuple(dict.fromkeys((*fused, *own)))
        number, kind = len(self.steps), _KINDS[type(step)]
        return StepOrigins(number, step.name, kind, functions, everything, own, reads, writes, around)

    def _of_line(self, text: str, number: int | None) -> tuple[Instruction, ...]:
        if number is None:
            named = re.match(r"  (?:argument|result) \d+: (\S+) ", text)
            return self.buffers.get(named[1], ()) if named is not None else ()
        step = self.steps[number]
        stored = re.match(r"\s*(\S+)\[[^=]*\] = ", text)
        if stored is not None and stored[1] in step.writes:
            return tuple(i for i in self.buffers.get(stored[1], ()) if i in step.instructions) or step.instructions
        return step.instructions


def _of_passes(compilation: Compilation) -> Lineage:
    """The lineage of the passes, recorded by running them again, on the module that was lowered."""
    passes = left_in(compilation.settings, EXACT if compilation.strict else PIPELINE)
    again = optimize(compilation.static, passes, lineage="stages")
    lineage, module = again.lineage, compilation.program.module
    assert lineage is not None
    twins = {i.name: i for c in again.all_computations for i in c.instructions}
    return lineage.moved_to(module, {i: twins[i.name] for c in module.all_computations for i in c.instructions})


def _fused(names: Iterable[str], module: HloModule) -> tuple[Instruction, ...]:
    named = {i.name: i for c in module.all_computations for i in c.instructions}
    return tuple(named[name] for name in names if name in named)


def _behind(program: Program, step: Step) -> tuple[Instruction, ...]:
    """The source of a copy of what is not an instruction's own: an argument, a constant, a value given twice."""
    owners = [owners_of(block.leaves) for block, _ in program.blocks if block.leaves is not None]
    found = dict.fromkeys(leaf.instruction for buffer in step.reads for own in owners for leaf in own.get(buffer, ()))
    return tuple(found) or (program.module.entry.root,)


def _blocks(block: StepBlock) -> Iterator[StepBlock]:
    yield block
    for step in block.steps:
        for inner in inner_blocks(step):
            yield from _blocks(inner)


def _steps(block: StepBlock, around: tuple[Step, ...]) -> Iterator[tuple[Step, tuple[Step, ...]]]:
    for step in block.steps:
        yield step, around
        for inner in inner_blocks(step):
            yield from _steps(inner, (*around, step))
