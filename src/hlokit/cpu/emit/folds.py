"""Folds: accumulators carried through loops, lanes combined at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.cpu.emit.loops import axis_loop, by_vectors
from hlokit.cpu.emit.rows import Row
from hlokit.cpu.emit.scope import Scope
from hlokit.cpu.emit.values import Values
from hlokit.cpu.llvm import Index, LaneMask, Value
from hlokit.cpu.loops.expr import HOLE, Fold, LoopAxis, Node, children, reachable, runtime_nodes
from hlokit.cpu.loops.reassociation import counter
from hlokit.cpu.math import primitives
from hlokit.types.dtype import DType


class Folds:
    """Writes folds. `all`: those of the kernel; `rows`: accumulators that are in memory (see columns)."""

    def __init__(self, values: Values) -> None:
        self.values, self.emission = values, values.emission
        self.loops = self.emission.loops
        roots = [r for s in self.loops.stores for r in (s.node, *s.guards, *runtime_nodes(s.place))]
        self.all = [n for n in reachable(roots) if n.op == "fold"]
        self._groups = self._fold_groups()
        self.rows: dict[Node, list[Row]] = {}
        values.writers["fold"] = self._fold

    def _fold_groups(self) -> dict[Node, list[Node]]:
        """Folds over the same axes at the same place, none of which needs another, share a loop."""
        below: dict[Node, set[Node]] = {}
        groups: list[list[Node]] = []
        found: dict[Node, list[Node]] = {}
        for fold in self.all:
            below[fold] = {n for n in reachable(children(fold)) if n.op == "fold"}
            if fold.data.scan is not None:
                continue
            group = next(
                (g for g in groups if g[0].data.bound == fold.data.bound and g[0].deps == fold.deps
                 and self.loops.folds.get(g[0]) is self.loops.folds.get(fold)
                 and not any(other in below[fold] for other in g)),
                None,
            )  # fmt: skip
            if group is None:
                group = list[Node]()
                groups.append(group)
            group.append(fold)
            found[fold] = group
        return found

    def group(self, fold: Node) -> list[Node]:
        """The folds that share the loop of this one."""
        return self._groups[fold]

    def _fold(self, node: Node, scope: Scope) -> list[Value]:
        if node in self.rows:
            return [row.load(scope) for row in self.rows[node]]
        group = [f for f in self._groups[node] if f not in scope.memo]
        for fold in group:
            for init in fold.data.inits:
                self.values.value(init, scope)
        outer, self.emission.fold = self.emission.fold, node
        axis = self.loops.folds.get(node)
        bound = [a for a in node.data.bound if a is not axis]
        if axis is not None and scope.lane_axis is None:
            values = self._vector_fold(group, bound, axis, scope)
        else:
            values = self._plain_fold(group, list(node.data.bound), scope)
        self.emission.fold = outer
        for fold in group:
            count = len(fold.data.inits)
            scope.memo[fold], values = values[:count], values[count:]
        return scope.memo[node]

    # -- one by one

    def accumulators(self, folds: Sequence[Node], scope: Scope) -> list[Value]:
        """The initial values of the folds, with the lanes of this scope where they need them."""
        return [self.values.spread(self.values.value(init, scope), lanes, scope)
                for fold in folds for lanes in [_lanes(fold, scope)] for init in fold.data.inits]  # fmt: skip

    def _plain_fold(self, group: list[Node], bound: list[LoopAxis], scope: Scope) -> list[Value]:
        def nest(inner: Scope, carried: Sequence[Value], level: int) -> Sequence[Value]:
            if level == len(bound):
                return self.stepped(group, carried, inner)
            return axis_loop(inner, bound[level], carried, lambda s, _, c: nest(s, c, level + 1))

        return list(nest(scope, self.accumulators(group, scope), 0))

    def stepped(self, group: list[Node], accumulators: Sequence[Value], scope: Scope) -> list[Value]:
        """The accumulators after one step (or one vector of steps, lane by lane)."""
        following: list[Value] = []
        for fold in group:
            data: Fold = fold.data
            old, accumulators = accumulators[: len(data.inits)], accumulators[len(data.inits) :]
            bodies = [self.values.value(b, scope) for b in data.bodies]
            new = self.combined(data, old, bodies, scope)
            for before, after in zip(old, new, strict=True):
                value = self.values.spread(after, before.lanes, scope)
                condition = self.values.value(data.valid, scope) if data.valid is not None else None
                with scope.region:
                    if condition is not None:
                        value = condition.select(value, before)
                    if scope.mask is not None and before.lanes > 1:
                        value = scope.mask.select(value, before)
                following.append(value)
        return following

    def combined(
        self, fold: Fold, accumulators: Sequence[Value], elements: Sequence[Value], scope: Scope
    ) -> list[Value]:
        """The combiner on these values."""
        inner = Scope(scope, scope.region, HOLE)
        given = [*accumulators, *elements]
        for node in reachable(fold.combined):
            if node.op == "hole" and node.data in fold.slots:
                inner.memo[node] = given[fold.slots.index(node.data)]
        return [self.values.value(result, inner) for result in fold.combined]

    def combined_lanes(
        self, fold: Fold, accumulators: Sequence[Value], elements: Sequence[Value], lanes: int, scope: Scope
    ) -> list[Value]:
        """As `combined`, each with so many lanes."""
        values = self.combined(fold, accumulators, elements, scope)
        return [self.values.spread(value, lanes, scope) for value in values]

    # -- by vectors

    def _vector_fold(self, group: list[Node], bound: list[LoopAxis], axis: LoopAxis, scope: Scope) -> list[Value]:
        """Accumulators with a lane for every so many steps, combined at the end."""
        lanes, fn = self._width(axis, len(group)), self.emission.fn
        starts = [self._start(fold, k, lanes, scope) for fold in group for k in range(len(fold.data.inits))]
        rows = self._rows(group, axis, lanes, scope)
        whole = axis.extent // lanes * lanes

        def step(here: Scope, _: Index, values: list[Value]) -> list[Value]:
            following = self.stepped(group, values, here)
            _keep_rows(rows, here)
            return following

        def nest(inner: Scope, carried: Sequence[Value], level: int) -> Sequence[Value]:
            if level < len(bound):
                return axis_loop(inner, bound[level], carried, lambda s, _, c: nest(s, c, level + 1))
            low, middle = fn.index(0), fn.index(whole)
            if whole:
                carried = inner.loop(low, middle, lanes, carried, by_vectors(axis, lanes, None, step), runs=True)
            if whole < axis.extent:
                mask = LaneMask(fn, axis.extent - whole, lanes)
                part = by_vectors(axis, lanes, mask, step)
                carried = inner.loop(middle, fn.index(whole + lanes), lanes, carried, part, runs=True)
            return carried

        values = nest(scope, starts, 0)
        for node, row in rows.items():
            scope.memo["row", node] = row
        return self._across(group, values, lanes, scope)

    def _width(self, axis: LoopAxis, count: int) -> int:
        """The lanes of the accumulators of so many folds."""
        lanes = self.loops.lanes
        while lanes > 2 and axis.extent < lanes:
            lanes //= 2
        wide = lanes
        while wide < 4 * lanes and axis.extent >= 4 * wide and count <= 2:
            wide *= 2
        return wide

    def _rows(self, group: list[Node], axis: LoopAxis, wide: int, scope: Scope) -> dict[Node, Row]:
        """Memory for the nodes that these folds compute and the main loop needs again."""
        rows: dict[Node, Row] = {}
        for node in self.loops.spills:
            if axis is not self.loops.vector or ("row", node) in scope.memo:
                continue
            if any(fold.deps == node.deps & ~axis.bit and node in self._order_of_bodies(fold) for fold in group):
                count = -(-axis.extent // wide) * wide
                rows[node] = Row.of(self.emission.fn, node.dtype, count)
        return rows

    def _order_of_bodies(self, fold: Node) -> set[Node]:
        return {node for body in fold.data.bodies for node in self.values.order(body)}

    def _start(self, fold: Node, k: int, lanes: int, scope: Scope) -> Value:
        """The initial value of all lanes: a known op's identity, else the init, which may be taken several times."""
        data: Fold = fold.data
        dtype = data.inits[k].dtype
        if data.operations:
            return primitives.constant(self.emission.fn, identity_value(data.operations[k], dtype), dtype, lanes)
        return self.values.spread(self.values.value(data.inits[k], scope), lanes, scope)

    def _across(self, group: list[Node], values: Sequence[Value], lanes: int, scope: Scope) -> list[Value]:
        """The lanes of the accumulators combined into one, halves first; then the init, where lanes began elsewhere."""
        results: list[Value] = []
        for fold in group:
            data: Fold = fold.data
            mine, values = values[: len(data.inits)], values[len(data.inits) :]
            count = counter(data) if len(data.inits) > 1 else None
            width = lanes
            while width > 1:
                half = width // 2
                with scope.region:
                    low, high = ([_half(value, start) for value in mine] for start in (0, half))
                    if count is not None:
                        low, high = _in_order(low, high, count)
                mine = self.combined_lanes(data, low, high, half, scope)
                width = half
            if data.operations:
                mine = self.combined(data, [self.values.value(init, scope) for init in data.inits], mine, scope)
            results += mine
        return results


