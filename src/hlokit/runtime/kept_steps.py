"""Steps of the reference in the persistent cache: a module with each of their instructions, applied to parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlokit.errors import HlokitError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.structure import Parameter, Tuple
from hlokit.text.parser import parse_hlo


def kept_text(instructions: Sequence[Instruction], source: HloModule) -> str | None:
    """The module as text; None for instructions that text does not hold whole, and for those of communication, which
    belong to others in the program."""
    if any(i.op.communication.stage or i.op.form == "communicate" for i in instructions):
        return None
    text = _Copies(instructions, source).module.to_text()
    try:
        return text if parse_hlo(text, verify=False).to_text() == text else None
    except HlokitError:
        return None


def instructions_of(text: str) -> list[Instruction]:
    """The instructions, in the order in which kept_text was given them."""
    return list(parse_hlo(text, verify=False).entry.root.operands)


class _Copies:
    """Copies of instructions in a module of their own, with the computations that they call."""

    def __init__(self, instructions: Sequence[Instruction], source: HloModule) -> None:
        self.module = HloModule(source.name)
        self.module.frontend_attributes = dict(source.frontend_attributes)
        self.module.replica_count, self.module.num_partitions = source.replica_count, source.num_partitions
        self._called: dict[Computation, Computation] = {}
        entry = Computation("steps", self.module)
        copies = [self._copy(instruction, entry) for instruction in instructions]
        entry.set_root(entry.add_unchecked(Tuple(), copies, (), Tuple().infer(*(c.shape for c in copies))))
        for computation in self._called.values():
            self.module.add_computation(computation)
        self.module.add_computation(entry, entry=True)
        self.module.settle()

    def _copy(self, instruction: Instruction, entry: Computation) -> Instruction:
        operands: list[Instruction] = []
        for operand in instruction.operands:
            number = len(entry.parameters)
            operands.append(entry.add_unchecked(Parameter(number, operand.shape), (), (), operand.shape, f"p{number}"))
        called = [self._callee(computation) for computation in instruction.called]
        copy = entry.add_unchecked(instruction.op, operands, called, instruction.shape, instruction.name)
        if instruction.extra is not None:
            copy.extra = replace(instruction.extra, control_predecessors=[])
        return copy

    def _callee(self, computation: Computation) -> Computation:
        found = self._called.get(computation)
        if found is None:
            found = computation.clone(computation.name, self.module)
            for instruction in found.instructions:
                instruction.called = tuple(map(self._callee, instruction.called))
            self._called[computation] = found
        return found
