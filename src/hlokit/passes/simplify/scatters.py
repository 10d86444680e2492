"""Identities of scatters: one window at a known position is a slice that is replaced."""

from __future__ import annotations

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import is_ndarray
from hlokit.ops.control_flow import Map
from hlokit.ops.gather import remaining
from hlokit.ops.reshaping import Reshape
from hlokit.ops.scatter import Scatter
from hlokit.ops.slicing import DynamicUpdateSlice, Slice
from hlokit.ops.structure import Constant
from hlokit.passes.simplify.rules import like, reshaped, scalar_of, simplifies
from hlokit.types import dtype as dtypes
from hlokit.types.literal import Literal


@simplifies(Scatter)
def scatter_of_one_window(instruction: Instruction, computation: Computation) -> Instruction | None:
    """At a known place, the window is combined with what is there and put back; outside of the array, nothing is."""
    op = instruction.op
    assert isinstance(op, Scatter)
    if len(instruction.operands) != 3 or op.input_batching_dims:
        return None
    array, indices, update = instruction.operands
    bounds, window = array.shape.dimensions, op.update_window_dims
    if (
        any(update.shape.dimensions[u] != 1 for u in remaining(update.shape.rank, window))
        or 0 in update.shape.dimensions
    ):
        return None
    places = _known(indices)
    if places is None:
        return None
    sizes, starts = [1] * len(bounds), [0] * len(bounds)
    for u, d in zip(window, remaining(len(bounds), op.inserted_window_dims), strict=True):
        sizes[d] = update.shape.dimensions[u]
    for d, place in zip(op.scatter_dims_to_operand_dims, places, strict=True):
        starts[d] = place
    if any(not 0 <= start <= bound - size for start, bound, size in zip(starts, bounds, sizes, strict=True)):
        return array if array.shape is instruction.shape else None
    new, combiner = reshaped(update, sizes), instruction.called[0]
    if combiner.root is not combiner.parameters[1]:
        ranges = tuple((start, start + size, 1) for start, size in zip(starts, sizes, strict=True))
        old = computation.add(Slice(ranges), [array])
        new = computation.add(Map(tuple(range(len(bounds)))), [old, new], [combiner])
    indices = [computation.add(Constant(Literal(dtypes.s64[()], np.asarray(start, np.int64)))) for start in starts]
    return like(instruction, DynamicUpdateSlice(), array, new, *indices)


def _known(indices: Instruction) -> list[int] | None:
    """The numbers of the only index vector."""
    count = indices.shape.size
    while isinstance(indices.op, Reshape):
        indices = indices.operands[0]
    value = scalar_of(indices)
    if value is not None:
        return [int(value)] * count
    op = indices.op
    if not isinstance(op, Constant) or not is_ndarray(op.literal.value):
        return None
    return [int(value) for value in np.ravel(op.literal.value)]
