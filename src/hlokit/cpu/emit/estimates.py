"""Estimates of steps: how long they take, and whether a loop is so short that calls would cost it more."""

from __future__ import annotations

from hlokit.analysis.cost import operations
from hlokit.cpu.loops.expr import reachable
from hlokit.cpu.lower.steps import (
    CallStep,
    ConditionalStep,
    CopyStep,
    KernelStep,
    PackStep,
    RoutineStep,
    Step,
    StepBlock,
    WhileStep,
)

_TIGHT_NS = 3000.0
"""Work of a pass below which a loop is tight."""
_MASKED = 16
"""The most time of a fold that leaves elements out by a mask, as a multiple of one that does not."""
_PRODUCTS = ("dot", "convolution", "cholesky", "triangular-solve")
_FAST = {"f64", "f32", "f16", "bf16", "s8", "u8"}
_FAST_RATE, _RATE = 64.0, 24.0
"""Operations in a nanosecond: of the routines that multiply tiles of fast types, and of the rest."""


def work(block: StepBlock) -> float:
    """Estimated nanoseconds of the block's steps on one thread; of a loop's steps those of one pass. Buffers are
    assigned: from then on nothing changes it."""
    if block.work is None:
        block.work = sum(map(step_work, block.steps))
    return block.work


def step_work(step: Step) -> float:
    """Estimated nanoseconds of a step on one thread; of a loop those of one pass."""
    if isinstance(step, KernelStep):
        return step.loops.work
    if isinstance(step, CopyStep):
        return 0.0 if step.vanished else 0.05 * step.nbytes
    if isinstance(step, (RoutineStep, PackStep)):
        return 100.0 + step.nbytes
    if isinstance(step, WhileStep):
        return work(step.condition) + work(step.body)
    if isinstance(step, ConditionalStep):
        return max(map(work, step.branches), default=0.0)
    if isinstance(step, CallStep):
        return work(step.subprogram.block)
    return 1e5


def duration(step: Step) -> float:
    """Nanoseconds that a kernel, routine or copy may take on one thread: where `work` is too low by far, as for what
    routines compute, for memory that no cache holds and for windows over padding, more."""
    touched = 0.05 * step.nbytes
    if isinstance(step, KernelStep):
        nodes = reachable([store.node for store in step.loops.stores])
        is_masked = any(node.op == "fold" and node.data.valid is not None for node in nodes)
        return max(touched, (_MASKED if is_masked else 1) * step.loops.work)
    if isinstance(step, RoutineStep):
        instruction = step.instructions[0]
        types = {leaf.dtype.name for operand in instruction.operands for leaf in operand.shape.leaves()}
        is_fast = step.routine in _PRODUCTS and types <= _FAST
        return max(touched, operations(instruction) / (_FAST_RATE if is_fast else _RATE))
    return touched


def is_tight(loop: WhileStep) -> bool:
    """Whether calls, pointers and tables would cost a loop more than its work: it is to be one function."""
    if loop.tight is None:
        inside = (*loop.condition.steps, *loop.body.steps)
        loop.tight = step_work(loop) < _TIGHT_NS and all(map(_is_light, inside))
    return loop.tight


def _is_light(step: Step) -> bool:
    if isinstance(step, KernelStep):
        return step.loops.chunks == 1
    if isinstance(step, WhileStep):
        return is_tight(step)
    if isinstance(step, ConditionalStep):
        return all(_is_light(inner) for branch in step.branches for inner in branch.steps)
    return isinstance(step, CopyStep)
