"""call-inliner: replaces calls by the called computations."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import Call
from hlokit.passes.dce import DeadCode
from hlokit.passes.effects import Turns
from hlokit.passes.pipeline import Pass

LIMIT = 1000
"""Instructions of a computation up to which each of several calls is replaced by a copy of it."""


@dataclass(frozen=True)
class CallInliner(Pass):
    """Replaces call(args) by a copy of the computation, callees first; composites stay whole unless `composites`.

    A copy in place of every call can square the module: computations above LIMIT that several calls share stay.
    Effects keep their turns, by control dependencies where a call had some; those of communication are left alone.
    """

    name = "call-inliner"
    composites: bool = False

    def run(self, module: HloModule) -> bool:
        shared = dict.fromkeys(module.all_computations, 0)
        for instruction in module.instructions():
            for callee in instruction.called:
                shared[callee] = shared.get(callee, 0) + 1
        changed = False
        turns = Turns()
        for computation in module.computations():
            effects = turns.of(computation)
            copies: dict[Instruction, range] = {}
            waited_for = {p for i in computation.instructions for p in i.control_predecessors}
            for call in computation.post_order():
                if not isinstance(call.op, Call):
                    continue
                (callee,) = call.called
                composite = call.op.is_composite and not self.composites
                if call.control_predecessors or call in waited_for:
                    continue
                if composite or (len(callee) > LIMIT and shared[callee] > 1) or not _fits(call):
                    continue
                first = computation.next_id
                computation.inline(call)
                copies[call] = range(first, computation.next_id)
                changed = True
            turns.keep(computation, effects, copies)
        if changed:
            DeadCode().run(module)
        return changed


def _fits(call: Instruction) -> bool:
    """Every operand has its parameter's dynamic flags: a call may turn a dynamic value into a whole one (DYN-16)."""
    pairs = zip(call.operands, call.called[0].parameters, strict=True)
    return all(operand.shape.logical is parameter.shape.logical for operand, parameter in pairs)
