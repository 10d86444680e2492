"""conditional-simplifier: replaces a conditional whose branch is known, and computes all branches of cheap ones."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.comparison import Compare
from hlokit.ops.control_flow import Call, Conditional, While
from hlokit.ops.elementwise import Select
from hlokit.ops.structure import Constant, GetTupleElement, Parameter, Tuple
from hlokit.passes.dce import DeadCode
from hlokit.passes.loop_rewriting import elements_of, is_free, tied_by_control
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import is_plain, scalar_of
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class ConditionalSimplifier(Pass):
    """conditional(constant, ...) is the branch that it selects; one with a single branch, or equal ones, is that.

    In loops, branches of at most `work` operations on numbers are all computed, and the result selected: which branch
    comes next cannot be foretold.
    """

    name = "conditional-simplifier"
    work: int = 0
    branches: int = 4

    def run(self, module: HloModule) -> bool:
        changed = False
        effects: dict[Computation, bool] = {}
        repeated = _in_loops(module) if self.work else set[Computation]()
        for computation in module.computations():
            tied = tied_by_control(computation)
            turns = sum(has_side_effect(i, effects) for i in computation.instructions)
            for instruction in computation.post_order():
                number = _branch(instruction)
                if number is None and (computation not in repeated or not self._is_cheap(instruction)):
                    continue
                if not is_free(instruction, tied) or (turns > 1 and has_side_effect(instruction, effects)):
                    continue  # a branch's effect would have another turn
                if number is None:
                    result = _selected(instruction, computation)
                else:
                    operand, callee = instruction.operands[1 + number], instruction.called[number]
                    if callee.parameters[0].shape.logical is not operand.shape.logical:
                        continue  # a branch may take a dynamic value as a whole one (DYN-16)
                    result = computation.inline(computation.add(Call(False), [operand], [callee]))
                computation.replace(instruction, result)
                computation.remove(instruction)
                changed = True
        if changed:
            DeadCode().run(module)
        return changed

    def _is_cheap(self, instruction: Instruction) -> bool:
        """Whether its branches cost less than to choose between them."""
        if not isinstance(instruction.op, Conditional) or len(instruction.called) > self.branches:
            return False
        if not is_plain(instruction) or not all(leaf.is_array for leaf in _elements(instruction.shape)):
            return False
        return all(_work(branch) <= self.work for branch in instruction.called)


def _in_loops(module: HloModule) -> set[Computation]:
    """The computations that loops run."""
    found: set[Computation] = set()
    for computation in reversed(module.computations()):  # callers first
        for instruction in computation.instructions:
            if computation in found or isinstance(instruction.op, While):
                found.update(instruction.called)
    return found


def _work(branch: Computation) -> float:
    """Operations of a branch that does nothing but arithmetic; infinity for others."""
    total = 0
    for instruction in branch.instructions:
        op = instruction.op
        if isinstance(op, (Parameter, Tuple, GetTupleElement)):
            continue
        if op.form not in ("map", "index") or instruction.called or op.transcendental or not is_plain(instruction):
            return float("inf")
        total += instruction.shape.size
    return total + sum(leaf.size for leaf in _elements(branch.root.shape) if leaf.is_array)


def _elements(shape: Shape) -> list[Shape]:
    return list(shape.elements) if shape.is_tuple else [shape]


def _selected(instruction: Instruction, computation: Computation) -> Instruction:
    """All branches, and of their results those that the selector says."""
    add = computation.add
    selector, *operands = instruction.operands
    results = [
        computation.inline(add(Call(False), [o], [c])) for o, c in zip(operands, instruction.called, strict=True)
    ]
    if selector.shape.dtype.kind == "pred":
        tests = [selector]
    else:
        numbers = [add(Constant(Literal.of(k, selector.shape.dtype[()]))) for k in range(len(results) - 1)]
        tests = [add(Compare("EQ", None, None), [selector, number]) for number in numbers]
    leaves = [elements_of(result) if instruction.shape.is_tuple else [result] for result in results]
    chosen: list[Instruction] = []
    for *first, last in zip(*leaves, strict=True):
        for test, value in zip(reversed(tests), reversed(first), strict=True):
            last = add(Select(), [test, value, last])
        chosen.append(last)
    return add(Tuple(), chosen, shape=instruction.shape.logical) if instruction.shape.is_tuple else chosen[0]


def _branch(instruction: Instruction) -> int | None:
    """The branch that runs, if it is known; a number outside selects the last (COND-3)."""
    if not isinstance(instruction.op, Conditional) or instruction.shape.is_dynamic:
        return None
    selector, *operands = instruction.operands
    branches = list(zip(operands, instruction.called, strict=True))
    if all(branch == branches[0] for branch in branches):
        return 0
    value = scalar_of(selector)
    if value is None:
        return None
    if selector.shape.dtype.kind == "pred":
        return 0 if value else 1
    last = len(branches) - 1
    return int(value) if 0 <= value <= last else last
