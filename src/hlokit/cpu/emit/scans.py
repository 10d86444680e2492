"""Prefix folds: every step has a result, which is carried along the axis."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.emit.folds import Folds
from hlokit.cpu.emit.scope import Scope
from hlokit.cpu.llvm import I1, Value
from hlokit.cpu.loops.expr import Fold, LoopAxis, Node


class Scans:
    """Writes the steps of prefix folds."""

    def __init__(self, folds: Folds) -> None:
        self.folds, self.values = folds, folds.values

    def along(self, axis: LoopAxis) -> list[Node]:
        """The prefix folds along an axis."""
        return [fold for fold in self.folds.all if fold.data.scan is axis]

    def step(self, scans: Sequence[Node], carried: Sequence[Value], scope: Scope, axis: LoopAxis) -> list[Value]:
        """Puts the folds' values at this step into the scope; gives the carries for the next."""
        following: list[Value] = []
        for fold in scans:
            data: Fold = fold.data
            mine, carried = carried[: len(data.inits)], carried[len(data.inits) :]
            bodies = [self.values.value(b, scope) for b in data.bodies]
            if scope.lane_axis is axis:
                values, last = self._prefixes(data, mine, bodies, scope)
            else:
                values = last = self.folds.combined_lanes(data, mine, bodies, mine[0].lanes, scope)
            scope.memo[fold] = values
            following += last
        return following

    def _prefixes(
        self, fold: Fold, carried: Sequence[Value], bodies: Sequence[Value], scope: Scope
    ) -> tuple[list[Value], list[Value]]:
        """The folds of the first 1, 2, 3, ... lanes, each after what was carried here; the last lanes."""
        lanes = scope.lanes
        values = [self.values.spread(body, lanes, scope) for body in bodies]
        step = 1
        while step < lanes:
            with scope.region as fn:
                moved = [value.shuffled([max(k - step, 0) for k in range(lanes)]) for value in values]
                mask = fn.vector_constant([k >= step for k in range(lanes)], I1)
            new = self.folds.combined(fold, moved, values, scope)
            values = [
                self._where(mask, self.values.spread(a, lanes, scope), b, scope)
                for a, b in zip(new, values, strict=True)
            ]
            step *= 2
        totals = _last_lanes(values, scope)
        before = [self.values.spread(value, lanes, scope) for value in carried]
        values = self.folds.combined_lanes(fold, before, values, lanes, scope)
        if fold.operations and {*fold.operations} <= {"add", "mul"}:
            # the same sum; what the next step begins with waits for one addition alone
            return values, self.folds.combined(fold, carried, totals, scope)
        return values, _last_lanes(values, scope)

    def _where(self, mask: Value, then: Value, otherwise: Value, scope: Scope) -> Value:
        with scope.region:
            return mask.select(then, otherwise)


def _last_lanes(values: Sequence[Value], scope: Scope) -> list[Value]:
    with scope.region:
        return [value.lane(scope.lanes - 1) for value in values]
