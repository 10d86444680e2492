"""Kernels: the main nest of loops, with segments, tiles and parts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise

from hlokit.cpu.emit.folds import FoldWriter
from hlokit.cpu.emit.scope import Body, Scope, Val
from hlokit.cpu.llvm import Function, scalar_type, splat, vector
from hlokit.cpu.loops import parted, segments
from hlokit.cpu.loops.expr import Axis
from hlokit.cpu.loops.nest import BLOCK, Parted, Span, Store
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes


class KernelWriter(FoldWriter):
    """Writes one kernel as `void @name(ptr %table, i64 %begin, i64 %end)`; `buffers` is what the table holds."""

    def write(self) -> Function:
        loops = self.loops
        if loops.parted is not None:
            self._parted(self.root, 0, loops.parted)
        elif loops.parallel:
            self._parallel()
        else:
            self._nest(self.root, 0)
        with self.at(self.root):
            if self._streams and self.target.triple.startswith("x86_64"):
                self.fn.do("call void @llvm.x86.sse.sfence()")
            self.fn.do("ret void")
        self.fn.lines = self.root.lines
        return self.fn

    # -- the main nest

    def _parallel(self) -> None:
        loops, fn = self.loops, self.fn
        axes = loops.order[: loops.parallel]
        count = 1
        for axis in axes:
            count *= loops.steps(axis)
        with self.at(self.root):
            low = fn.let(f"mul i64 %begin, {loops.chunk}")
            end = fn.let(f"mul i64 %end, {loops.chunk}")
            high = fn.let(f"call i64 @llvm.smin.i64(i64 {end}, i64 {count})")
        if axes[-1] is loops.vector:
            self._vector_pieces(self.root, axes[-1], low, high, [], lambda scope, _: self._inner(scope, 1))
            return

        def body(scope: Scope, _: list[str]) -> list[str]:
            with self.at(scope):
                rest = scope.memo["index"]
                for axis in reversed(axes[1:]):
                    scope.axes[axis] = fn.let(f"urem i64 {rest}, {loops.steps(axis)}")
                    rest = fn.let(f"udiv i64 {rest}, {loops.steps(axis)}")
                scope.axes[axes[0]] = rest
            for axis in axes:
                if axis is loops.tile:
                    scope.memo["block"] = scope.axes.pop(axis)
                else:
                    scope.bits |= axis.bit
            return self._inner(scope, len(axes))

        self._loop(self.root, low, high, 1, [], body, some=True)

    def _inner(self, scope: Scope, level: int) -> list[str]:
        self._nest(scope, level)
        return []

    def _nest(self, scope: Scope, level: int) -> None:
        loops = self.loops
        if loops.tile is not None and level >= len(loops.order) - (loops.order[-1] is loops.tile):
            self._tiles(scope, loops.tile)
            return
        taken = (a for a in loops.order[:level] if a in loops.pieces and a is not loops.vector)
        split = next((a for a in taken if a not in self._known), None)
        if split is not None:
            self._in_piece(scope, level, split)
            return
        stores = self._stored
        if level == self._guarded and "guarded" not in scope.memo:
            self._where_guarded(scope, level)
            return
        ready = [s for s in stores if self._level(s) == level]
        self._stores(ready, scope)
        if level == len(loops.order) or all(self._level(s) <= level for s in stores):
            return
        axis = loops.order[level]
        scans = [n for n in self._folds if n.data.scan is axis]
        carries = [self._spread(self.value(init, scope), self._fold_lanes(n, scope), init.dtype, scope)
                   for n in scans for init in n.data.inits]  # fmt: skip
        types = [vector(scalar_type(init.dtype), self._fold_lanes(n, scope)) for n in scans for init in n.data.inits]

        def body(inner: Scope, carried: list[str]) -> list[str]:
            following = self._scanned(scans, carried, inner, axis)
            self._nest(inner, level + 1)
            return following

        pairs = list(zip(types, carries, strict=True))
        if axis is loops.vector:
            self._vector_pieces(scope, axis, "0", str(axis.extent), pairs, body)
        elif axis is loops.tile:

            def block(inner: Scope, _: list[str]) -> list[str]:
                inner.memo["block"] = inner.memo["index"]
                return self._inner(inner, level + 1)

            self._loop(scope, "0", str(loops.steps(axis)), 1, [], block, some=True)
        elif loops.serial and axis is loops.order[-1] and axis.extent < 4 and not pairs:  # a window of a few elements
            for k in range(axis.extent):
                self._axis_loop(scope, axis, [], body, low=k, high=k + 1)
        else:
            self._axis_loop(scope, axis, pairs, body)

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
        guard = self._guard(guards, scope)
        inner = self._beside(scope)
        inner.memo = {**scope.memo, **dict.fromkeys(guards, Val("true")), "guarded": True}
        with self.when(scope, guard.name if guard is not None else "true"):
            self._nest(inner, level)

    # -- segments

    @contextmanager
    def _where_known(self, axis: Axis, span: Span) -> Generator[None]:
        """What is written inside is for these steps of the axis; where the span is empty, for any."""
        saved = self._stored, self._known
        self._known = {**self._known, axis: span}
        known = {a: s for a, s in self._known.items() if s[0] < s[1]}
        self._stored = segments.within(self.loops.stores, known, self._in_pieces) if known else self.loops.stores
        yield
        self._stored, self._known = saved

    def _in_piece(self, scope: Scope, level: int, axis: Axis) -> None:
        """The rest of the nest at a step of an axis that goes one by one: by the piece that the step is in."""
        own = self.loops.pieces[axis]
        if own[0] == (0, axis.extent):
            with self._where_known(axis, own[0]):
                self._nest(scope, level)
            return
        index = scope.of_axis(axis).axes[axis]
        done, rest = self.fn.new_block("done"), self.fn.new_block("piece")

        def part(span: Span) -> None:
            with self._where_known(axis, span):
                self._nest(self._beside(scope), level)
            with self.at(scope) as fn:
                fn.jump(done)

        def among(spans: Sequence[Span]) -> None:
            """The step is in one of the spans; found by halves."""
            if len(spans) == 1:
                if spans[0] in own:
                    part(spans[0])
                else:
                    with self.at(scope) as fn:
                        fn.jump(rest)
                return
            middle = len(spans) // 2
            with self.at(scope) as fn:
                before, after = fn.new_block("piece"), fn.new_block("piece")
                fn.branch(fn.let(f"icmp slt i64 {index}, {spans[middle][0]}"), before, after)
            for block, half in ((before, spans[:middle]), (after, spans[middle:])):
                with self.at(scope) as fn:
                    fn.start(block)
                among(half)

        if len(own) == 1:  # the usual case: one test
            first, last = own[0]
            with self.at(scope) as fn:
                inside = fn.new_block("piece")
                from_first = fn.let(f"sub i64 {index}, {first}") if first else index
                fn.branch(fn.let(f"icmp ult i64 {from_first}, {last - first}"), inside, rest)
                fn.start(inside)
            part(own[0])
        else:
            among(list(pairwise(sorted({0, axis.extent, *(place for span in own for place in span)}))))
        if sum(last - first for first, last in own) < axis.extent:
            with self.at(scope) as fn:
                fn.start(rest)
            part((0, 0))
        with self.at(scope) as fn:
            fn.start(done)

    def _beside(self, scope: Scope) -> Scope:
        """A scope that holds what the one it is in could: its values are not for what comes after it."""
        one = Scope(scope, scope.lines, scope.block)
        one.owner, one.is_branch = scope.owner, True
        outer: Scope | None = scope
        while outer is not None and outer.owner is scope.owner:
            one.bits |= outer.bits
            one.axes = {**outer.axes, **one.axes}
            outer = outer.parent
        return one

    def _vector_pieces(
        self, parent: Scope, axis: Axis, low: str, high: str, carries: list[tuple[str, str]], body: Body
    ) -> None:
        """The vector axis, in pieces where it has any."""
        spans = self.loops.pieces.get(axis, ())
        if not spans:
            self._vector_loop(parent, axis, low, high, carries, body)
            return
        place = 0
        for first, last in [*spans, (axis.extent, axis.extent)]:
            if place < first:
                with self._where_known(axis, (0, 0)):
                    self._vector_loop(parent, axis, low, high, [], body, span=(place, first))
            if first < last:
                with self._where_known(axis, (first, last)):
                    self._vector_loop(parent, axis, low, high, [], body, span=(first, last))
            place = last

    # -- parts of an operand

    def _parted(self, scope: Scope, level: int, plan: Parted) -> None:
        """Loops over updates that are in the chunk's part."""
        axis, extent = self.loops.order[level], self.loops.order[level].extent
        if axis is not plan.axis:

            def outer(inner: Scope, _: list[str]) -> list[str]:
                self._parted(inner, level + 1, plan)
                return []

            self._axis_loop(scope, axis, [], outer)
            return
        lanes = self.target.vector_bytes // 4
        with self.at(self.root) as fn:
            lists = [fn.alloca("i32", parted.LIST + lanes) for _ in range(1 + len(plan.values))]
            low, high = (fn.let(f"mul i64 {name}, {plan.size}") for name in ("%begin", "%end"))
            low, high = (fn.let(f"trunc i64 {name} to i32") for name in (low, high))
            size = fn.let(f"sub i32 {high}, {low}")
        type, types = vector("i32", lanes), [dtypes.s32, *(n.dtype for n in plan.values)]

        def found(inner: Scope, carried: list[str]) -> list[str]:
            inner.bits |= axis.bit
            inner.axes[axis] = inner.memo["index"]
            inner.lane_axis, inner.lanes = axis, lanes
            numbers = self._spread(self._number(Affine.of(axis), dtypes.s32, inner), lanes, dtypes.s32, inner)
            if extent % lanes:
                with self.at(inner) as fn:
                    inner.mask = fn.let(f"icmp slt {type} {numbers}, {splat(str(extent), 'i32', lanes)}")
            place = self._spread(self._number(plan.place, dtypes.s32, inner), lanes, dtypes.s32, inner)
            mask = self._mask(self._guard(plan.guards, inner), inner, lanes)
            begin, width = (self._splatted(name, "i32", lanes, inner) for name in (low, size))
            values = [self._spread(self.value(n, inner), lanes, n.dtype, inner) for n in plan.values]
            with self.at(inner) as fn:
                from_low = fn.let(f"sub {type} {place}, {begin}")
                mine = fn.let(f"icmp ult {type} {from_low}, {width}")
                if mask is not None:
                    bits = f"<{lanes} x i1>"
                    mine = fn.let(f"select {bits} {mask}, {bits} {mine}, {bits} zeroinitializer")
                for memory, name, dtype in zip(lists, [numbers, *values], types, strict=True):
                    if dtype.bits < 32:
                        name = fn.let(f"sext {vector(scalar_type(dtype), lanes)} {name} to {type}")
                    packed = fn.let(
                        f"call {type} @llvm.experimental.vector.compress.v{lanes}i32("
                        f"{type} {name}, <{lanes} x i1> {mine}, {type} poison)"
                    )
                    end = fn.let(f"getelementptr i32, ptr {memory}, i64 {carried[0]}")
                    fn.do(f"store {type} {packed}, ptr {end}, align 4")
                bits = fn.let(f"bitcast <{lanes} x i1> {mine} to i{lanes}")
                bits = fn.let(f"call i{lanes} @llvm.ctpop.i{lanes}(i{lanes} {bits})")
                more = fn.let(f"zext i{lanes} {bits} to i64")
                return [fn.let(f"add nuw nsw i64 {carried[0]}, {more}")]

        def each(inner: Scope, _: list[str]) -> list[str]:
            inner.bits |= axis.bit
            with self.at(inner) as fn:
                number = inner.memo["index"]
                places = [fn.let(f"getelementptr i32, ptr {memory}, i64 {number}") for memory in lists]
                names = [fn.let(f"load i32, ptr {place}, align 4") for place in places]
                inner.axes[axis] = fn.let(f"zext i32 {names[0]} to i64")
                for node, name in zip(plan.values, names[1:], strict=True):
                    small = scalar_type(node.dtype)
                    inner.memo[node] = Val(name if small == "i32" else fn.let(f"trunc i32 {name} to {small}"))
            for guard in plan.guards:
                inner.memo[guard] = Val("true")
            return self._inner(inner, level + 1)

        def block(inner: Scope, _: list[str]) -> list[str]:
            start = inner.memo["index"]
            with self.at(inner) as fn:
                end = str(extent)
                if not start.isdigit():
                    end = fn.let(f"add i64 {start}, {parted.LIST}")
                    end = fn.let(f"call i64 @llvm.smin.i64(i64 {end}, i64 {extent})")
            (count,) = self._loop(inner, start, end, lanes, [("i64", "0")], found, some=True)
            self._loop(inner, "0", count, 1, [], each)
            return []

        self._loop(scope, "0", str(extent), parted.LIST, [], block, some=True)

    # -- tiles

    def _tiles(self, scope: Scope, tile: Axis) -> None:
        """The steps of the tile axis, some at once: all of them, or those of the block that an outer loop is at."""
        rows, extent = min(self.loops.rows, tile.extent), tile.extent
        whole = extent // rows * rows
        outer: Scope | None = scope
        while outer is not None and "block" not in outer.memo:
            outer = outer.parent

        def part(count: int) -> Body:
            def body(inner: Scope, _: list[str]) -> list[str]:
                inner.axes[tile] = inner.memo["index"]
                inner.memo["columns"] = count
                for k in range(count):
                    one = Scope(inner, inner.lines, inner.block, tile.bit)
                    one.owner = inner.owner
                    one.shift = k
                    self._stores(self._stored, one)
                return []

            return body

        if outer is None:
            self._loop(scope, "0", str(whole), rows, [], part(rows), some=True)
            if whole < extent:
                self._loop(scope, str(whole), str(whole + 1), 1, [], part(extent - whole), some=True)
            return
        ends = outer.memo.get("block ends")
        if ends is None:
            with self.at(outer) as fn:
                low = fn.let(f"mul nuw nsw i64 {outer.memo['block']}, {BLOCK}")
                end = fn.let(f"add nuw nsw i64 {low}, {BLOCK}")
                high = end if extent % BLOCK == 0 else fn.let(f"call i64 @llvm.smin.i64(i64 {end}, i64 {whole})")
                last = fn.let(f"icmp sge i64 {end}, {extent}")
            ends = outer.memo["block ends"] = low, high, last
        low, high, last = ends
        self._loop(scope, low, high, rows, [], part(rows), some=extent % BLOCK == 0)
        if whole < extent:
            with self.when(scope, last):
                self._loop(scope, str(whole), str(whole + 1), 1, [], part(extent - whole), some=True)
