"""The cost of a run of a module, counted from shapes: operations and bytes moved.

Loops count once, of a conditional's branches the dearest counts, dynamic dimensions count at their bounds. What an op
takes its card says (`Op.cost`): as XLA's own analysis where that says anything sensible.
"""

from __future__ import annotations

from hlokit.forms.cost import Cost
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule


def cost_of_module(module: HloModule) -> Cost:
    """The cost of one run of the entry computation."""
    costs = costs_of_instructions(module)
    return sum((costs[i] for i in module.entry.instructions), Cost())


def costs_of_instructions(module: HloModule) -> dict[Instruction, Cost]:
    """The cost of one run of each instruction, with what it calls."""
    totals: dict[Computation, Cost] = {}
    costs: dict[Instruction, Cost] = {}
    for computation in module.computations():
        for instruction in computation.instructions:
            operands = [operand.shape for operand in instruction.operands]
            called = [totals[c] for c in instruction.called]
            costs[instruction] = instruction.op.cost(operands, instruction.shape, called)
        totals[computation] = sum((costs[i] for i in computation.instructions), Cost())
    return costs


_MANY = 16
"""Operations that exp, sin and the like count as."""


def operations(instruction: Instruction) -> float:
    """About how many operations a run of one instruction takes. Each instruction of what it calls counts as one, a
    transcendental function as 16."""
    called = [sum(_MANY if i.op.transcendental else 1 for i in c.instructions) for c in instruction.called]
    return instruction.op.operations([o.shape for o in instruction.operands], instruction.shape, called)
