"""Manual regions: their boundaries, and the collectives inside.

A region begins where a whole value becomes each device's shard (the custom call SPMDFullToShardShape) and ends where
shards become a whole value (SPMDShardToFullShape). A shard is a value of its own sizes, and each device along the
manual axes has another one; along the other axes it is divided like any other value. So both ends leave the parts as
they are, and count the manual axes among those that divide the value, or not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hlokit.errors import ShapeError, UnsupportedError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.collectives import AllGather, AllReduce, CollectiveReduce, PartitionId, ReduceScatter, ReplicaId
from hlokit.ops.custom import CustomCall
from hlokit.ops.exchanges import AllToAll, CollectiveBroadcast, CollectivePermute, RaggedAllToAll
from hlokit.passes.partitioner.placement import Grid, Parts, Placement
from hlokit.stablehlo.manual import BARRIER_FROM, BARRIER_TO
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

if TYPE_CHECKING:
    from hlokit.passes.partitioner.lowering import Leaf, Lowering, Value

TO_SHARD, TO_WHOLE, SHARDING = "SPMDFullToShardShape", "SPMDShardToFullShape", "Sharding"
"""Targets of custom calls: the ends of a region, and a value with a sharding."""


_TARGETS = (TO_SHARD, TO_WHOLE, SHARDING, BARRIER_FROM, BARRIER_TO)


def target_of(instruction: Instruction) -> str:
    """The target of a custom call that is one of these; else ""."""
    op = instruction.op
    found = op.custom_call_target if isinstance(op, CustomCall) else ""
    return found if found in _TARGETS and len(instruction.operands) == 1 else ""


def has_regions(instructions: list[Instruction]) -> bool:
    """Whether there is a region among the instructions of a module."""
    return any(target_of(instruction) in (TO_SHARD, TO_WHOLE) for instruction in instructions)


def within_regions(module: HloModule) -> set[Instruction]:
    """The instructions between the ends of regions, with all of the computations that they call."""
    found: set[Instruction] = set()
    for computation in reversed(module.computations()):  # callers before what they call
        order = computation.post_order()
        for instruction in order:
            after = any(o in found and target_of(o) != TO_WHOLE for o in instruction.operands)
            if target_of(instruction) == TO_SHARD or (after and target_of(instruction) != TO_WHOLE):
                found.add(instruction)
        for instruction in reversed(order):
            before = any(u in found or target_of(u) == TO_WHOLE for u in instruction.users)
            if before and target_of(instruction) != TO_WHOLE and not _begins(instruction):
                found.add(instruction)
        for instruction in order:
            if instruction in found:
                found.update(i for called in instruction.called for i in called.instructions)
    return found


def _begins(instruction: Instruction) -> bool:
    """Whether the value is whole, and a region begins at one of its users."""
    return any(target_of(user) == TO_SHARD for user in instruction.users)


def entered(lowering: Lowering, instruction: Instruction, leaf: Leaf) -> Leaf:
    """The shard of a value on each device, as the operand's sharding says it."""
    grid, (operand,) = lowering.grid, instruction.operands
    manual = _manual(grid, instruction)
    said, is_open = _said(grid, operand)
    sizes = instruction.shape.dimensions
    used = {part for along in said.dimensions for part in along} | set(said.unreduced) | set(manual)
    dimensions: list[Parts] = []
    for d, along in enumerate(said.dimensions):
        first = _divided_by_hand(instruction, d, along, manual)
        now = leaf.placement.dimensions[d]
        more = now[len(along) :] if now[: len(along)] == along else ()
        if is_open[d] and more and not used & set(more):
            along = now
            used |= set(more)
        if operand.shape.dimensions[d] != sizes[d] * grid.count(first):
            raise ShapeError("PART-6", f"dimension {d} of {instruction.name}", str(instruction.shape),
                             f"{operand.shape} in {grid.count(first)} parts")  # fmt: skip
        if sizes[d] % grid.count(along[len(first) :]):
            along = first
        dimensions.append(along)
    target = Placement(tuple(dimensions), said.unreduced)
    because = "a manual region begins here and requires this placement"
    moved = lowering.resharded(instruction, leaf, target, "operand 0", because)
    free = tuple(tuple(p for p in along if p not in manual) for along in dimensions)
    return replace(moved, sizes=sizes, placement=Placement(free))


