"""Splitting before propagation: each use of a constant expression or of a computation is given its own copy.

Constants and what is made of them element by element cost nothing to compute where they are used, so that each use may
lie elsewhere; nor do scalars that are broadcast.
"""

from __future__ import annotations

from dataclasses import replace

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import Call, Conditional, While
from hlokit.ops.movement import Broadcast, Iota
from hlokit.ops.reshaping import Reshape
from hlokit.ops.slicing import Slice
from hlokit.ops.structure import Constant


def split(module: HloModule) -> tuple[HloModule, dict[Instruction, Instruction]]:
    """A copy of the module: one user for each constant expression, one caller for each loop, branch and function.

    Returns
    -------
    module : HloModule
        The copy.
    sources : dict of Instruction to Instruction
        For each instruction of the copy the one that it is a copy of.
    """
    copy = module.clone()
    for computation in list(copy.all_computations):
        copy.remove_computation(computation)
    copier = _Copier(copy)
    copy.entry_or_none = copier.copied(module.entry)
    copy.settle()
    return copy, copier.sources


class _Copier:
    """Copies computations of one module into another."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.sources: dict[Instruction, Instruction] = {}
        self._called: dict[Computation, Computation] = {}

    def copied(self, computation: Computation) -> Computation:
        """A copy of a computation, whose uses of constant expressions are their own."""
        copy = Computation(computation.name, self.module)
        copy.execution_thread, copy.backend_config = computation.execution_thread, computation.backend_config
        values: dict[Instruction, Instruction] = {}
        constant: set[Instruction] = set()
        pinned = {p for i in computation.instructions for p in (i, *i.control_predecessors) if i.control_predecessors}
        for instruction in computation.post_order():
            is_split = instruction.shape.is_array and instruction.shape.rank > 0
            if is_split and _is_constant(instruction, constant):
                constant.add(instruction)
            else:
                is_split &= isinstance(instruction.op, Broadcast) and not instruction.operands[0].shape.rank
            if not is_split or instruction is computation.root or instruction in pinned:
                self._copy(instruction, copy, values)
        copy.set_root(values[computation.root])
        return self.module.add_computation(copy)

    def _copy(self, root: Instruction, copy: Computation, values: dict[Instruction, Instruction]) -> None:
        """Copies an instruction, and before it what it is made of that is in no place yet: for this use alone."""
        stack: list[tuple[Instruction, list[Instruction]]] = [(root, [])]
        while stack:
            instruction, operands = stack[-1]
            if len(operands) < len(instruction.operands):
                operand = instruction.operands[len(operands)]
                if operand in values:
                    operands.append(values[operand])
                else:
                    stack.append((operand, []))
                continue
            stack.pop()
            made = self._made(instruction, operands, copy, values)
            if stack:
                stack[-1][1].append(made)
            else:
                values[root] = made

    def _made(
        self,
        instruction: Instruction,
        operands: list[Instruction],
        copy: Computation,
        values: dict[Instruction, Instruction],
    ) -> Instruction:
        is_own = isinstance(instruction.op, (Call, Conditional, While))
        called = tuple(map(self.copied if is_own else self._computation, instruction.called))
        made = copy.add_unchecked(instruction.op, operands, called, instruction.shape, instruction.name)
        if instruction.extra is not None:
            before = [values[p] for p in instruction.extra.control_predecessors if p in values]
            attributes = dict(instruction.extra.frontend_attributes)
            made.extra = replace(instruction.extra, frontend_attributes=attributes, control_predecessors=before)
        self.sources[made] = instruction
        return made

    def _computation(self, computation: Computation) -> Computation:
        """The copy of a computation of scalars, such as a fold's, which all callers share."""
        if computation not in self._called:
            copy = computation.clone(computation.name, self.module)
            for instruction in copy.instructions:
                instruction.called = tuple(map(self._computation, instruction.called))
            self._called[computation] = self.module.add_computation(copy)
        return self._called[computation]


def _is_constant(instruction: Instruction, constant: set[Instruction]) -> bool:
    """Whether it is a constant, or made of constants without communication."""
    op = instruction.op
    if isinstance(op, (Constant, Iota)):
        return True
    if op.form != "map" and not isinstance(op, (Broadcast, Reshape, Slice)):
        return False
    return bool(instruction.operands) and all(
        o in constant or (isinstance(o.op, Constant) and not o.shape.rank) for o in instruction.operands
    )


__all__ = ["split"]
