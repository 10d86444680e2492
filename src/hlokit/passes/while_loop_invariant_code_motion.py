"""while-loop-invariant-code-motion: computes loop-invariant values once, before the loop."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.analysis.loops import annotated_trip_count, carried, counter, invariants
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.ops.control_flow import Map, While
from hlokit.ops.conversion import StochasticConvert
from hlokit.ops.elementwise import Divide, Remainder
from hlokit.ops.structure import AfterAll, GetTupleElement, Tuple
from hlokit.passes.cse import is_repeatable
from hlokit.passes.dce import DeadCode
from hlokit.passes.loop_rewriting import (
    copied,
    elements_of,
    is_free,
    take_over,
    tied_by_control,
    uses_elements_only,
    with_elements,
)
from hlokit.passes.pipeline import Pass

_LONG = (Divide, Remainder, Map, StochasticConvert)
"""With the transcendental ones, what takes longer than reading its result; others pay where they read memory."""


@dataclass(frozen=True)
class WhileLoopInvariantCodeMotion(Pass):
    """Moves out what depends on constants and unchanged elements of the state alone, has no effect and costs.

    It becomes an element of the state. What is larger than what it is made of, and than `limit` bytes, stays:
    carrying it would cost more memory than it saves time. Loops that are known to run never or once stay too.
    """

    name = "while-loop-invariant-code-motion"
    limit: int = 1 << 16

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.computations():  # inner loops first: what leaves them may leave the outer ones
            tied = tied_by_control(computation)
            for loop in computation.post_order():
                if isinstance(loop.op, While) and not loop.shape.is_dynamic and is_free(loop, tied):
                    changed |= self._moved(loop)
        if changed:
            DeadCode().run(module)
        return changed

    def _moved(self, loop: Instruction) -> bool:
        condition, body = loop.called
        if not loop.shape.is_tuple or not uses_elements_only(condition) or not uses_elements_only(body):
            return False
        if body.root.opcode != "tuple" or body.root.users or body.parameters[0].shape.is_dynamic:
            return False
        trips = annotated_trip_count(loop)
        found = counter(loop) if trips is None else None
        if (trips is not None and trips <= 1) or (found is not None and found.trips <= 1):
            return False
        same = set(invariants(loop))
        invariant = _invariant(body, same)
        moved = [i for i in body.post_order() if i in invariant and self._leaves(i, invariant)]
        if not moved:
            return False
        init = elements_of(loop.operands[0])
        values: dict[Instruction, Instruction] = {}
        outer = [_outside(i, loop, init, values) for i in moved]
        known = {instruction: n for n, instruction in enumerate(moved)}
        elements = with_elements(loop, range(len(init)), outer, known)
        take_over(loop, [e for e in elements if e is not None])
        return True

    def _leaves(self, instruction: Instruction, invariant: dict[Instruction, bool]) -> bool:
        """It costs, something that stays needs it, and it is small enough to be carried."""
        if not invariant[instruction] or not instruction.shape.is_array or _is_cheap(instruction.op):
            return False
        if all(user in invariant and user.shape.is_array and not _is_cheap(user.op) for user in instruction.users):
            return False
        made_of = sum(o.shape.nbytes for o in dict.fromkeys(instruction.operands))
        return instruction.shape.nbytes <= max(self.limit, made_of)


def _is_cheap(op: Op) -> bool:
    """A consumer computes it as it reads: it moves out only below something that costs."""
    if isinstance(op, (Tuple, GetTupleElement, AfterAll)) or op.arity == 0:
        return True
    return op.arity == 1 and (op.same_elements or op.reads_layout)


def _invariant(body: Computation, same: set[int]) -> dict[Instruction, bool]:
    """The instructions that every pass computes alike; whether something that costs is among what they are made of."""
    costs: dict[Instruction, bool] = {}
    reads: dict[Instruction, bool] = {}  # something carried, other than scalars
    effects: dict[Computation, bool] = {}
    for instruction in body.post_order():
        op, operands, place = instruction.op, instruction.operands, carried(instruction, body)
        if place:
            if place[0] in same:
                costs[instruction], reads[instruction] = False, instruction.shape.nbytes > 16
        elif place is None and instruction is not body.root and all(operand in costs for operand in operands):
            if op.asks_device or not is_repeatable(instruction, effects):
                continue
            reads[instruction] = any(reads[o] for o in operands)
            itself = op.form != "map" or (
                instruction.shape.size > 1 and (op.transcendental or isinstance(op, _LONG) or reads[instruction])
            )
            costs[instruction] = any(costs[o] for o in operands) or (itself and not _is_cheap(op))
    return costs


def _outside(
    instruction: Instruction, loop: Instruction, init: list[Instruction], values: dict[Instruction, Instruction]
) -> Instruction:
    """A copy before the loop, with all that it is made of."""
    body, computation = loop.called[1], loop.parent
    assert computation is not None
    stack = [instruction]
    while stack:
        one = stack[-1]
        place = carried(one, body)
        missing = [] if one in values or place else [o for o in one.operands if o not in values]
        if missing:
            stack += missing
            continue
        stack.pop()
        if one not in values:
            values[one] = init[place[0]] if place else copied(one, computation, [values[o] for o in one.operands])
    return values[instruction]
