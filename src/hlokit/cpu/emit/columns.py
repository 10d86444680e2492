"""Columns: folds down the columns of large arrays that go through memory row by row.

Memory serves long runs best. So where rows are long, such a fold goes along whole rows, with accumulators in the
first-level cache, instead of down a few columns with accumulators in registers. Each column's steps keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu import costs
from hlokit.cpu.emit.folds import Folds
from hlokit.cpu.emit.loops import axis_loop, vector_loop, vector_steps
from hlokit.cpu.emit.rows import Row
from hlokit.cpu.emit.scope import Scope
from hlokit.cpu.llvm import Index, Value
from hlokit.cpu.loops.expr import Fold, LoopAxis, Node, reachable
from hlokit.forms.primitives import cost_of

_VECTORS = 4
"""Vectors of a row in a step."""
_STEPS = 16
"""Rows from which on this is worth it."""
_FREE = ("const", "number", "range", "load", "part", "convert")
_SAME = 4.0
"""Cost of what a row's steps compute although it is the same in all rows, at most, besides the operations in _FREE."""


class ColumnFolds:
    """Writes the folds of a kernel that go row by row along its vector axis, before the loop over that."""

    def __init__(self, folds: Folds) -> None:
        self.folds, self.emission = folds, folds.emission

    def write(self, axis: LoopAxis, scope: Scope) -> None:
        """Writes those whose values the loop over the axis in this scope needs, into rows that it reads."""
        for group in self._chosen(axis):
            self._write(group, axis, scope)

    def _chosen(self, axis: LoopAxis) -> list[list[Node]]:
        """Groups of folds, in their order; none unless all that go down columns do and their accumulators fit."""
        loops = self.emission.loops
        if axis is not loops.vector or axis is not loops.order[-1] or axis in loops.order[: loops.parallel]:
            return []
        if loops.tile is not None or loops.pieces or loops.serial:
            return []
        found = [fold for fold in self.folds.all if fold.deps & axis.bit]
        if not found or not all(self._suits(fold, axis, found) for fold in found):
            return []
        nbytes = sum(init.dtype.bits // 8 for fold in found for init in fold.data.inits) * axis.extent
        if nbytes > costs.PREFETCHED_NEAR or not any(self._is_far(fold, axis) for fold in found):
            return []
        return list({id(group): group for group in map(self.folds.group, found)}.values())

    def _suits(self, fold: Node, axis: LoopAxis, all: Sequence[Node]) -> bool:
        """Whether a fold has loops of its own inside the main nest's, and little is the same in all of its steps."""
        data: Fold = fold.data
        if data.scan is not None or data.ordered or data.valid is not None or not data.bound:
            return False
        if self.emission.loops.folds.get(fold) is not None or any(init.dtype.bits < 8 for init in data.inits):
            return False
        around, inner = sum(a.bit for a in self.emission.loops.order), data.bound[-1]
        if fold.deps & ~around or inner.extent < _STEPS:
            return False
        same = [n for n in reachable(data.bodies) if n.deps & axis.bit and not n.deps & inner.bit and n.op not in _FREE]
        return sum(cost_of(node.op) for node in same if node not in all) <= _SAME

    def _is_far(self, fold: Node, axis: LoopAxis) -> bool:
        """Whether it reads rows of a large array, which are longer than what its steps read of them at once."""
        width = self.emission.loops.lanes * self.emission.loops.unroll
        inner = fold.data.bound[-1]
        loads = (n for n in reachable(fold.data.bodies) if n.op == "load" and n.deps & inner.bit and not n.args)
        return any(
            buffer.nbytes >= costs.PREFETCHED_ARRAY and place.coefficient(axis) == 1
            and abs(place.coefficient(inner)) >= axis.extent > width
            for buffer, place in (n.data for n in loads)
        )  # fmt: skip

    def _write(self, group: list[Node], axis: LoopAxis, scope: Scope) -> None:
        fn, values = self.emission.fn, self.folds.values
        steps = vector_steps(self.emission.loops, axis, (0, axis.extent), whole=True)
        steps = steps._replace(wide=min(steps.wide, _VECTORS * steps.lanes), together=False)
        inits = [init for fold in group for init in fold.data.inits]
        length = -(-axis.extent // steps.lanes) * steps.lanes
        rows = [Row.of(fn, init.dtype, length) for init in inits]

        def keep(found: Sequence[Value], inner: Scope) -> list[Value]:
            for row, value in zip(rows, found, strict=True):
                value = values.spread(value, inner.lanes, inner)
                row.store(value, inner)
            return []

        def start(inner: Scope, _: Index, carried: list[Value]) -> list[Value]:
            return keep([values.value(init, inner) for init in inits], inner)

        def step(inner: Scope, _: Index, carried: list[Value]) -> list[Value]:
            former = [row.load(inner) for row in rows]
            return keep(self.folds.stepped(group, former, inner), inner)

        def nest(around: Scope, bound: Sequence[LoopAxis]) -> list[Value]:
            if not bound:
                vector_loop(around, steps, [], step)
                return []
            axis_loop(around, bound[0], [], lambda inner, _i, _c: nest(inner, bound[1:]))
            return []

        vector_loop(scope, steps, [], start)
        outer, self.emission.fold = self.emission.fold, group[0]
        nest(scope, group[0].data.bound)
        self.emission.fold = outer
        places = iter(rows)
        for fold in group:
            self.folds.rows[fold] = [next(places) for _ in fold.data.inits]