def _lanes(fold: Node, scope: Scope) -> int:
    """The lanes of a fold's accumulators outside its own loops."""
    return scope.lanes if scope.lane_axis is not None and fold.deps & scope.lane_axis.bit else 1


def _half(value: Value, start: int) -> Value:
    """The first or the second half of the lanes, which begins at `start`."""
    half = value.lanes // 2
    return value.lane(start) if half == 1 else value.shuffled(range(start, start + half))


def _in_order(low: Sequence[Value], high: Sequence[Value], count: int) -> tuple[list[Value], list[Value]]:
    """The earlier and the later of each lane's two values, as value number `count` tells."""
    is_later = low[count] > high[count]
    pairs = [(is_later.select(b, a), is_later.select(a, b)) for a, b in zip(low, high, strict=True)]
    return [first for first, _ in pairs], [second for _, second in pairs]


def _keep_rows(rows: dict[Node, Row], scope: Scope) -> None:
    """Stores what the step has computed of them; a masked rest may store more, for which rows have room."""
    for node, row in rows.items():
        value = scope.memo.get(node)
        if value is not None and value.lanes == scope.lanes:
            row.store(value, scope)


def identity_value(name: str, dtype: DType) -> Any:
    """The identity element of the primitive (of add -0, so that -0 stays -0)."""
    if dtype.kind == "pred":
        return name in ("and", "mul", "min")
    if dtype.is_floating:
        return {"add": -0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}[name]
    bits = dtype.bits
    least = -(1 << (bits - 1)) if dtype.is_signed else 0
    most = (1 << (bits - 1)) - 1 if dtype.is_signed else (1 << bits) - 1
    ones = -1 if dtype.is_signed else most
    return {"add": 0, "mul": 1, "max": least, "min": most, "and": ones, "or": 0, "xor": 0}[name]
