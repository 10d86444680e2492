"""conditional-simplifier: a conditional whose branch is known is that branch."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import Call, Conditional
from hlokit.passes.dce import DeadCode
from hlokit.passes.loop_rewriting import is_free, tied_by_control
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import scalar_of


@dataclass(frozen=True)
class ConditionalSimplifier(Pass):
    """conditional(constant, ...) is the branch that it selects; one with a single branch, or equal ones, is that."""

    name = "conditional-simplifier"

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.computations():
            tied = tied_by_control(computation)
            for instruction in computation.post_order():
                number = _branch(instruction)
                if number is None or not is_free(instruction, tied):
                    continue
                operand, callee = instruction.operands[1 + number], instruction.called[number]
                if callee.parameters[0].shape.logical is not operand.shape.logical:
                    continue  # a branch may take a dynamic value as a whole one (DYN-16)
                result = computation.inline(computation.add(Call(False), [operand], [callee]))
                computation.replace(instruction, result)
                computation.remove(instruction)
                changed = True
        if changed:
            DeadCode().run(module)
        return changed


def _branch(instruction: Instruction) -> int | None:
    """The branch that runs, if it is known; a number outside selects the last (COND-3)."""
    if not isinstance(instruction.op, Conditional) or instruction.shape.is_dynamic:
        return None
    selector, *operands = instruction.operands
    branches = list(zip(operands, instruction.called, strict=True))
    if all(branch == branches[0] for branch in branches):
        return 0
    value = scalar_of(selector)
    if value is None:
        return None
    if selector.shape.dtype.kind == "pred":
        return 0 if value else 1
    last = len(branches) - 1
    return int(value) if 0 <= value <= last else last
