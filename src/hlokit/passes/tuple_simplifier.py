"""tuple-simplifier: an element taken out of a tuple just made is that element."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.hlo.module import HloModule
from hlokit.ops.structure import GetTupleElement
from hlokit.passes.pipeline import Pass


@dataclass(frozen=True)
class TupleSimplifier(Pass):
    """get-tuple-element(tuple(a, b, ...), i) == the i-th."""

    name = "tuple-simplifier"

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            before = computation.version
            for instruction in list(computation.post_order()):
                op = instruction.op
                if isinstance(op, GetTupleElement) and instruction.operands[0].opcode == "tuple":
                    computation.replace(instruction, instruction.operands[0].operands[op.index])
            if computation.version != before:
                computation.remove_dead()
                changed = True
        return changed
