"""reduce-window-rewriter: a long prefix scan in two stages, the first of which has rows for several threads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hlokit.analysis.reducers import is_semigroup, neutral_value
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import Map
from hlokit.ops.movement import Broadcast, Pad
from hlokit.ops.reduction import Reduce
from hlokit.ops.slicing import Slice
from hlokit.ops.structure import Constant
from hlokit.ops.windows import ReduceWindow, scan_axis
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import is_plain, reshaped
from hlokit.types.literal import Literal
from hlokit.types.window import PaddingDimension, Window, WindowDimension


@dataclass(frozen=True)
class ReduceWindowRewriter(Pass):
    """A scan is a scan of rows of `row` elements, each combined with the scan of the rows' totals before it.

    For scans, forward or backward, over at least `least` elements beside at most `others` of other dimensions, by
    reducers that are one op with a neutral value. Sums of floats are grouped otherwise. So are reducers of several ops
    that are found associative, with the initial value as the neutral one (cumulative logarithms of sums), beside less
    than `others` of other dimensions, which may fill a vector: as no vector takes several steps of theirs, they have as
    many rows as steps in each, from `few` elements on.
    """

    name = "reduce-window-rewriter"
    row: int = 1024
    least: int = 1 << 14
    few: int = 1 << 9
    others: int = 8

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            for instruction in computation.post_order():
                if isinstance(instruction.op, ReduceWindow) and is_plain(instruction):
                    two = self._stages(instruction, instruction.op.window, computation)
                    if two is not None:
                        computation.replace(instruction, two)
                        changed = True
            changed |= computation.remove_dead() > 0
        return changed

    def _stages(self, scan: Instruction, window: Window, computation: Computation) -> Instruction | None:
        found = None if scan.shape.is_tuple else scan_axis(window, scan.operands[0].shape.dimensions)
        if found is None:
            return None
        axis, backward = found
        (operand, init), (function,) = scan.operands, scan.called
        sizes, dtype = operand.shape.dimensions, operand.shape.dtype
        n, op = sizes[axis], function.single_op
        least, others = (self.few, self.others - 1) if op is None else (self.least, self.others)
        if n < least or math.prod(sizes) > others * n:
            return None
        neutral = _neutral_start(function, init) if op is None else neutral_value(function)
        if neutral is None:
            return None
        nothing = computation.add(Constant(Literal.of(dtype.numpy.type(neutral), dtype[()])))
        row = (math.isqrt(n - 1) + 1) | 1 if op is None else self.row  # odd: rows fall on different lines of a cache
        rows = -(-n // row)
        operand = _padded(operand, nothing, axis, 0, rows * row - n)
        operand = reshaped(operand, (*sizes[:axis], rows, row, *sizes[axis + 1 :]))
        within = _scan(operand, nothing, axis + 1, backward, scan)
        if op is None:
            totals = _last(within, axis + 1, backward)
        else:  # the rows' scans need not be stored
            totals = computation.add(Reduce((axis + 1,)), [operand, nothing], [function])
        sums = _scan(totals, init, axis, backward, scan)
        before = _padded(sums, init, axis, -1 if backward else 1, 1 if backward else -1)
        kept = tuple(d for d in range(operand.shape.rank) if d != axis + 1)
        spread = computation.add(Broadcast(kept, operand.shape), [before])
        pair = [within, spread] if backward else [spread, within]
        every = Map(tuple(range(operand.shape.rank)))
        made = computation.add(every, pair, [function]) if op is None else computation.add(op, pair)
        made = reshaped(made, (*sizes[:axis], rows * row, *sizes[axis + 1 :]))
        if rows * row != n:
            made = computation.add(Slice(tuple((0, size, 1) for size in sizes)), [made])
        return made


def _neutral_start(function: Computation, init: Instruction) -> Any:
    """The initial value of a scan, if its reducer is found associative with that as its neutral value."""
    if not isinstance(init.op, Constant):
        return None
    value = init.op.literal.value
    return value if is_semigroup(function, value) else None


def _scan(operand: Instruction, init: Instruction, axis: int, backward: bool, like: Instruction) -> Instruction:
    n = operand.shape.dimensions[axis]
    along = WindowDimension(n, padding_high=n - 1) if backward else WindowDimension(n, padding_low=n - 1)
    window = Window(tuple(along if d == axis else WindowDimension(1) for d in range(operand.shape.rank)))
    assert operand.parent is not None
    return operand.parent.add(ReduceWindow(window), [operand, init], like.called)


def _last(scan: Instruction, axis: int, backward: bool) -> Instruction:
    """The totals of a scan's lines along an axis, without that axis."""
    assert scan.parent is not None
    sizes = scan.shape.dimensions
    at = 0 if backward else sizes[axis] - 1
    ranges = tuple((at, at + 1, 1) if d == axis else (0, size, 1) for d, size in enumerate(sizes))
    return reshaped(scan.parent.add(Slice(ranges), [scan]), (*sizes[:axis], *sizes[axis + 1 :]))


def _padded(operand: Instruction, value: Instruction, axis: int, low: int, high: int) -> Instruction:
    assert operand.parent is not None
    if low == high == 0:
        return operand
    padding = tuple(
        PaddingDimension(low, high) if d == axis else PaddingDimension(0, 0) for d in range(operand.shape.rank)
    )
    return operand.parent.add(Pad(padding), [operand, value])
