"""while-loop-range-simplifier: simplifies what a counter's range determines: `i < 0 ? i + n : i` is i."""

from __future__ import annotations

from hlokit.analysis.loops import Counter, carried, counter
from hlokit.analysis.ranges import Range
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import While
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.conversions import compared
from hlokit.passes.simplify.rules import constant_like


class WhileLoopRangeSimplifier(Pass):
    """Comparisons in the body of a counted loop that its counter's range decides become constants.

    Of bodies that only this loop calls.
    """

    name = "while-loop-range-simplifier"

    def run(self, module: HloModule) -> bool:
        calls: dict[Computation, int] = {}
        loops: list[Instruction] = []
        for instruction in module.instructions():
            for callee in instruction.called:
                calls[callee] = calls.get(callee, 0) + 1
            if isinstance(instruction.op, While):
                loops.append(instruction)
        changed = False
        for loop in loops:
            body, found = loop.called[1], counter(loop)
            if found is not None and found.trips and calls[body] == 1:
                changed |= _decided(body, found)
        return changed


def _decided(body: Computation, found: Counter) -> bool:
    ends = found.start, found.start + (found.trips - 1) * found.step
    place = () if found.index is None else (found.index,)
    known: dict[Instruction, Range] = {}
    for instruction in body.instructions:
        if carried(instruction, body) == place:
            known[instruction] = min(ends), max(ends)
    changed = False
    for compare in body.post_order():
        if compare.opcode != "compare" or compare.shape.is_dynamic or not compare.shape.is_array:
            continue
        value = compared(compare, known)
        if value is not None:
            body.replace(compare, constant_like(body, compare, value))
            changed = True
    if changed:
        body.remove_dead()
    return changed
