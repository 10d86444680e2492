"""while-loop-simplifier: removes loops that run at most once, and unused elements of a loop's state."""

from __future__ import annotations

from hlokit.analysis.loops import carried, counter, invariants
from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import Call, While
from hlokit.ops.structure import GetTupleElement
from hlokit.passes.dce import DeadCode
from hlokit.passes.loop_rewriting import (
    elements_of,
    is_free,
    take_over,
    tied_by_control,
    uses_elements_only,
    with_elements,
)
from hlokit.passes.pipeline import Pass


class WhileLoopSimplifier(Pass):
    """A loop with 0 trips is its start, one with 1 trip its body once.

    An element of the state that stays as it is has its first value after the loop too; one that nobody needs, neither
    the condition, nor an effect, nor what is needed, is dropped. Loops that might not end, or have an effect, stay.
    """

    name = "while-loop-simplifier"

    def run(self, module: HloModule) -> bool:
        changed = False
        effects: dict[Computation, bool] = {}
        for computation in module.computations():
            tied = tied_by_control(computation)
            for loop in computation.post_order():
                if isinstance(loop.op, While) and not loop.shape.is_dynamic and is_free(loop, tied):
                    changed |= _few_trips(loop, effects) or _fewer_elements(loop, effects)
        if changed:
            DeadCode().run(module)
        return changed


def _few_trips(loop: Instruction, effects: dict[Computation, bool]) -> bool:
    found, computation, init = counter(loop), loop.parent, loop.operands[0]
    assert computation is not None
    if (
        found is None
        or found.trips > 1
        or (found.trips and has_side_effect(loop, effects))
        or any(_is_dynamic(c) for c in loop.called)
    ):
        return False
    if found.trips == 0:
        result = init
    else:
        result = computation.inline(computation.add(Call(False), [init], [loop.called[1]]))
    computation.replace(loop, result)
    computation.remove(loop)
    return True


def _is_dynamic(computation: Computation) -> bool:
    """Whether its parameter or result is dynamic, unlike the state of the loop."""
    return computation.parameters[0].shape.is_dynamic or computation.root.shape.is_dynamic


def _fewer_elements(loop: Instruction, effects: dict[Computation, bool]) -> bool:
    """Drops dead elements, and gives the first value of invariant ones to those who take them after the loop."""
    condition, body = loop.called
    if not loop.shape.is_tuple or not uses_elements_only(condition) or not uses_elements_only(body):
        return False
    if body.root.opcode != "tuple" or body.root.users or any(_is_dynamic(c) for c in loop.called):
        return False
    same = set(invariants(loop))
    whole = loop.is_root or not all(map(_is_element, loop.users))
    after = set(range(len(loop.shape.elements))) if whole else {_index(user) for user in loop.users}
    needed = _needed(condition, body, after - same, effects)
    keep = [i for i in range(len(loop.shape.elements)) if i in needed]
    if len(keep) == len(loop.shape.elements) or has_side_effect(loop, effects):
        return _first_values(loop, same)  # a new loop's effects would have another turn
    init = elements_of(loop.operands[0])
    new = with_elements(loop, keep, (), {})
    take_over(loop, [init[i] if i in same else new[i] or init[i] for i in range(len(init))])
    return True


def _first_values(loop: Instruction, same: set[int]) -> bool:
    """Users of what stays as it is take it from before the loop."""
    computation, start = loop.parent, loop.operands[0]
    assert computation is not None
    changed = False
    for user in list(loop.users):
        if _is_element(user) and _index(user) in same and (user.users or user.is_root) and start.opcode == "tuple":
            computation.replace(user, start.operands[_index(user)])
            changed = True
    return changed


def _is_element(user: Instruction) -> bool:
    return isinstance(user.op, GetTupleElement)


def _index(user: Instruction) -> int:
    assert isinstance(user.op, GetTupleElement)
    return user.op.index


def _needed(condition: Computation, body: Computation, after: set[int], effects: dict[Computation, bool]) -> set[int]:
    """The elements that the condition, an effect, or an element that is needed itself takes."""
    needed: set[int] = set()
    seen: set[Instruction] = set()

    def mark(roots: list[Instruction], computation: Computation) -> None:
        stack = roots
        while stack:
            instruction = stack.pop()
            if instruction in seen:
                continue
            seen.add(instruction)
            place = carried(instruction, computation)
            if place:
                pending.append(place[0])
            stack.extend(instruction.operands)
            stack.extend(instruction.control_predecessors)

    pending = list(after)
    for computation in (condition, body):
        mark([i for i in computation.instructions if has_side_effect(i, effects)], computation)
    mark([condition.root], condition)
    while pending:
        element = pending.pop()
        if element not in needed:
            needed.add(element)
            mark([body.root.operands[element]], body)
    return needed
