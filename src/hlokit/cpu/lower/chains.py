"""Chains: a batched product, loops over its result and a product of that, run one batch index after the other, so that
the values between them stay in the cache (attention's scores)."""

from __future__ import annotations

from math import prod
from typing import cast

from hlokit.cpu.loops.expr import Buffer, LoopAxis, reachable, with_combiner
from hlokit.cpu.loops.nest import Loops
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.steps import ConditionalStep, KernelStep, RoutineStep, Step, StepBlock, WhileStep
from hlokit.forms.affine import Affine
from hlokit.forms.contraction import Contraction, Move

_LEAST = 4 << 20
"""Bytes between the two products for which a chain is worth it: less is in the cache anyway."""

_SLAB = (1 << 15, 1 << 21)
"""Bytes of one batch index: not so few that calls are felt, not more than a core's cache holds."""


def link(block: StepBlock, context: Context) -> None:
    """Finds the chains of the block and of the blocks in it, and makes their steps go by batch indices."""
    if context.strict:
        return
    for step in block.steps:
        if isinstance(step, WhileStep):
            link(step.body, context)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                link(branch, context)
    for first, loops, last in zip(block.steps, block.steps[1:], block.steps[2:]):
        if not isinstance(first, RoutineStep) or not isinstance(loops, KernelStep) or not isinstance(last, RoutineStep):
            continue
        groups = _groups(first)
        if groups < 4 or first.groups or not _suits(first, loops, last, groups):
            continue
        first.groups = last.groups = groups
        axis = loops.loops.order[0]
        loops.loops.parallel, loops.loops.chunk, loops.loops.chunks = 1, axis.extent // groups, groups
        loops.loops.streamed = False
        block.chains.append((first, loops, last))
        context.reasons.add(
            last.name, "chained", f"with {first.name} and {loops.name}, {groups} batch indices one by one"
        )


def _groups(step: RoutineStep) -> int:
    """The batch indices of a product; 0 if it is none, or what it stores does not lie by them."""
    product = _product(step)
    if product is None:
        return 0
    if step.epilogue is not None and any(
        store.place is not step.epilogue.place for store in step.epilogue.kernel.loops.stores
    ):
        return 0
    return prod(d.size for d in product.having("batch"))


def _product(step: RoutineStep) -> Contraction | None:
    """The operands of a step, if it is a plain product whose operands are there as they are."""
    op, operands = step.instructions[0].op, step.instructions[0].operands
    if op.form != "contraction" or step.packed is not None or step.prologue is not None or step.starts:
        return None
    product = op.contraction([operand.shape for operand in operands])
    is_plain = product.windows is None and product.groups is None and not product.is_scaled
    return product if is_plain else None


def _suits(first: RoutineStep, kernel: KernelStep, last: RoutineStep, groups: int) -> bool:
    between = set(first.writes) & set(kernel.reads)
    if not between or sum(b.nbytes for b in between) < _LEAST:
        return False
    if not all(_SLAB[0] <= buffer.nbytes // groups <= _SLAB[1] for buffer in between):
        return False
    loops = kernel.loops
    if kernel.source is not None or loops.serial or loops.parted is not None or loops.tile is not None:
        return False
    axis = loops.order[0]
    if axis is loops.vector or axis.extent % groups or axis in loops.pieces:
        return False
    made = set(kernel.writes) | set(first.writes)
    return _goes_by(loops, axis, groups, made) and _reads_by_batch(last, made, groups)


def _goes_by(loops: Loops, axis: LoopAxis, groups: int, buffers: set[Buffer]) -> bool:
    """Whether the kernel's accesses to the buffers are, for each batch index, in that index's part."""
    nodes = reachable([root for store in loops.stores for root in (store.node, *store.guards)], with_combiner)
    if any(node.op == "current" or (node.op == "fold" and node.data.scan is axis) for node in nodes):
        return False
    if any(node.op == "fold" and axis in node.data.bound for node in nodes):
        return False
    places = [(node.data[0], node.data[1]) for node in nodes if node.op == "load"]
    places += [(store.buffer, store.place) for store in loops.stores]
    return all(_is_inside(place, axis, groups, buffer) for buffer, place in places if buffer in buffers)


def _is_inside(place: Affine, axis: LoopAxis, groups: int, buffer: Buffer) -> bool:
    step = place.coefficient(axis)
    rest = place - Affine.of(axis) * step
    return step * axis.extent == buffer.size and rest.low >= 0 and rest.high < step


def _reads_by_batch(last: RoutineStep, made: set[Buffer], groups: int) -> bool:
    """Whether the product reads what the chain has made by its batch dimensions alone."""
    product = _product(last)
    if product is None or last.groups:
        return False
    used = False
    batch = product.having("batch")
    for number, moves in enumerate(([d.lhs for d in batch], [d.rhs for d in batch])):
        if last.table[number] in made:
            sizes = last.instructions[0].operands[number].shape.dimensions
            used = True
            if moves != [Move(k) for k in range(len(moves))] or prod(sizes[: len(moves)]) != groups:
                return False
    if last.epilogue is not None and not made.isdisjoint(last.epilogue.kernel.reads):
        return False
    return used


def internal(block: StepBlock) -> dict[Step, set[Buffer]]:
    """For each step of a chain the buffers that its chain makes before it: these it may change in place."""
    found: dict[Step, set[Buffer]] = {}
    for first, loops, last in cast("list[tuple[Step, Step, Step]]", block.chains):
        found[loops] = set(first.writes)
        found[last] = set()
    return found
