"""tuple-simplifier: removes tuples that are only unpacked, and tuples of all elements of another one."""

from __future__ import annotations

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.structure import GetTupleElement, Tuple
from hlokit.passes.pipeline import Pass


class TupleSimplifier(Pass):
    """get-tuple-element(tuple(a, b, ...), i) == the i-th; tuple(all elements of x in order) == x.

    Results of called computations stay put together: the passes over loops look at the elements.
    """

    name = "tuple-simplifier"

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            before = computation.version
            for instruction in list(computation.post_order()):
                op = instruction.op
                if isinstance(op, GetTupleElement) and instruction.operands[0].opcode == "tuple":
                    computation.replace(instruction, instruction.operands[0].operands[op.index])
                elif isinstance(op, Tuple) and not (instruction.is_root and computation is not module.entry):
                    whole = _taken_apart(instruction)
                    if whole is not None:
                        computation.replace(instruction, whole)
            if computation.version != before:
                computation.remove_dead()
                changed = True
        return changed


def _taken_apart(made: Instruction) -> Instruction | None:
    """The tuple whose elements are all the operands, in order."""
    whole = made.operands[0].operands[0] if made.operands and made.operands[0].operands else None
    if whole is None or whole.shape is not made.shape:
        return None
    for i, operand in enumerate(made.operands):
        if not isinstance(operand.op, GetTupleElement) or operand.op.index != i or operand.operands[0] is not whole:
            return None
    return whole
