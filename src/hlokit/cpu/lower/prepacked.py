"""Packing of loop-invariant operands of products, once before the loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from hlokit.cpu.kernels.routine import PACKERS, Call
from hlokit.cpu.llvm import Module
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.steps import ConditionalStep, PackStep, RoutineStep, StepBlock, WhileStep
from hlokit.types import dtype as dtypes

MakeCall = Callable[[RoutineStep], Call]


def hoist(block: StepBlock, context: Context, call: MakeCall) -> None:
    """Packs before each loop of the block, and of the blocks in it, what its products would pack in every pass."""
    for step in list(block.steps):
        if isinstance(step, ConditionalStep):
            for branch in step.branches:
                hoist(branch, context, call)
        elif isinstance(step, WhileStep):
            hoist(step.body, context, call)
            packs = _packs(step, context, call)
            at = block.steps.index(step)
            block.steps[at:at] = packs


def _packs(loop: WhileStep, context: Context, call: MakeCall) -> list[PackStep]:
    changed = {buffer for pair in loop.carries for buffer in pair}
    changed |= {buffer for step in (*loop.condition.steps, *loop.body.steps) for buffer in step.writes}
    packs: list[PackStep] = []
    packed: dict[Hashable, Buffer] = {}  # what products of the same shapes pack in the same way
    for step in loop.body.steps:
        if not isinstance(step, RoutineStep) or step.packed is not None or step.prologue is not None:
            continue
        packer = PACKERS.get(step.routine)
        if packer is None:
            continue
        wanted = call(step)
        packing = packer(wanted, Module())
        if packing is None or step.table[packing.operand] in changed:
            continue
        instruction = step.instructions[0]
        operand = step.table[packing.operand]
        start = step.starts.get(packing.operand, 0)
        key = step.routine, operand, start, packing.operand, wanted.op, wanted.operands, wanted.results
        if key not in packed:
            packed[key] = context.buffer(f"{instruction.name}.packed", dtypes.u8[packing.nbytes])
            packs.append(PackStep((instruction,), (operand,), (packed[key],), step.routine, start))
            loop.reads = (*loop.reads, packed[key])
        step.packed = packing.operand, packed[key]
        step.reads = (*step.reads, packed[key])
        context.reasons.add(instruction.name, "hoisted", f"{operand.name} is packed before the loop")
    return packs
