"""zero-sized-hlo-elimination: replaces arrays without elements by constants."""

from __future__ import annotations

from hlokit.hlo.computation import Computation
from hlokit.hlo.module import HloModule
from hlokit.ops.movement import Broadcast
from hlokit.ops.structure import Constant, Parameter
from hlokit.passes.cse import is_repeatable
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import constant_like, is_plain

_SIMPLE = (Parameter, Constant, Broadcast)


class ZeroSizedHloElimination(Pass):
    """An array without elements is a broadcast to no elements, whatever gave it; effects stay."""

    name = "zero-sized-hlo-elimination"

    def run(self, module: HloModule) -> bool:
        changed = False
        effects: dict[Computation, bool] = {}
        for computation in module.all_computations:
            found = False
            for instruction in computation.post_order():
                shape = instruction.shape
                if not shape.is_array or shape.size or isinstance(instruction.op, _SIMPLE) or not is_plain(instruction):
                    continue
                if is_repeatable(instruction, effects):
                    computation.replace(instruction, constant_like(computation, instruction, 0))
                    found = True
            if found:
                computation.remove_dead()
            changed |= found
        return changed
