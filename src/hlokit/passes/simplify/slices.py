"""Identities of slices, pads and concatenations."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import is_ndarray
from hlokit.ops.movement import Broadcast, Concatenate, Iota, Pad, Reverse
from hlokit.ops.reshaping import Reshape
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice, clamped_starts
from hlokit.ops.structure import Constant
from hlokit.passes.simplify.rules import constant_like, filled, like, reshaped, scalar_of, simplifies
from hlokit.types.window import PaddingDimension


def _ranges(instruction: Instruction) -> tuple[tuple[int, int, int], ...]:
    assert isinstance(instruction.op, Slice)
    return instruction.op.ranges


@simplifies(Slice)
def slice_of_slice(instruction: Instruction, computation: Computation) -> Instruction | None:
    """slice(slice(x)) == slice(x): start + stride * inner start, strides multiplied."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Slice):
        return None
    ranges: list[tuple[int, int, int]] = []
    sizes = instruction.shape.dimensions
    for (start, _, stride), (first, _, step), size in zip(_ranges(inner), _ranges(instruction), sizes, strict=True):
        begin, every = start + stride * first, stride * step
        ranges.append((begin, begin + max(0, (size - 1) * every + 1), every))
    if any(limit > size for (_, limit, _), size in zip(ranges, inner.operands[0].shape.dimensions, strict=True)):
        return None  # an empty one that starts behind the end
    return like(instruction, Slice(tuple(ranges)), inner.operands[0])