def left(lowering: Lowering, instruction: Instruction, leaf: Leaf) -> Leaf:
    """The whole value that devices have shards of, as the sharding says it."""
    grid, (operand,) = lowering.grid, instruction.operands
    manual = _manual(grid, operand)
    said, is_open = _said(grid, instruction)
    dimensions: list[Parts] = []
    free: list[Parts] = []
    used = {part for along in said.dimensions for part in along}
    for d, along in enumerate(said.dimensions):
        first = _divided_by_hand(instruction, d, along, manual)
        size = operand.shape.dimensions[d]
        if instruction.shape.dimensions[d] != size * grid.count(first):
            raise ShapeError("PART-6", f"dimension {d} of {operand.name}", str(operand.shape),
                             f"{instruction.shape} in {grid.count(first)} parts")  # fmt: skip
        now = leaf.placement.dimensions[d]
        rest = now if is_open[d] and not set(now) & used else along[len(first) :]
        used |= set(rest)
        rest = rest if size % grid.count(rest) == 0 else ()
        dimensions.append((*first, *rest))
        free.append(rest)
    because = "a manual region ends here and returns this placement"
    moved = lowering.resharded(instruction, leaf, Placement(tuple(free)), "result", because)
    unreduced = tuple(part for part in said.unreduced if part in manual)
    return replace(moved, sizes=instruction.shape.dimensions, placement=Placement(tuple(dimensions), unreduced))


def collective(lowering: Lowering, instruction: Instruction) -> Value:
    """A collective of a region on the parts that devices have along the other axes."""
    op, grid = instruction.op, lowering.grid
    if isinstance(op, ReplicaId):
        return lowering.taken_apart(lowering.builder.emit(op, []), instruction.shape, [Placement.whole(0)])
    if isinstance(op, PartitionId):
        return lowering.taken_apart(lowering.builder.emit(op, []), instruction.shape, [Placement.whole(0)])
    moved = _moved(instruction)
    if moved is None or getattr(op, "channel_id", 1) is None:
        raise UnsupportedError(f"partition: {op.opcode} ({instruction.name}) in a region")
    given: list[Leaf] = []
    for number, operand in enumerate(instruction.operands):
        leaf = lowering.leaf(operand)
        along = leaf.placement.dimensions
        kept = tuple(() if d in moved or moved == (-1,) else parts for d, parts in enumerate(along))
        because = f"{op.opcode} moves elements along this dimension, or needs all of them"
        given.append(lowering.resharded(instruction, leaf, Placement(kept), f"operand {number}", because))
    results = list(instruction.shape.leaves())
    placements = [leaf.placement for leaf in given]
    if len(placements) != len(results):
        placements = [placements[0]] * len(results) if results else []
    if any(len(p.dimensions) != s.rank for p, s in zip(placements, results, strict=True)):
        raise UnsupportedError(f"partition: {op.opcode} ({instruction.name}) in a region, of {instruction.shape}")
    local = [Shape.array(s.dtype, grid.local(s.dimensions, p)) for s, p in zip(results, placements, strict=True)]
    shape = Shape.tuple(local) if instruction.shape.is_tuple else local[0]
    own = op.resized([leaf.part.shape for leaf in given], shape)
    made = lowering.builder.emit(own, [leaf.part for leaf in given], instruction.called, shape=shape)
    return lowering.taken_apart(made, instruction.shape, placements)


def _moved(instruction: Instruction) -> tuple[int, ...] | None:
    """The dimensions along which a collective moves elements, (-1,) for all; None for one that is none of these."""
    op = instruction.op
    if isinstance(op, (AllReduce, CollectivePermute, CollectiveBroadcast)):
        return ()
    if isinstance(op, (AllGather, ReduceScatter)):
        return (op.dimension,)
    if isinstance(op, AllToAll):
        return () if op.dimension is None else (op.dimension,)
    return (-1,) if isinstance(op, (RaggedAllToAll, CollectiveReduce)) else None


def _manual(grid: Grid, instruction: Instruction) -> Parts:
    """The manual axes that a shard's sharding names."""
    extra = instruction.extra
    return grid.manual(extra.sharding if extra is not None else None, instruction.shape.rank)


def _said(grid: Grid, instruction: Instruction) -> tuple[Placement, tuple[bool, ...]]:
    """Where a whole value lies, and which of its dimensions may be divided further."""
    extra, rank = instruction.extra, instruction.shape.rank
    sharding: Sharding | None = extra.sharding if extra is not None else None
    if sharding is None:
        return Placement.whole(rank), (False,) * rank
    named = sharding.named
    is_open = tuple(d.is_open for d in named.dimensions) if named is not None and named.dimensions else (False,) * rank
    return grid.placement(sharding, rank) or Placement.whole(rank), is_open


def _divided_by_hand(instruction: Instruction, d: int, along: Parts, manual: Parts) -> Parts:
    """The manual parts that a dimension is divided along, which are its first."""
    count = sum(part in manual for part in along)
    first = along[:count]
    if any(part not in manual for part in first):
        raise ShapeError("PART-6", f"dimension {d} of {instruction.name}", str(along), "manual axes before others")
    return first


__all__ = [
    "SHARDING", "TO_SHARD", "TO_WHOLE", "collective", "entered", "has_regions", "left", "target_of", "within_regions",
]  # fmt: skip
