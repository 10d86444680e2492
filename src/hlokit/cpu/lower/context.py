"""The state that all computations of a program share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hlokit.analysis.functions import Functions
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.target import Target
from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.cpu.lower.drafts import Built
    from hlokit.cpu.lower.steps import Subprogram


@dataclass
class Reasons:
    """Why things are as they are: (instruction, what, why)."""

    entries: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    def add(self, instruction: str, what: str, why: str) -> None:
        self.entries.append((instruction, what, why))


class Context:
    """The state that all computations of a program share: buffers, constants, reasons.

    functions  called computations, by what they compute
    built      kernels that were built, by their pattern's form; None: there is none
    subprograms  of the computations that calls run, callees first
    """

    def __init__(self, target: Target, *, strict: bool = False) -> None:
        self.target = target
        self.strict = strict
        self.reasons = Reasons()
        self.hosted: dict[Instruction, str] = {}
        self.step_loops: set[Instruction] = set()
        self._effects: dict[Computation, bool] = {}
        self.buffers: list[Buffer] = []
        self.fresh: set[Buffer] = set()
        self.constants: dict[Literal, Buffer] = {}
        self.functions = Functions()
        self.built: dict[Hashable, Built | None] = {}
        self.subprograms: dict[Computation, Subprogram] = {}

    def has_effect(self, instruction: Instruction) -> bool:
        return has_side_effect(instruction, self._effects)

    def buffer(self, name: str, shape: Shape, *, fresh: bool = True) -> Buffer:
        buffer = Buffer(name, shape.dtype, shape.size, len(self.buffers))
        self.buffers.append(buffer)
        if fresh:
            self.fresh.add(buffer)
        return buffer

    def like(self, name: str, other: Buffer) -> Buffer:
        """A new buffer of the same size."""
        buffer = Buffer(name, other.dtype, other.size, len(self.buffers))
        self.buffers.append(buffer)
        self.fresh.add(buffer)
        return buffer

    def constant(self, literal: Literal) -> Buffer:
        found = self.constants.get(literal)
        if found is None:
            found = self.constants[literal] = self.buffer(f"constant{len(self.constants)}", literal.shape, fresh=False)
        return found
