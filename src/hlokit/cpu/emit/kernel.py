"""Kernels: the main nest of loops, with the tiles in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

from hlokit.cpu.emit import pieces
from hlokit.cpu.emit.columns import ColumnFolds
from hlokit.cpu.emit.elements import Elements
from hlokit.cpu.emit.loops import axis_loop
from hlokit.cpu.emit.parted import PartedLoops
from hlokit.cpu.emit.scans import Scans
from hlokit.cpu.emit.scope import Body, BufferTable, Emission, Scope
from hlokit.cpu.llvm import I1, Function, Index, Value
from hlokit.cpu.loops.expr import LoopAxis
from hlokit.cpu.loops.nest import Loops, Store
from hlokit.cpu.target import Target

_WRITTEN_OUT = 4
"""Steps of a serial innermost axis below which it is written out: a window of a few elements."""


class KernelWriter:
    """Writes one kernel as `void @name(ptr %table, i64 %begin, i64 %end)`; `buffers` is what the table holds."""

    def __init__(self, loops: Loops, name: str, target: Target) -> None:
        parameters = [("ptr noalias readonly", "table"), ("i64", "begin"), ("i64", "end")]
        self.fn = Function(name, parameters, target=target)
        self.loops = loops
        self.emission = Emission.of(self.fn, loops)
        table = BufferTable(self.fn)
        self.buffers = table.buffers
        self.elements = Elements(self.emission, table)
        self.scans = Scans(self.elements.folds)
        self.columns = ColumnFolds(self.elements.folds)

    def write(self) -> Function:
        loops, root, fn = self.loops, self.emission.root, self.fn
        if loops.parted is not None:
            PartedLoops(self.elements, loops.parted, self._inner).write(root, 0)
        elif loops.parallel:
            self._parallel(root)
        else:
            self._nest(root, 0)
        with root.region:
            if self.emission.streams and fn.target.arch == "x86_64":
                fn.call("llvm.x86.sse.sfence")
            fn.returns()
        return fn

    # -- the main nest

    def _parallel(self, root: Scope) -> None:
        """The chunk's steps of the axes that chunks count."""
        loops, fn = self.loops, self.fn
        axes = loops.order[: loops.parallel]
        with root.region:
            low, end = (fn.argument(name) * loops.chunk for name in ("begin", "end"))
            high = end.smin(prod(loops.steps(axis) for axis in axes))
        if axes[-1] is loops.vector:
            pieces.chunk(self.emission, root, axes[-1], low, high, lambda scope, _i, _c: self._inner(scope, 1))
            return

        def body(scope: Scope, index: Index, _: list[Value]) -> list[Value]:
            rest = index
            with scope.region:
                for axis in reversed(axes[1:]):
                    scope.axes[axis] = rest % loops.steps(axis)
                    rest = rest // loops.steps(axis)
                scope.axes[axes[0]] = rest
            for axis in axes:
                if axis is loops.tile:
                    scope.block = scope.axes.pop(axis)
                else:
                    scope.bits |= axis.bit
            return self._inner(scope, len(axes))

        root.loop(fn.index(low), fn.index(high), 1, [], body, runs=True)

    def _inner(self, scope: Scope, level: int) -> list[Value]:
        """As `_nest`, for a loop that carries nothing."""
        self._nest(scope, level)
        return []

    def _nest(self, scope: Scope, level: int) -> None:
        """The loops of the order from this level on, and the stores at each level."""
        loops, emission = self.loops, self.emission
        if loops.tile is not None and level >= len(loops.order) - (loops.order[-1] is loops.tile):
            self._tiles(scope, loops.tile)
            return
        taken = (a for a in loops.order[:level] if a in loops.pieces and a is not loops.vector)
        split = next((a for a in taken if a not in emission.known), None)
        if split is not None:
            pieces.at_step(emission, scope, split, lambda inner: self._nest(inner, level))
            return
        if level == self._guarded and not scope.guarded:
            self._where_guarded(scope, level)
            return
        stores = emission.stores
        self.elements.stores.write([s for s in stores if self._level(s) == level], scope)
        if level < len(loops.order) and any(self._level(s) > level for s in stores):
            self._axis(scope, level, loops.order[level])

    def _axis(self, scope: Scope, level: int, axis: LoopAxis) -> None:
        """The loop over the axis of this level."""
        loops, fn = self.loops, self.fn
        scans = self.scans.along(axis)
        carries = self.elements.folds.accumulators(scans, scope)

        def body(inner: Scope, _: Index, carried: list[Value]) -> Sequence[Value]:
            following = self.scans.step(scans, carried, inner, axis)
            self._nest(inner, level + 1)
            return following

        if axis is loops.vector:
            self.columns.write(axis, scope)
            pieces.whole(self.emission, scope, axis, carries, body)
        elif axis is loops.tile:

            def block(inner: Scope, index: Index, _: list[Value]) -> list[Value]:
                inner.block = index
                return self._inner(inner, level + 1)

            scope.loop(fn.index(0), fn.index(loops.steps(axis)), 1, [], block, runs=True)
        elif loops.serial and axis is loops.order[-1] and axis.extent < _WRITTEN_OUT and not carries:
            for k in range(axis.extent):
                axis_loop(scope, axis, [], body, low=k, high=k + 1)
        else:
            axis_loop(scope, axis, carries, body)

    def _level(self, store: Store) -> int:
        deps = store.deps
        return max((k + 1 for k, axis in enumerate(self.loops.order) if axis.bit & deps), default=0)

    # -- guards

    @cached_property
    def _guarded(self) -> int:
        """The level of the nest at which the guards of a scatter that has no parts are tested; -1: at each store."""
        loops = self.loops
        guards = loops.stores[0].guards
        if not loops.serial or loops.parted is not None or any(store.guards != guards for store in loops.stores):
            return -1
        deps = [guard.deps for guard in guards]
        if not deps or not all(deps):
            return -1
        level = max((k + 1 for k, axis in enumerate(loops.order) if any(axis.bit & d for d in deps)), default=-1)
        if any(axis in (loops.vector, loops.tile) or axis in loops.pieces for axis in loops.order[:level]):
            return -1
        return level

    def _where_guarded(self, scope: Scope, level: int) -> None:
        """The rest of the nest, only where the guards hold."""
        guards = self.loops.stores[0].guards
        holds = self.fn.constant(True, I1)
        guard = self.elements.loads.guard(guards, scope)
        inner = scope.beside()
        inner.memo = {**scope.memo, **dict.fromkeys(guards, holds)}
        inner.guarded = True
        with scope.region.when(holds if guard is None else guard):
            self._nest(inner, level)

    # -- tiles

    def _tiles(self, scope: Scope, tile: LoopAxis) -> None:
        """The steps of the tile axis, some at once: all of them, or those of the block that an outer loop is at."""
        fn, extent, block = self.fn, tile.extent, self.loops.block
        rows = min(self.loops.rows, extent)
        whole = extent // rows * rows
        end = fn.index(whole)

        def last() -> None:
            if whole < extent:
                scope.loop(end, fn.index(whole + 1), 1, [], self._columns(tile, extent - whole), runs=True)

        outer: Scope | None = scope
        while outer is not None and outer.block is None:
            outer = outer.parent
        if outer is None:
            scope.loop(fn.index(0), end, rows, [], self._columns(tile, rows), runs=True)
            last()
            return
        assert outer.block is not None
        if "block ends" not in outer.memo:
            with outer.region:
                low = outer.block * block
                high = low + block
                within = high if extent % block == 0 else high.smin(whole)
                outer.memo["block ends"] = low, within, high >= extent
        low, high, is_last = outer.memo["block ends"]
        scope.loop(low, high, rows, [], self._columns(tile, rows), runs=extent % block == 0)
        if whole < extent:
            with scope.region.when(is_last):
                last()

    def _columns(self, tile: LoopAxis, count: int) -> Body:
        """So many steps of the tile axis, written out side by side."""

        def body(inner: Scope, index: Index, _: list[Value]) -> list[Value]:
            inner.axes[tile] = index
            inner.columns = count
            for k in range(count):
                one = Scope(inner, inner.region, tile.bit)
                one.shift = k
                self.elements.stores.write(self.emission.stores, one)
            return []

        return body
