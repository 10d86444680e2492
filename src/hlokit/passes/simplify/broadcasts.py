"""Identities of broadcasts, reshapes and transposes."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import OPS
from hlokit.ops.conversion import BitcastConvert
from hlokit.ops.elementwise import Select
from hlokit.ops.movement import Bitcast, Broadcast, Transpose
from hlokit.ops.reshaping import Reshape
from hlokit.passes.simplify.rules import filled, like, reshaped, simplifies


@simplifies(Reshape)
def reshape_of_broadcast(instruction: Instruction, computation: Computation) -> Instruction | None:
    """One scalar everywhere stays so; dimensions of size 1 that come or go are not dimensions of the operand."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Broadcast):
        return None
    source = inner.operands[0]
    if source.shape.is_scalar:
        return filled(instruction, source)
    places = _without_ones(inner.shape.dimensions, instruction.shape.dimensions)
    if places is None or any(d not in places for d in inner.op.dimensions):
        return None
    dimensions = tuple(places[d] for d in inner.op.dimensions)
    return like(instruction, Broadcast(dimensions, instruction.shape.logical), source)


def _without_ones(before: Sequence[int], after: Sequence[int]) -> dict[int, int] | None:
    """The dimension that each one becomes where only sizes of 1 come and go; None if more happens."""
    old = [d for d, n in enumerate(before) if n != 1]
    new = [d for d, n in enumerate(after) if n != 1]
    if [before[d] for d in old] != [after[d] for d in new]:
        return None
    return dict(zip(old, new, strict=True))


@simplifies(Broadcast)
def broadcast_of_reshape(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Dimensions of size 1 that a reshape adds are new to the broadcast as well."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Reshape) or not isinstance(instruction.op, Broadcast):
        return None
    source = inner.operands[0]
    if source.shape.rank >= inner.shape.rank or 1 in source.shape.dimensions:
        return None
    places = _without_ones(source.shape.dimensions, inner.shape.dimensions)
    if places is None:
        return None
    dimensions = tuple(instruction.op.dimensions[places[d]] for d in range(source.shape.rank))
    return like(instruction, Broadcast(dimensions, instruction.shape.logical), source)


@simplifies(Broadcast)
def broadcast_to_one(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A broadcast that only adds dimensions of size 1, the others in order, is a reshape."""
    operand, op = instruction.operands[0], instruction.op
    assert isinstance(op, Broadcast)
    in_order = list(op.dimensions) == sorted(op.dimensions)
    return reshaped(operand, instruction.shape.dimensions) if in_order and _same_size(instruction) else None


def _same_size(instruction: Instruction) -> bool:
    return instruction.shape.size == instruction.operands[0].shape.size and instruction.shape.layout is None


@simplifies(Transpose)
def transpose_of_broadcast(instruction: Instruction, computation: Computation) -> Instruction | None:
    """transpose(broadcast(x, d), p) == broadcast(x, inverse p of d)."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Broadcast) or not isinstance(instruction.op, Transpose):
        return None
    place = {d: i for i, d in enumerate(instruction.op.dimensions)}
    dimensions = tuple(place[d] for d in inner.op.dimensions)
    return like(instruction, Broadcast(dimensions, instruction.shape.logical), inner.operands[0])


@simplifies(Transpose)
def transpose_of_ones(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Where only dimensions of size 1 change places, the row-major order stays: a reshape."""
    operand, op = instruction.operands[0], instruction.op
    assert isinstance(op, Transpose)
    real = [d for d in op.dimensions if operand.shape.dimensions[d] != 1]
    if real != sorted(real) or instruction.shape.dtype is not operand.shape.dtype:
        return None
    return like(instruction, Reshape(None, instruction.shape.logical), operand)


@simplifies(Bitcast)
def bitcast_of_default_layouts(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Memory in row-major order read in row-major order, in one type: a reshape."""
    operand = instruction.operands[0]
    if operand.shape.layout is not None or instruction.shape.layout is not None:
        return None
    same = operand.shape.dtype is instruction.shape.dtype and operand.shape.size == instruction.shape.size
    return computation.add(Reshape(None, instruction.shape), [operand]) if same else None


@simplifies(BitcastConvert)
def bitcast_convert_of_bitcast_convert(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Bits read in a second way do not show the first; read in their own type they are the value."""
    operand = instruction.operands[0]
    if operand.shape.dtype is instruction.shape.dtype:
        return operand
    if not isinstance(operand.op, BitcastConvert) or operand.shape.dimensions != instruction.shape.dimensions:
        return None
    source = operand.operands[0]
    if source.shape.dimensions != operand.shape.dimensions:
        return None
    return source if source.shape is instruction.shape else like(instruction, instruction.op, source)


_ELEMENTWISE = tuple(
    op for op in OPS.values() if op.elementwise and op.form == "map" and not op.asks_device and not op.side_effect
)


@simplifies(*_ELEMENTWISE)
def elementwise_of_broadcasts(instruction: Instruction, computation: Computation) -> Instruction | None:
    """f(broadcast(x), broadcast(y)) == broadcast(f(x, y)), for operands that are broadcast alike."""
    operands, op = instruction.operands, instruction.op
    if not operands or not all(isinstance(o.op, Broadcast) for o in operands):
        return None
    first = operands[0]
    assert isinstance(first.op, Broadcast)
    if instruction.shape.dimensions != first.shape.dimensions or first.operands[0].shape.size == first.shape.size:
        return None
    parts = [o.operands[0] for o in operands]
    for operand, part in zip(operands[1:], parts[1:], strict=True):
        assert isinstance(operand.op, Broadcast)
        if operand.op.dimensions != first.op.dimensions or part.shape.dimensions != parts[0].shape.dimensions:
            return None
        if operand.shape.dimensions != first.shape.dimensions:
            return None
    held = op.result_shape
    if held is not None:
        small = instruction.shape.with_dimensions(parts[0].shape.dimensions)
        op = op.replace(**{held.name: small})
    made = computation.add(op, parts)
    return like(instruction, Broadcast(first.op.dimensions, instruction.shape.logical), made)


@simplifies(Select)
def select_of_broadcast_pred(instruction: Instruction, computation: Computation) -> Instruction | None:
    """select(broadcast(p), x, y) of one p == select(p, x, y)."""
    predicate, *cases = instruction.operands
    if not isinstance(predicate.op, Broadcast) or not predicate.operands[0].shape.is_scalar:
        return None
    if not instruction.shape.rank:
        return None
    return like(instruction, instruction.op, predicate.operands[0], *cases)
