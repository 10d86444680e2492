"""Random bits in parts: each device draws its range of the numbers, starting at the counter of the range.

A generator numbers blocks of elements in row-major order (RBG-9 to RBG-16). Parts of the first dimension that has more
than one element are ranges of that order. Where they are whole blocks too, a device's bits are those of the op on a
state whose counter is so much further.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hlokit.builder import elementwise, indexing, movement
from hlokit.builder.core import XlaOp
from hlokit.hlo.instruction import Instruction
from hlokit.ops.counter_random import split_dimension
from hlokit.ops.random import RngBitGenerator
from hlokit.passes.partitioner.placement import Placement
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.passes.partitioner.lowering import Lowering, Value


def random_bits(lowering: Lowering, instruction: Instruction, op: RngBitGenerator) -> Value | None:
    """The bits drawn in the parts that are wanted; None where parts are no ranges of blocks."""
    *_, data = instruction.shape.leaves()
    *_, wanted = lowering.wanted(instruction)
    d = next((number for number, size in enumerate(data.dimensions) if size > 1), None)
    if d is None or not wanted.dimensions[d]:
        return None
    builder, along = lowering.builder, wanted.dimensions[d]
    placement, whole = Placement.whole(data.rank).with_dimension(d, along), Placement.whole(1)
    local = Shape.array(data.dtype, lowering.grid.local(data.dimensions, placement))
    is_three_fry = op.algorithm == "rng_three_fry"
    count = _blocks(data, local, is_three_fry)
    if count is None:
        return None
    given = lowering.leaf(instruction.operands[0])
    state = lowering.resharded(instruction, given, whole, "operand 0", "each device needs the whole state").part
    place = elementwise.convert_element_type(lowering.emission.place(along), dtypes.u64)
    first = _further(state, place * builder.constant(np.uint64(count)), is_three_fry)
    bits = builder.emit(RngBitGenerator("rng_three_fry" if is_three_fry else "rng_philox", local), [first])
    drawn = lowering.taken_apart(bits, data, [placement])
    found = lowering.placed(instruction, drawn, [Placement(wanted.dimensions)], "result")
    if not instruction.shape.is_tuple:
        return found
    total = builder.constant(np.uint64(_blocks(data, data, is_three_fry, is_end=True) or 0))
    words = state.shape.dimensions[0]
    after = indexing.slice_in_dim(_further(state, total, is_three_fry), 0, words)
    return [lowering.taken_apart(after, state.shape, [whole]), found]


def _blocks(data: Shape, part: Shape, is_three_fry: bool, is_end: bool = False) -> int | None:
    """The blocks that a part of the data has; None if another part's elements are in one of them, which is no matter at
    the end."""
    sizes, wide = part.dimensions, data.dtype.bits == 64
    if is_three_fry and not wide:
        split = split_dimension(data.dimensions)
        if split_dimension(sizes) != split or (sizes[split] % 2 and sizes != data.dimensions):
            return None
        return math.prod(-(-size // 2) if number == split else size for number, size in enumerate(sizes))
    each = 1 if is_three_fry else 2 if wide else 4
    return -(-math.prod(sizes) // each) if is_end or math.prod(sizes) % each == 0 else None


def _further(state: XlaOp, count: XlaOp, is_three_fry: bool) -> XlaOp:
    """A state so many blocks further; of Philox with all words of its counter (RBG-16)."""
    key, low = (indexing.slice_in_dim(state, number, number + 1) for number in (0, 1))
    moved = low + movement.broadcast(count, (1,))
    if is_three_fry:
        return movement.concat_in_dim([key, moved], 0)
    high = indexing.slice_in_dim(state, 2, 3) if state.shape.dimensions == (3,) else key
    carry = elementwise.convert_element_type(moved < low, dtypes.u64)
    return movement.concat_in_dim([key, moved, high + carry], 0)