@simplifies(Slice)
def slice_of_concatenate(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A slice that lies within one operand of a concatenation is a slice of that operand."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Concatenate):
        return None
    along, ranges = inner.op.dimension, list(_ranges(instruction))
    start, limit, stride = ranges[along]
    offset = 0
    for operand in inner.operands:
        end = offset + operand.shape.dimensions[along]
        if offset <= start < limit <= end:
            ranges[along] = (start - offset, limit - offset, stride)
            return like(instruction, Slice(tuple(ranges)), operand)
        offset = end
    return None


@simplifies(Slice)
def slice_of_broadcast(instruction: Instruction, computation: Computation) -> Instruction | None:
    """slice(broadcast(x)) is a broadcast to fewer of the new dimensions, of a slice of x in its own."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Broadcast):
        return None
    source, ranges = inner.operands[0], _ranges(instruction)
    taken = tuple(ranges[d] for d in inner.op.dimensions)
    if any(r != (0, size, 1) for r, size in zip(taken, source.shape.dimensions, strict=True)):
        if len(inner.users) > 1:
            return None
        source = computation.add(Slice(taken), [source])
    return like(instruction, Broadcast(inner.op.dimensions, instruction.shape.logical), source)


@simplifies(Slice)
def slice_of_pad(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Slices of a pad without holes that lie among the elements are slices of those; among the padding, padding."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Pad) or any(p.interior_padding for p in inner.op.padding):
        return None
    source, ranges = inner.operands[0], _ranges(instruction)
    moved = [
        (start - p.edge_padding_low, limit - p.edge_padding_low, stride)
        for (start, limit, stride), p in zip(ranges, inner.op.padding, strict=True)
    ]
    pairs = list(zip(moved, source.shape.dimensions, strict=True))
    if not instruction.shape.size:
        return None
    if any(limit <= 0 or start >= size for (start, limit, _), size in pairs):
        return filled(instruction, inner.operands[1])
    if all(start >= 0 and limit <= size for (start, limit, _), size in pairs):
        return like(instruction, Slice(tuple(moved)), source)
    return None


@simplifies(Slice)
def slice_of_iota(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A slice that leaves the counting dimension whole is a smaller iota."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Iota):
        return None
    along = inner.op.iota_dimension
    if _ranges(instruction)[along] != (0, inner.shape.dimensions[along], 1):
        return None
    return like(instruction, Iota(along, instruction.shape.logical))


@simplifies(Concatenate)
def concatenate_of_concatenate(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Concatenations along one dimension are one; empty operands are none."""
    if len(instruction.users) == 1 and next(iter(instruction.users)).op is instruction.op and not instruction.is_root:
        return None  # the outermost takes them all: a chain of thousands is gone through once
    operands: list[Instruction] = []
    stack = list(reversed(instruction.operands))
    while stack:
        operand = stack.pop()
        if operand.op is instruction.op and len(operand.users) == 1:
            stack += reversed(operand.operands)
        elif operand.shape.size:
            operands.append(operand)
    if not operands or operands == list(instruction.operands):
        return None
    return like(instruction, instruction.op, *operands)


@simplifies(Concatenate)
def concatenate_of_neighbours(instruction: Instruction, computation: Computation) -> Instruction | None:
    """slice(x, a:b), slice(x, b:c) next to each other are slice(x, a:c)."""
    assert isinstance(instruction.op, Concatenate)
    along = instruction.op.dimension
    operands: list[Instruction] = []
    for operand in instruction.operands:
        joined = _joined(operands[-1], operand, along) if operands else None
        if joined is not None:
            operands[-1] = computation.add(Slice(joined), operand.operands)
        else:
            operands.append(operand)
    if len(operands) == len(instruction.operands):
        return None
    return like(instruction, instruction.op, *operands)


def _joined(a: Instruction, b: Instruction, along: int) -> tuple[tuple[int, int, int], ...] | None:
    """The ranges of both slices together, if they are of one operand and the second goes on where the first ends."""
    if not isinstance(a.op, Slice) or not isinstance(b.op, Slice) or a.operands != b.operands:
        return None
    first, second = a.op.ranges, b.op.ranges
    if any(d != along and x != y for d, (x, y) in enumerate(zip(first, second, strict=True))):
        return None
    (start, limit, stride), (next_start, next_limit, next_stride) = first[along], second[along]
    if not (stride == next_stride == 1 and limit == next_start):
        return None
    return (*first[:along], (start, next_limit, 1), *first[along + 1 :])


@simplifies(Concatenate)
def concatenate_of_padding(instruction: Instruction, computation: Computation) -> Instruction | None:
    """An operand between broadcasts of one scalar is that operand padded; broadcasts of one scalar are one."""
    assert isinstance(instruction.op, Concatenate)
    along = instruction.op.dimension
    spread = [o if _is_filled(o) else None for o in instruction.operands]
    scalars = list(dict.fromkeys(o.operands[0] for o in spread if o is not None))
    others = [i for i, o in enumerate(spread) if o is None]
    if len(scalars) != 1 or len(others) > 1:
        return None
    if not others:
        return filled(instruction, scalars[0])
    sizes = [o.shape.dimensions[along] for o in instruction.operands]
    padding = [PaddingDimension(0, 0)] * instruction.shape.rank
    padding[along] = PaddingDimension(sum(sizes[: others[0]]), sum(sizes[others[0] + 1 :]))
    return like(instruction, Pad(tuple(padding)), instruction.operands[others[0]], scalars[0])


def _is_filled(instruction: Instruction) -> bool:
    return isinstance(instruction.op, Broadcast) and instruction.operands[0].shape.is_scalar


@simplifies(Pad)
def pad_of_pad(instruction: Instruction, computation: Computation) -> Instruction | None:
    """pad(pad(x, v), v) pads x by both, where nothing is cut off and there are no holes; pad(broadcast(v), v) is v."""
    inner, value = instruction.operands
    assert isinstance(instruction.op, Pad)
    if _is_filled(inner) and _same_scalar(inner.operands[0], value):
        return filled(instruction, value)
    if not isinstance(inner.op, Pad) or not _same_scalar(inner.operands[1], value) or len(inner.users) > 1:
        return None
    both = list(zip(inner.op.padding, instruction.op.padding, strict=True))
    if any(min(p.edge_padding_low, p.edge_padding_high) < 0 or p.interior_padding for pair in both for p in pair):
        return None
    padding = [
        PaddingDimension(a.edge_padding_low + b.edge_padding_low, a.edge_padding_high + b.edge_padding_high)
        for a, b in both
    ]
    return like(instruction, Pad(tuple(padding)), inner.operands[0], value)


def _same_scalar(a: Instruction, b: Instruction) -> bool:
    if a is b:
        return True
    return isinstance(a.op, Constant) and a.op is b.op


@simplifies(Pad)
def negative_pad(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A pad that only cuts off is a slice."""
    assert isinstance(instruction.op, Pad)
    padding, sizes = instruction.op.padding, instruction.operands[0].shape.dimensions
    if any(max(p.edge_padding_low, p.edge_padding_high, p.interior_padding) > 0 for p in padding):
        return None
    ranges = [(-p.edge_padding_low, n + p.edge_padding_high, 1) for p, n in zip(padding, sizes, strict=True)]
    if any(start > limit or limit < 0 for start, limit, _ in ranges):
        return None
    return like(instruction, Slice(tuple(ranges)), instruction.operands[0])


@simplifies(DynamicSlice)
def dynamic_slice_of_constant(instruction: Instruction, computation: Computation) -> Instruction | None:
    """A start that is known, or that can only be 0, makes it a slice; starts are clamped (DSLICE-4)."""
    operand, *indices = instruction.operands
    bounds, sizes = operand.shape.dimensions, instruction.shape.dimensions
    starts = _known_starts(indices, bounds, sizes)
    if starts is None:
        return None
    ranges = [(start, start + size, 1) for start, size in zip(starts, sizes, strict=True)]
    return like(instruction, Slice(tuple(ranges)), operand)


def _known_starts(indices: Sequence[Instruction], bounds: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    if any(index.shape.rank for index in indices):  # a vector of starts, of old
        vector = indices[0].op
        if not isinstance(vector, Constant) or not is_ndarray(vector.literal.value):
            return None
        return clamped_starts((vector.literal.value,), tuple(bounds), tuple(sizes))
    known = [0 if n == s else scalar_of(index) for index, n, s in zip(indices, bounds, sizes, strict=True)]
    return None if any(k is None for k in known) else clamped_starts(tuple(known), tuple(bounds), tuple(sizes))


@simplifies(DynamicUpdateSlice)
def dynamic_update_slice_of_constant(instruction: Instruction, computation: Computation) -> Instruction | None:
    """At a known place in a broadcast scalar, an update is padded with it."""
    operand, update, *indices = instruction.operands
    if not _is_filled(operand):
        return None
    starts = _known_starts(indices, operand.shape.dimensions, update.shape.dimensions)
    if starts is None:
        return None
    spaces = zip(starts, update.shape.dimensions, operand.shape.dimensions, strict=True)
    padding = [PaddingDimension(start, bound - start - size) for start, size, bound in spaces]
    return like(instruction, Pad(tuple(padding)), update, operand.operands[0])


@simplifies(Reverse)
def reverse_of_reverse(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Dimensions that are reversed twice are not; those a broadcast made, or of size 1, need not be."""
    inner, sizes = instruction.operands[0], instruction.shape.dimensions
    assert isinstance(instruction.op, Reverse)
    outer, before = set(instruction.op.dimensions), {d for d in instruction.op.dimensions if sizes[d] > 1}
    if isinstance(inner.op, Reverse):
        left = before ^ set(inner.op.dimensions)
        return like(instruction, Reverse(tuple(sorted(left))), inner.operands[0])
    if isinstance(inner.op, Broadcast):
        before &= set(inner.op.dimensions)
    return like(instruction, Reverse(tuple(sorted(before))), inner) if before and before != outer else None


@simplifies(Iota)
def iota_of_one(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Counting to one gives zeros; of several dimensions, only one counts: the rest is a broadcast."""
    assert isinstance(instruction.op, Iota)
    along, shape = instruction.op.iota_dimension, instruction.shape
    if shape.dimensions[along] == 1:
        return constant_like(computation, instruction, 0)
    if shape.rank == 1:
        return None
    line = computation.add(Iota(0, shape.with_dimensions((shape.dimensions[along],))))
    return like(instruction, Broadcast((along,), shape.logical), line)


@simplifies(Reshape)
def reshape_of_pad(instruction: Instruction, computation: Computation) -> Instruction | None:
    """Dimensions of size 1 that a reshape adds or drops, and that a pad leaves alone, come before the pad as well."""
    inner = instruction.operands[0]
    if not isinstance(inner.op, Pad) or len(inner.users) > 1:
        return None
    nothing = PaddingDimension(0, 0)
    source = inner.operands[0].shape.dimensions
    kept = [(n, p) for n, p in zip(source, inner.op.padding, strict=True) if not (n == 1 and p == nothing)]
    padded = [p.output_size(n) for n, p in kept]
    sizes: list[int] = []
    padding: list[PaddingDimension] = []
    for size in instruction.shape.dimensions:
        if padded and size == padded[0]:
            padded.pop(0)
            n, p = kept.pop(0)
            sizes.append(n)
            padding.append(p)
        elif size == 1:
            sizes.append(1)
            padding.append(nothing)
        else:
            return None
    if kept:
        return None
    return like(instruction, Pad(tuple(padding)), reshaped(inner.operands[0], sizes), inner.operands[1])
