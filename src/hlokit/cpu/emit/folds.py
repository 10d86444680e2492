"""Folds: accumulators carried through loops, lanes combined at the end; prefix folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.cpu.emit.memory import MemoryWriter
from hlokit.cpu.emit.scope import Body, Scope, Val
from hlokit.cpu.llvm import scalar_type, splat, vector
from hlokit.cpu.loops.expr import HOLE, Axis, Fold, Node, children, identity_name, reachable, runtime_nodes
from hlokit.cpu.loops.nest import Loops
from hlokit.cpu.loops.order import counter
from hlokit.cpu.math import primitives
from hlokit.cpu.target import Target
from hlokit.types.dtype import DType


class FoldWriter(MemoryWriter):
    """Writes folds."""

    def __init__(self, loops: Loops, name: str, target: Target) -> None:
        super().__init__(loops, name, target)
        roots = [r for s in loops.stores for r in (s.node, *s.guards, *runtime_nodes(s.place))]
        self._folds = [n for n in reachable(roots) if n.op == "fold"]
        self._groups = self._fold_groups()

    # -- rows: what a fold computed and the main loop needs again

    def _keep_rows(self, rows: dict[Node, str], scope: Scope) -> None:
        """Stores what the step has computed of them; a masked rest may store more, for which rows have room."""
        for node, row in rows.items():
            value = scope.memo.get(node)
            if value is not None and value.lanes == scope.lanes:
                with self.at(scope) as fn:
                    type = vector(scalar_type(node.dtype), scope.lanes)
                    fn.do(f"store {type} {value.name}, ptr {self._row_place(row, node, scope)}, align 4")

    # -- folds

    def _fold_groups(self) -> dict[Node, list[Node]]:
        """Folds over the same axes at the same place, none of which needs another, share a loop."""
        below: dict[Node, set[Node]] = {}
        groups: list[list[Node]] = []
        found: dict[Node, list[Node]] = {}
        for fold in self._folds:
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

    def _fold_lanes(self, fold: Node, scope: Scope) -> int:
        """The lanes of a fold's accumulators outside its own loops."""
        return scope.lanes if scope.lane_axis is not None and fold.deps & scope.lane_axis.bit else 1

    def _fold(self, node: Node, scope: Scope) -> list[Val]:
        group = [f for f in self._groups[node] if f not in scope.memo]
        for fold in group:
            for init in fold.data.inits:
                self.value(init, scope)
        outer, self._pass = self._pass, node
        axis = self.loops.folds.get(node)
        bound = [a for a in node.data.bound if a is not axis]
        if axis is not None and scope.lane_axis is None:
            values = self._vector_fold(group, bound, axis, scope)
        else:
            values = self._plain_fold(group, list(node.data.bound), scope)
        self._pass = outer
        for fold in group:
            count = len(fold.data.inits)
            scope.memo[fold], values = values[:count], values[count:]
        return scope.memo[node]

    def _plain_fold(self, group: list[Node], bound: list[Axis], scope: Scope) -> list[Val]:
        lanes = [self._fold_lanes(fold, scope) for fold in group for _ in fold.data.inits]
        inits = [init for fold in group for init in fold.data.inits]
        carries = [
            (vector(scalar_type(i.dtype), n), self._spread(self.value(i, scope), n, i.dtype, scope))
            for i, n in zip(inits, lanes, strict=True)
        ]

        def nest(inner: Scope, carried: list[str], level: int) -> list[str]:
            if level == len(bound):
                return self._stepped(group, [Val(c, n) for c, n in zip(carried, lanes, strict=True)], inner)
            pairs = [(type, value) for (type, _), value in zip(carries, carried, strict=True)]
            return self._axis_loop(inner, bound[level], pairs, lambda s, c: nest(s, c, level + 1))

        names = nest(scope, [value for _, value in carries], 0)
        return [Val(name, n) for name, n in zip(names, lanes, strict=True)]

    def _stepped(self, group: list[Node], accumulators: list[Val], scope: Scope) -> list[str]:
        """The accumulators after one step (or one vector of steps, lane by lane)."""
        names: list[str] = []
        for fold in group:
            data: Fold = fold.data
            old, accumulators = accumulators[: len(data.inits)], accumulators[len(data.inits) :]
            bodies = [self.value(b, scope) for b in data.bodies]
            new = self._combined(data, old, bodies, scope)
            for k, (before, after) in enumerate(zip(old, new, strict=True)):
                name = self._spread(after, before.lanes, data.inits[k].dtype, scope)
                condition = self.value(data.valid, scope) if data.valid is not None else None
                name = self._where(condition, name, before, data.inits[k].dtype, scope)
                if scope.mask is not None and before.lanes > 1:
                    name = self._where(Val(scope.mask, before.lanes), name, before, data.inits[k].dtype, scope)
                names.append(name)
        return names

    def _where(self, condition: Val | None, name: str, otherwise: Val, dtype: DType, scope: Scope) -> str:
        if condition is None:
            return name
        lanes = otherwise.lanes
        type = vector(scalar_type(dtype), lanes)
        chosen = vector("i1", condition.lanes) if condition.lanes > 1 else "i1"
        with self.at(scope) as fn:
            return fn.let(f"select {chosen} {condition.name}, {type} {name}, {type} {otherwise.name}")

    def _combined(self, fold: Fold, accumulators: Sequence[Val], elements: Sequence[Val], scope: Scope) -> list[Val]:
        """The combiner on these values."""
        inner = Scope(scope, scope.owner.lines, scope.owner.block, HOLE)
        inner.owner = scope.owner
        places: list[Node] = sorted(self._holes(fold), key=lambda hole: hole.data)
        values: dict[Node, Val] = {}
        width = len(fold.inits)
        slots = self._slots(fold, places)
        for hole in places:
            which = slots[hole]
            values[hole] = accumulators[which] if which < width else elements[which - width]
        inner.memo.update(values)
        return [self.value(result, inner) for result in fold.combined]

    def _holes(self, fold: Fold) -> list[Node]:
        return [node for node in reachable(fold.combined) if node.op == "hole" and node.data in fold.slots]

    def _slots(self, fold: Fold, holes: Sequence[Node]) -> dict[Node, int]:
        """Each hole's place among the accumulators (first) and elements, complex ones counted by component."""
        return {hole: fold.slots.index(hole.data) for hole in holes}

    def _vector_fold(self, group: list[Node], bound: list[Axis], axis: Axis, scope: Scope) -> list[Val]:
        """Accumulators with a lane for every so many steps, combined at the end."""
        lanes = self.loops.lanes
        while lanes > 2 and axis.extent < lanes:
            lanes //= 2
        wide = lanes
        while wide < 4 * lanes and axis.extent >= 4 * wide and len(group) <= 2:
            wide *= 2
        inits = [init for fold in group for init in fold.data.inits]
        starts = [self._start(fold, k, wide, scope) for fold in group for k in range(len(fold.data.inits))]
        types = [scalar_type(i.dtype) for i in inits]
        rows = self._rows(group, axis, wide, scope)

        def nest(inner: Scope, carried: list[str], level: int) -> list[str]:
            if level < len(bound):
                pairs = [(vector(t, wide), c) for t, c in zip(types, carried, strict=True)]
                return self._axis_loop(inner, bound[level], pairs, lambda s, c: nest(s, c, level + 1))
            whole = axis.extent // wide * wide

            def part(count: int, mask: str | None) -> Body:
                def body(here: Scope, values: list[str]) -> list[str]:
                    here.bits |= axis.bit
                    here.axes[axis] = here.memo["index"]
                    here.lane_axis, here.lanes, here.mask = axis, count, mask
                    following = self._stepped(group, [Val(v, count) for v in values], here)
                    self._keep_rows(rows, here)
                    return following

                return body

            values = carried
            if whole:
                pairs = [(vector(t, wide), c) for t, c in zip(types, values, strict=True)]
                values = self._loop(inner, "0", str(whole), wide, pairs, part(wide, None), some=True)
            if whole < axis.extent:
                count = axis.extent - whole
                mask = "<" + ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(wide)) + ">"
                pairs = [(vector(t, wide), c) for t, c in zip(types, values, strict=True)]
                values = self._loop(inner, str(whole), str(whole + wide), wide, pairs, part(wide, mask), some=True)
            return values

        values = [Val(v, wide) for v in nest(scope, starts, 0)]
        for node, row in rows.items():
            scope.memo[("row", node)] = row
        return self._across(group, values, wide, scope)

    def _rows(self, group: list[Node], axis: Axis, wide: int, scope: Scope) -> dict[Node, str]:
        """Memory for the nodes that these folds compute and the main loop needs again."""
        rows: dict[Node, str] = {}
        for node in self.loops.spills:
            if axis is not self.loops.vector or ("row", node) in scope.memo:
                continue
            if any(fold.deps == node.deps & ~axis.bit and node in self._order_of_bodies(fold) for fold in group):
                rows[node] = self.fn.alloca(scalar_type(node.dtype), -(-axis.extent // wide) * wide)
        return rows

    def _order_of_bodies(self, fold: Node) -> set[Node]:
        return {node for body in fold.data.bodies for node in self._order(body)}

    def _start(self, fold: Node, k: int, lanes: int, scope: Scope) -> str:
        """What lanes start from: the identity of a known op, else the init, which may be taken any number of times."""
        data: Fold = fold.data
        dtype = data.inits[k].dtype
        name = identity_name(data.combined[0]) if len(data.inits) == 1 else None
        if name is not None:
            return splat(primitives.constant(identity_value(name, dtype), dtype), scalar_type(dtype), lanes)
        return self._spread(self.value(data.inits[k], scope), lanes, dtype, scope)

    def _across(self, group: list[Node], values: list[Val], lanes: int, scope: Scope) -> list[Val]:
        """The lanes of the accumulators combined into one, halves first; then the init, where lanes began elsewhere."""
        results: list[Val] = []
        for fold in group:
            data: Fold = fold.data
            mine, values = values[: len(data.inits)], values[len(data.inits) :]
            count = counter(data) if len(data.inits) > 1 else None
            width = lanes
            while width > 1:
                half = width // 2
                low = [self._half(v, i.dtype, width, 0, scope) for v, i in zip(mine, data.inits, strict=True)]
                high = [self._half(v, i.dtype, width, half, scope) for v, i in zip(mine, data.inits, strict=True)]
                if count is not None:
                    low, high = self._in_order(data, low, high, count, scope)
                mine = self._combined(data, low, high, scope)
                mine = [Val(self._spread(v, half, i.dtype, scope), half) for v, i in zip(mine, data.inits, strict=True)]
                width = half
            if len(data.inits) == 1 and identity_name(data.combined[0]) is not None:
                mine = self._combined(data, [self.value(data.inits[0], scope)], mine, scope)
            results += mine
        return results

    def _in_order(
        self, fold: Fold, low: Sequence[Val], high: Sequence[Val], count: int, scope: Scope
    ) -> tuple[list[Val], list[Val]]:
        """Of each lane's two what came first, and the other: as value number `count` tells."""
        lanes = low[count].lanes
        type = vector(scalar_type(fold.inits[count].dtype), lanes)
        with self.at(scope) as fn:
            later = Val(fn.let(f"icmp sgt {type} {low[count].name}, {high[count].name}"), lanes)
        first, second = list[Val](), list[Val]()
        for a, b, init in zip(low, high, fold.inits, strict=True):
            first.append(Val(self._where(later, b.name, a, init.dtype, scope), lanes))
            second.append(Val(self._where(later, a.name, b, init.dtype, scope), lanes))
        return first, second

    def _half(self, value: Val, dtype: DType, width: int, start: int, scope: Scope) -> Val:
        half = width // 2
        type = vector(scalar_type(dtype), width)
        with self.at(scope) as fn:
            if half == 1:
                return Val(fn.let(f"extractelement {type} {value.name}, i64 {start}"))
            order = "<" + ", ".join(f"i32 {start + k}" for k in range(half)) + ">"
            return Val(fn.let(f"shufflevector {type} {value.name}, {type} poison, <{half} x i32> {order}"), half)

    # -- prefix folds

    def _scanned(self, scans: Sequence[Node], carried: list[str], scope: Scope, axis: Axis) -> list[str]:
        """Puts the folds' values at this step into the scope; gives the carries for the next."""
        following: list[str] = []
        for fold in scans:
            data: Fold = fold.data
            mine, carried = carried[: len(data.inits)], carried[len(data.inits) :]
            bodies = [self.value(b, scope) for b in data.bodies]
            if scope.lane_axis is axis:
                values, last = self._prefixes(data, mine, bodies, scope)
            else:
                lanes = self._fold_lanes(fold, scope)
                combined = self._combined(data, [Val(c, lanes) for c in mine], bodies, scope)
                values = [
                    Val(self._spread(v, lanes, i.dtype, scope), lanes)
                    for v, i in zip(combined, data.inits, strict=True)
                ]
                last = [v.name for v in values]
            scope.memo[fold] = values
            following += last
        return following

    def _prefixes(
        self, fold: Fold, carried: Sequence[str], bodies: Sequence[Val], scope: Scope
    ) -> tuple[list[Val], list[str]]:
        """The folds of the first 1, 2, 3, ... lanes, each after what was carried here."""
        lanes = scope.lanes
        types = [i.dtype for i in fold.inits]
        values = [Val(self._spread(b, lanes, t, scope), lanes) for b, t in zip(bodies, types, strict=True)]
        step = 1
        while step < lanes:
            order = "<" + ", ".join(f"i32 {max(k - step, 0)}" for k in range(lanes)) + ">"
            moved: list[Val] = []
            for v, t in zip(values, types, strict=True):
                type = vector(scalar_type(t), lanes)
                with self.at(scope) as fn:
                    moved.append(
                        Val(fn.let(f"shufflevector {type} {v.name}, {type} poison, <{lanes} x i32> {order}"), lanes)
                    )
            new = self._combined(fold, moved, values, scope)
            mask = "<" + ", ".join(f"i1 {'true' if k >= step else 'false'}" for k in range(lanes)) + ">"
            values = [
                Val(self._where(Val(mask, lanes), self._spread(a, lanes, t, scope), b, t, scope), lanes)
                for a, b, t in zip(new, values, types, strict=True)
            ]
            step *= 2
        is_quick = len(types) == 1 and identity_name(fold.combined[0]) in ("add", "mul")
        totals = self._last_lanes(values, types, lanes, scope)
        before = [
            Val(self._splatted(c, scalar_type(t), lanes, scope), lanes) for c, t in zip(carried, types, strict=True)
        ]
        values = [Val(self._spread(v, lanes, t, scope), lanes)
                  for v, t in zip(self._combined(fold, before, values, scope), types, strict=True)]  # fmt: skip
        if is_quick:  # the same sum; what the next step begins with waits for one addition alone
            return values, [v.name for v in self._combined(fold, [Val(c) for c in carried], totals, scope)]
        return values, [v.name for v in self._last_lanes(values, types, lanes, scope)]

    def _last_lanes(self, values: Sequence[Val], types: Sequence[DType], lanes: int, scope: Scope) -> list[Val]:
        found: list[Val] = []
        for v, t in zip(values, types, strict=True):
            with self.at(scope) as fn:
                found.append(Val(fn.let(f"extractelement {vector(scalar_type(t), lanes)} {v.name}, i64 {lanes - 1}")))
        return found


def identity_value(name: str, dtype: DType) -> Any:
    """What the primitive leaves its other operand as it is with (add: -0, so that -0 stays -0)."""
    if dtype.kind == "pred":
        return name in ("and", "mul", "min")
    if dtype.is_floating:
        return {"add": -0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}[name]
    bits = dtype.bits
    least = -(1 << (bits - 1)) if dtype.is_signed else 0
    most = (1 << (bits - 1)) - 1 if dtype.is_signed else (1 << bits) - 1
    ones = -1 if dtype.is_signed else most
    return {"add": 0, "mul": 1, "max": least, "min": most, "and": ones, "or": 0, "xor": 0}[name]
