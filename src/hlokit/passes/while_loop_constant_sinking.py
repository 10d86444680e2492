"""while-loop-constant-sinking: moves constants that a loop only carries into the loop."""

from __future__ import annotations

from hlokit.analysis.loops import carried, initial, invariants
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import While
from hlokit.ops.structure import Constant
from hlokit.passes.loop_rewriting import copied
from hlokit.passes.pipeline import Pass


class WhileLoopConstantSinking(Pass):
    """get-tuple-element(state, i) == c inside the loop, where the state starts with c, which no pass changes.

    Constants, and broadcasts of such, are copied into computations that only this loop calls.
    """

    name = "while-loop-constant-sinking"

    def run(self, module: HloModule) -> bool:
        calls: dict[Computation, int] = {}
        for instruction in module.instructions():
            for callee in instruction.called:
                calls[callee] = calls.get(callee, 0) + 1
        changed = False
        for computation in reversed(module.computations()):  # outer loops first: an inner one may carry it further
            for loop in computation.post_order():
                if isinstance(loop.op, While):
                    for index in invariants(loop):
                        constant = initial(loop, (index,))
                        if constant is not None and _is_constant(constant):
                            for callee in (c for c in loop.called if calls[c] == 1):
                                changed |= _sunk(callee, index, constant)
        return changed


def _is_constant(instruction: Instruction) -> bool:
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    return isinstance(instruction.op, Constant) and not instruction.shape.is_dynamic


def _sunk(callee: Computation, index: int, constant: Instruction) -> bool:
    """Whether anyone but the result took the element."""
    found = False
    for element in list(callee.parameters[0].users):
        users = [user for user in element.users if user is not callee.root or user.opcode != "tuple"]
        if carried(element, callee) != (index,) or not (users or callee.root is element):
            continue
        parts = [copied(o, callee, []) for o in constant.operands]
        inside = copied(constant, callee, parts)
        is_body = callee.root.opcode == "tuple"
        if is_body and callee.root in element.users:
            kept = copied(element, callee, element.operands)  # still handed on as it is: an invariant
            callee.replace(element, inside)
            _hand_on(callee, index, kept)
        else:
            callee.replace(element, inside)
        found = True
    return found


def _hand_on(body: Computation, index: int, element: Instruction) -> None:
    """The element of the result is the one of the state again."""
    root = body.root
    parts = list(root.operands)
    parts[index] = element
    new = body.add(root.op, parts, shape=root.shape, name=root.name)
    body.replace(root, new)
    body.remove_dead()
