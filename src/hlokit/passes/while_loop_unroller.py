"""while-loop-unroller: unrolls loops of few iterations over elementwise ops."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.analysis.loops import counter
from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import Call, While
from hlokit.passes.pipeline import Pass

_FUSIBLE = ("map", "index", "control")


@dataclass(frozen=True)
class WhileLoopUnroller(Pass):
    """while(init) == body(...body(init)) for a counted loop.

    Only for at most `trips` passes, `size` instructions in all, and bodies that a kernel can hold together: so that
    what a pass leaves in registers needs no memory before the next.
    """

    name = "while-loop-unroller"
    trips: int = 8
    size: int = 600

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            for instruction in computation.post_order():
                if isinstance(instruction.op, While) and (trips := self._trips(instruction)) is not None:
                    _unroll(instruction, trips, computation)
                    changed = True
            if changed:
                computation.remove_dead()
        return changed

    def _trips(self, loop: Instruction) -> int | None:
        found = counter(loop)
        body = loop.called[1]
        if found is None or found.trips > self.trips or found.trips * len(body) > self.size:
            return None
        is_plain = all(i.op.form in _FUSIBLE and (not i.called or i.op.form == "map") for i in body.instructions)
        return found.trips if is_plain and not any(map(has_side_effect, body.instructions)) else None


def _unroll(loop: Instruction, trips: int, computation: Computation) -> None:
    state, body = loop.operands[0], loop.called[1]
    for _ in range(trips):
        state = computation.inline(computation.add(Call(False), [state], called=[body]))
    computation.replace(loop, state)
