"""Identities of data movement: bits are moved, nothing is computed."""

from __future__ import annotations

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.conversion import Convert
from hlokit.ops.elementwise import Copy
from hlokit.ops.movement import Broadcast, Concatenate, Pad, Reverse, Transpose
from hlokit.ops.reshaping import Reshape
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice
from hlokit.passes.simplify.rules import is_plain, simplifies


@simplifies(Transpose)
def transpose_of_transpose(instruction: Instruction, computation: Computation) -> Instruction | None:
    """transpose(transpose(x, p), q) == transpose(x, p[q])."""
    inner, outer = instruction.operands[0], instruction.op
    if not isinstance(outer, Transpose) or not isinstance(inner.op, Transpose):
        return None
    return computation.add(Transpose(tuple(inner.op.dimensions[q] for q in outer.dimensions)), inner.operands)


@simplifies(Transpose, Reshape, Broadcast, Convert, Slice, Pad, Copy)
def to_the_same_shape(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Moving nothing: the result has the operand's shape, and no element changes its place."""
    operand = instruction.operands[0]
    if instruction.shape is not operand.shape:
        return None
    op = instruction.op
    if isinstance(op, (Transpose, Broadcast)) and op.dimensions != tuple(range(operand.shape.rank)):
        return None
    if isinstance(op, Pad) and any(p.edge_padding_low or p.edge_padding_high for p in op.padding):
        return None  # elements move, or holes come for what is cut off
    return operand


@simplifies(Reshape)
def reshape_of_reshape(instruction: Instruction, computation: Computation) -> Instruction | None:
    """reshape(reshape(x)) == reshape(x): the row-major order of elements stays."""
    inner = instruction.operands[0]
    if inner.opcode != "reshape" or not is_plain(inner):
        return None
    return computation.add(instruction.op, inner.operands, shape=instruction.shape)


@simplifies(Broadcast)
def broadcast_of_broadcast(instruction: Instruction, computation: Computation) -> Instruction | None:
    """broadcast(broadcast(x, d), e) == broadcast(x, e[d])."""
    inner, outer = instruction.operands[0], instruction.op
    if not isinstance(outer, Broadcast) or not isinstance(inner.op, Broadcast):
        return None
    dimensions = tuple(outer.dimensions[d] for d in inner.op.dimensions)
    return computation.add(Broadcast(dimensions, instruction.shape.logical), inner.operands, shape=instruction.shape)


@simplifies(Reverse)
def reverse_of_nothing(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Reversing dimensions of size 1, or none, moves nothing."""
    operand = instruction.operands[0]
    still = all(operand.shape.dimensions[d] <= 1 for d in instruction.op.dimensions)  # type: ignore[attr-defined]
    return operand if still else None


@simplifies(Concatenate)
def concatenate_of_one(instruction: Instruction, computation: Computation) -> Instruction | None:
    """One operand, or one that is not empty, is the result."""
    filled = [o for o in instruction.operands if o.shape.size]
    return filled[0] if len(filled) == 1 and filled[0].shape.static is instruction.shape.static else None


@simplifies(DynamicSlice)
def dynamic_slice_of_all(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A slice as large as the operand starts at 0, wherever it is asked to (DSLICE-2)."""
    operand = instruction.operands[0]
    return operand if operand.shape is instruction.shape else None


@simplifies(DynamicUpdateSlice)
def dynamic_update_slice_of_all(instruction: Instruction, computation: Computation) -> Instruction | None:
    """An update as large as the operand replaces all of it (DUS-2)."""
    operand, update = instruction.operands[:2]
    return update if operand.shape is update.shape else None
