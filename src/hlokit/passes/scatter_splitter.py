"""scatter-splitter: applies many updates of a small array to several copies of it, which are combined at the end."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hlokit.analysis.reducers import neutral_value
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import Map
from hlokit.ops.movement import Broadcast, Pad
from hlokit.ops.reduction import Reduce
from hlokit.ops.scatter import Scatter
from hlokit.ops.structure import Constant
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import is_plain, reshaped
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.window import PaddingDimension


@dataclass(frozen=True)
class ScatterSplitter(Pass):
    """scatter(x, i, u) is f(x, reduce f over copies of scatter(neutral values, the copy's share of i and of u)).

    For combiners f that are one op with a neutral value, and index vectors that come first in the updates, of which
    there are so many that the copies' elements cost little. There are half to twice as many copies as `parts` where
    the updates come out even; else index vectors that are outside fill the last share. Sums of floats are grouped
    otherwise.
    """

    name = "scatter-splitter"
    parts: int = 8
    least: int = 1 << 14

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            for instruction in computation.post_order():
                if isinstance(instruction.op, Scatter) and is_plain(instruction) and len(instruction.operands) == 3:
                    split = self._split(instruction, instruction.op, computation)
                    if split is not None:
                        computation.replace(instruction, split)
                        changed = True
            changed |= computation.remove_dead() > 0
        return changed

    def _split(self, scatter: Instruction, op: Scatter, computation: Computation) -> Instruction | None:
        array, indices, updates = scatter.operands
        neutral, vector = neutral_value(scatter.called[0]), op.index_vector_dim
        counts = updates.shape.rank - len(op.update_window_dims)
        windows_last = op.update_window_dims == tuple(range(counts, updates.shape.rank))
        if neutral is None or op.input_batching_dims or not counts or not windows_last:
            return None
        number, window = prod(updates.shape.dimensions[:counts]), updates.shape.dimensions[counts:]
        parts = min(self.parts, updates.shape.size // (_MANY * max(array.shape.size, 1)))
        if vector < counts or updates.shape.size < self.least or number < 64 * self.parts or parts < 2:
            return None
        copies = _evenly(number, parts)
        share, length = -(-number // copies), indices.shape.dimensions[counts:]
        if number % copies and not indices.shape.dtype.is_signed:
            return None
        first = _scalar(computation, neutral, array.shape.dtype)
        indices, updates = reshaped(indices, (number, *length)), reshaped(updates, (number, *window))
        if number % copies:
            outside = _scalar(computation, -1, indices.shape.dtype)
            indices, updates = _filled(indices, outside, share * copies), _filled(updates, first, share * copies)
        tables = computation.add(Broadcast((), array.shape.with_dimensions((copies, *array.shape.dimensions))), [first])
        each = Scatter(
            update_window_dims=tuple(range(2, 2 + len(window))),
            inserted_window_dims=tuple(d + 1 for d in op.inserted_window_dims),
            scatter_dims_to_operand_dims=tuple(d + 1 for d in op.scatter_dims_to_operand_dims),
            input_batching_dims=(0,),
            scatter_indices_batching_dims=(0,),
            index_vector_dim=2,
            indices_are_sorted=False,
            unique_indices=False,
        )
        operands = [tables, reshaped(indices, (copies, share, *length)), reshaped(updates, (copies, share, *window))]
        tables = computation.add(each, operands, scatter.called)
        sums = computation.add(Reduce((0,)), [tables, first], scatter.called)
        return computation.add(Map(tuple(range(array.shape.rank))), [array, sums], scatter.called)


_MANY = 4
"""Updates for each element of the copies, which are filled and read once."""


def _evenly(number: int, parts: int) -> int:
    """The count nearest to `parts` that shares out so many index vectors evenly; `parts` if there is none."""
    around = sorted(range(max(2, parts // 2), 2 * parts + 1), key=lambda n: abs(n - parts))
    return next((n for n in around if number % n == 0), parts)


def _scalar(computation: Computation, value: Any, dtype: DType) -> Instruction:
    return computation.add(Constant(Literal(dtype[()], np.asarray(value, dtype.numpy))))


def _filled(array: Instruction, value: Instruction, size: int) -> Instruction:
    """So many elements along dimension 0: `value` where there were none."""
    missing = size - array.shape.dimensions[0]
    padding = [PaddingDimension(0, missing if d == 0 else 0) for d in range(array.shape.rank)]
    assert array.parent is not None
    return array.parent.add(Pad(tuple(padding)), [array, value])
