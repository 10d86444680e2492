"""call-inliner: calls become what they call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.interpreter.order import communication_of
from hlokit.ops.control_flow import Call
from hlokit.passes.dce import DeadCode
from hlokit.passes.pipeline import Pass


@dataclass(frozen=True)
class CallInliner(Pass):
    """Replaces call(args) by a copy of the computation, callees first; composites stay whole unless `composites`.

    A copy in place of every call can square the module: computations larger than `limit` that several calls share stay.
    Effects keep their turns, by control dependencies where a call had some; those of communication are left alone.
    """

    name = "call-inliner"
    composites: bool = False
    limit: int = 1000

    def run(self, module: HloModule) -> bool:
        shared = dict.fromkeys(module.all_computations, 0)
        for instruction in module.instructions():
            for callee in instruction.called:
                shared[callee] = shared.get(callee, 0) + 1
        changed = False
        communicates, known = communication_of(), dict[Computation, bool]()
        for computation in module.computations():
            effects = [i for i in computation.post_order() if has_side_effect(i, known) and not communicates(i)]
            copies: dict[Instruction, range] = {}
            waited_for = {p for i in computation.instructions for p in i.control_predecessors}
            for call in computation.post_order():
                if not isinstance(call.op, Call):
                    continue
                (callee,) = call.called
                composite = call.op.is_composite and not self.composites
                if call.control_predecessors or call in waited_for:
                    continue
                if composite or (len(callee) > self.limit and shared[callee] > 1) or not _fits(call):
                    continue
                first = computation.next_id
                computation.inline(call)
                copies[call] = range(first, computation.next_id)
                changed = True
            if any(effect in copies for effect in effects):
                live = {i.id: i for i in computation.instructions if has_side_effect(i, known)}
                _in_turn([live[n] for i in effects for n in copies.get(i, (i.id,)) if n in live])
        if changed:
            DeadCode().run(module)
        return changed


def _fits(call: Instruction) -> bool:
    """Every operand has its parameter's dynamic flags: a call may turn a dynamic value into a whole one (DYN-16)."""
    pairs = zip(call.operands, call.called[0].parameters, strict=True)
    return all(operand.shape.logical is parameter.shape.logical for operand, parameter in pairs)


def _in_turn(effects: Sequence[Instruction]) -> None:
    """Each waits for the one before it."""
    for before, after in pairwise(effects):
        if before not in after.operands and before not in after.control_predecessors:
            after.ensure_extra().control_predecessors.append(before)
