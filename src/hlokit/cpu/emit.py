"""Place and print: loops become LLVM text. The only stage that knows of vectors, masks and addresses.

A node's code goes to the outermost loop that binds all axes it depends on. A value is a vector if it depends on the
axis whose loop goes by vectors, else a scalar; scalars are spread where they meet vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from hlokit.cpu import parted, primitives, segments, tiles
from hlokit.cpu.expr import HOLE, Axis, Buffer, Expressions, Fold, Node, RuntimeInt, children, reachable
from hlokit.cpu.llvm import Function, float_constant, memory_type, scalar_type, splat, vector
from hlokit.cpu.order import Loops, Store, identity_name, runtime_nodes
from hlokit.cpu.target import Target
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType


@dataclass(frozen=True)
class Val:
    """An SSA name or a constant's text, and how many lanes it has."""

    name: str
    lanes: int = 1

    @property
    def is_constant(self) -> bool:
        return not self.name.startswith("%")


class Scope:
    """A loop's body, or the function's: where code can be put.

    bits    the axes that it binds (HOLE for the application of a combiner)
    lanes   the number of lanes of the axis that goes by vectors, here or outside; 1 if none does
    mask    the lanes of a last, partial vector that exist, as text; None for all
    """

    def __init__(self, parent: Scope | None, lines: list[str], block: str, bits: int = 0) -> None:
        self.parent = parent
        self.lines = lines
        self.block = block
        self.bits = bits
        self.memo: dict[Any, Any] = {}
        self.axes: dict[Axis, str] = {}
        self.shift = 0  # of the tile axis, whose name is in an outer scope
        self.lane_axis: Axis | None = parent.lane_axis if parent else None
        self.lanes: int = parent.lanes if parent else 1
        self.mask: str | None = parent.mask if parent else None
        self.depth: int = parent.depth + 1 if parent else 0
        self.owner: Scope = self  # whose lines these are

    def holder(self, deps: int) -> Scope:
        """The innermost scope that binds any of these axes; the function's where there is none."""
        scope = self
        while scope.parent is not None and not scope.bits & deps:
            scope = scope.parent
        return scope

    def of_axis(self, axis: Axis) -> Scope:
        scope: Scope | None = self
        while scope is not None:
            if axis in scope.axes:
                return scope
            scope = scope.parent
        raise AssertionError(f"{axis} is read outside its loop")


Body = Callable[[Scope, list[str]], list[str]]


class KernelWriter:
    """Writes one kernel as `void @name(ptr %table, i64 %begin, i64 %end)`; `buffers` is what the table holds."""

    def __init__(self, loops: Loops, name: str, target: Target) -> None:
        self.loops = loops
        self.target = target
        self.fn = Function(name, [("ptr noalias readonly", "table"), ("i64", "begin"), ("i64", "end")])
        self.buffers: list[Buffer] = []
        self.root = Scope(None, self.fn.lines, "entry")
        self._orders: dict[Node, list[Node]] = {}
        self._pointers: dict[Buffer, str] = {}
        self._streams = False
        self._stored: Sequence[Store] = loops.stores
        self._known: dict[Axis, segments.Span] = {}
        self._in_pieces = Expressions()
        self._groups = self._fold_groups()

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

    @contextmanager
    def at(self, scope: Scope) -> Iterator[Function]:
        """Writes into a scope."""
        owner, fn = scope.owner, self.fn
        saved = fn.lines, fn.block
        fn.lines, fn.block = owner.lines, owner.block
        yield fn
        owner.block = fn.block
        fn.lines, fn.block = saved
        if owner.lines is saved[0]:
            fn.block = owner.block

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
        else:
            self._axis_loop(scope, axis, pairs, body)

    def _level(self, store: Store) -> int:
        deps = store.deps
        return max((k + 1 for k, axis in enumerate(self.loops.order) if axis.bit & deps), default=0)

    # -- segments

    @contextmanager
    def _where_known(self, axis: Axis, span: segments.Span) -> Iterator[None]:
        """What is written inside is for these steps of the axis; where the span is empty, for any."""
        saved = self._stored, self._known
        self._known = {**self._known, axis: span}
        known = {a: s for a, s in self._known.items() if s[0] < s[1]}
        self._stored = segments.within(self.loops.stores, known, self._in_pieces) if known else self.loops.stores
        yield
        self._stored, self._known = saved

    def _in_piece(self, scope: Scope, level: int, axis: Axis) -> None:
        """The rest of the nest at a step of an axis that goes one by one: by the piece that the step is in."""
        spans = self.loops.pieces[axis]
        fn, index = self.fn, scope.of_axis(axis).axes[axis]
        done = fn.new_block("done")
        for number, (first, last) in enumerate(spans):
            is_all = number + 1 == len(spans) and sum(b - a for a, b in spans) == axis.extent
            following = fn.new_block("piece")
            if not is_all:
                with self.at(scope):
                    inside = fn.new_block("piece")
                    from_first = fn.let(f"sub i64 {index}, {first}") if first else index
                    fn.branch(fn.let(f"icmp ult i64 {from_first}, {last - first}"), inside, following)
                    fn.start(inside)
            with self._where_known(axis, (first, last)):
                self._nest(self._beside(scope), level)
            with self.at(scope):
                fn.jump(done)
                if not is_all:
                    fn.start(following)
        if sum(b - a for a, b in spans) < axis.extent:
            with self._where_known(axis, (0, 0)):
                self._nest(self._beside(scope), level)
            with self.at(scope):
                fn.jump(done)
        with self.at(scope):
            fn.start(done)

    def _beside(self, scope: Scope) -> Scope:
        """A scope that holds what the one it is in could: its values are not for what comes after it."""
        one = Scope(scope, scope.lines, scope.block)
        one.owner = scope.owner
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

    def _parted(self, scope: Scope, level: int, plan: parted.Parted) -> None:
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
                    mine = fn.let(f"and <{lanes} x i1> {mine}, {mask}")
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
                low = fn.let(f"mul nuw nsw i64 {outer.memo['block']}, {tiles.BLOCK}")
                end = fn.let(f"add nuw nsw i64 {low}, {tiles.BLOCK}")
                high = end if extent % tiles.BLOCK == 0 else fn.let(f"call i64 @llvm.smin.i64(i64 {end}, i64 {whole})")
                last = fn.let(f"icmp sge i64 {end}, {extent}")
            ends = outer.memo["block ends"] = low, high, last
        low, high, last = ends
        self._loop(scope, low, high, rows, [], part(rows), some=extent % tiles.BLOCK == 0)
        if whole < extent:
            with self.at(scope) as fn:
                then, after = fn.new_block("rest"), fn.new_block("done")
                fn.branch(last, then, after)
                fn.start(then)
            self._loop(scope, str(whole), str(whole + 1), 1, [], part(extent - whole), some=True)
            with self.at(scope) as fn:
                fn.jump(after)
                fn.start(after)

    def _shifted(self, affine: Affine, scope: Scope) -> int:
        """What the step of a tile adds to an affine."""
        tile, outer = self.loops.tile, scope
        while tile is not None and outer.parent is not None:
            if outer.bits & tile.bit:
                return affine.coefficient(tile) * outer.shift
            outer = outer.parent
        return 0

    def _transposed(self, buffer: Buffer, affine: Affine, scope: Scope) -> Val:
        """A load of which rows are read, for all steps of the tile that lie in them."""
        tile = self.loops.tile
        assert tile is not None
        outer = scope.of_axis(tile)
        step, size = affine.coefficient(tile), buffer.dtype.numpy.itemsize
        offset = affine.constant % step
        if any(c % step for _, c in affine.terms):
            offset = 0
        column = self._shifted(affine, scope) + offset
        width = tiles.piece(size)
        start = affine - offset + column // width * width
        key = ("transposed", buffer, start)
        found = outer.memo.get(key)
        if found is None:
            lane, lanes = affine.coefficient(scope.lane_axis), scope.lanes  # type: ignore[arg-type]
            rows = lanes if scope.mask is None else scope.mask.count("true")
            valid = outer.memo["columns"] * step - column // width * width
            if offset == 0 and (buffer.size % step or any(c % step for _, c in affine.terms)):
                valid -= step - 1  # the last pair may lie half outside
            pointer, _, _ = self._address(buffer, start, outer)
            type = memory_type(buffer.dtype)
            with self.at(outer) as fn:

                def place(row: int) -> str:
                    return fn.let(f"getelementptr {type}, ptr {pointer}, i64 {row * lane}") if row else pointer

                found = outer.memo[key] = tiles.columns(fn, type, size, lanes, rows, valid, place)
        return self._from_memory(Val(found[column % width], scope.lanes), buffer.dtype, scope)

    # -- loops

    def _axis_loop(self, parent: Scope, axis: Axis, carries: list[tuple[str, str]], body: Body) -> list[str]:
        """All steps of an axis one by one."""

        def bound(scope: Scope, carried: list[str]) -> list[str]:
            scope.bits |= axis.bit
            scope.axes[axis] = scope.memo["index"]
            return body(scope, carried)

        return self._loop(parent, "0", str(axis.extent), 1, carries, bound, some=True)

    def _vector_loop(
        self,
        parent: Scope,
        axis: Axis,
        low: str,
        high: str,
        carries: list[tuple[str, str]],
        body: Body,
        span: segments.Span | None = None,
    ) -> list[str]:
        """The steps of an axis by vectors: wide ones, single ones, a masked rest. Carries have `lanes` lanes or one.

        Of all of them, those in the span, which begins at a whole vector (and ends at one, or where the axis ends); if
        low and high are not the whole axis, they and the span are whole wide vectors.
        """
        static = low == "0" and high == str(axis.extent)
        begin, end = span or (0, axis.extent)
        lanes = self.loops.lanes
        wide = lanes * self.loops.unroll
        while lanes > 2 and axis.extent <= lanes // 2:
            lanes //= 2
        while wide > lanes and (end - begin if static else axis.extent) < wide:
            wide //= 2
        wide = max(wide, lanes)
        whole_wide = begin + (end - begin) // wide * wide
        whole = begin + (end - begin) // lanes * lanes

        def part(count: int, mask: str | None) -> Body:
            def bound(scope: Scope, carried: list[str]) -> list[str]:
                scope.bits |= axis.bit
                scope.axes[axis] = scope.memo["index"]
                scope.lane_axis, scope.lanes, scope.mask = axis, count, mask
                return body(scope, carried)

            return bound

        types = [type for type, _ in carries]
        values = [value for _, value in carries]

        def again(values: list[str]) -> list[tuple[str, str]]:
            return list(zip(types, values, strict=True))

        if begin < whole_wide:
            if static:
                values = self._loop(parent, str(begin), str(whole_wide), wide, again(values), part(wide, None), some=True)
            else:
                with self.at(parent) as fn:
                    start = fn.let(f"call i64 @llvm.smax.i64(i64 {low}, i64 {begin})") if begin else low
                    stop = fn.let(f"call i64 @llvm.smin.i64(i64 {high}, i64 {whole_wide})")
                values = self._loop(parent, start, stop, wide, again(values), part(wide, None))
        if whole_wide == end:
            return values
        if static:
            return self._rest(parent, axis, whole_wide, whole, end, lanes, again(values), part)
        assert end == axis.extent
        assert not carries
        with self.at(parent) as fn:
            last = fn.let(f"icmp eq i64 {high}, {axis.extent}")
            then, after = fn.new_block("rest"), fn.new_block("done")
            fn.branch(last, then, after)
            fn.start(then)
        self._rest(parent, axis, whole_wide, whole, end, lanes, [], part)
        with self.at(parent) as fn:
            fn.jump(after)
            fn.start(after)
        return values

    def _rest(
        self,
        parent: Scope,
        axis: Axis,
        low: int,
        whole: int,
        end: int,
        lanes: int,
        carries: list[tuple[str, str]],
        part: Any,
    ) -> list[str]:
        values = [value for _, value in carries]
        types = [type for type, _ in carries]
        if low < whole:
            values = self._loop(parent, str(low), str(whole), lanes, carries, part(lanes, None), some=True)
        if whole < end:
            count = end - whole
            while lanes > 2 and count <= lanes // 2 and not carries:
                lanes //= 2
            mask = "<" + ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(lanes)) + ">"
            pairs = list(zip(types, values, strict=True))
            partial = mask if count < lanes else None
            values = self._loop(parent, str(whole), str(whole + lanes), lanes, pairs, part(lanes, partial), some=True)
        return values

    def _loop(
        self,
        parent: Scope,
        low: str,
        high: str,
        step: int,
        carries: list[tuple[str, str]],
        body: Body,
        some: bool = False,
    ) -> list[str]:
        """A loop in `parent`; `some`: it runs at least once. Gives the carries' last values."""
        fn = self.fn
        if some and low.isdigit() and high.isdigit() and int(low) + step >= int(high):
            scope = Scope(parent, parent.lines, parent.block)
            scope.owner = parent.owner
            scope.memo["index"] = low
            return body(scope, [value for _, value in carries])
        head, inside, after = fn.new_block("loop"), fn.new_block("body"), fn.new_block("end")
        index = fn.fresh("i")
        names = [fn.fresh("c") for _ in carries]
        scope = Scope(parent, [], head if some else inside)
        scope.memo["index"] = index
        following = body(scope, names)
        with self.at(scope):
            step_to = fn.let(f"add nuw nsw i64 {index}, {step}", "i")
        owner = parent.owner
        before, latch = owner.block, scope.block
        lines = owner.lines
        lines.append(f"  br label %{head}")
        lines.append(f"{head}:")
        lines.append(f"  {index} = phi i64 [ {low}, %{before} ], [ {step_to}, %{latch} ]")
        for name, (type, first), then in zip(names, carries, following, strict=True):
            lines.append(f"  {name} = phi {type} [ {first}, %{before} ], [ {then}, %{latch} ]")
        more = fn.fresh("m")
        if not some:
            lines.append(f"  {more} = icmp slt i64 {index}, {high}")
            lines.append(f"  br i1 {more}, label %{inside}, label %{after}")
            lines.append(f"{inside}:")
        lines += scope.lines
        if some:
            lines.append(f"  {more} = icmp slt i64 {step_to}, {high}")
            lines.append(f"  br i1 {more}, label %{head}, label %{after}")
        else:
            lines.append(f"  br label %{head}")
        lines.append(f"{after}:")
        owner.block = after
        return following if some else names

    # -- values

    def value(self, node: Node, scope: Scope) -> Val:
        """The node's value, readable in `scope`."""
        found = scope.holder(node.deps).memo.get(node)
        if found is not None:
            return found
        if self.loops.spills and scope.lane_axis is self.loops.vector:
            for below in self._order(node):  # folds outside, which fill rows, before what reads the rows
                if below.op == "fold" and below not in scope.holder(below.deps).memo:
                    if not below.deps & self.loops.vector.bit and below.data.scan is None:  # type: ignore[union-attr]
                        self.value(below, scope.holder(below.deps))
        kept = self._kept(scope)
        for below in self._order_to(node, kept) if kept else self._order(node):
            holder = scope.holder(below.deps)
            if below not in holder.memo:
                row = kept.get(below)
                holder.memo[below] = self._made(below, holder) if row is None else self._from_row(row, below, holder)
        return scope.holder(node.deps).memo[node]

    # -- rows: what a fold computed and the main loop needs again

    def _kept(self, scope: Scope) -> dict[Node, str]:
        """The nodes that a row holds for the lanes of this scope."""
        if not self.loops.spills or scope.lane_axis is not self.loops.vector:
            return {}
        found: dict[Node, str] = {}
        outer: Scope | None = scope
        while outer is not None:
            for node in self.loops.spills:
                row = outer.memo.get(("row", node))
                if row is not None:
                    found.setdefault(node, row)
            outer = outer.parent
        return found

    def _order_to(self, node: Node, kept: dict[Node, str]) -> list[Node]:
        """As _order, but rows need nothing."""
        seen: set[Node] = set()
        found: list[Node] = []
        stack: list[tuple[Node, bool]] = [(node, False)]
        while stack:
            here, done = stack.pop()
            if done:
                found.append(here)
            elif here not in seen:
                seen.add(here)
                stack.append((here, True))
                if here not in kept:
                    below = list(here.data.inits) if here.op == "fold" else children(here)
                    stack += [(child, False) for child in reversed(below) if child not in seen]
        return found

    def _row_place(self, row: str, node: Node, scope: Scope) -> str:
        axis = scope.lane_axis
        assert axis is not None
        return self.fn.let(f"getelementptr {scalar_type(node.dtype)}, ptr {row}, i64 {scope.of_axis(axis).axes[axis]}")

    def _from_row(self, row: str, node: Node, scope: Scope) -> Val:
        type = vector(scalar_type(node.dtype), scope.lanes)
        with self.at(scope) as fn:
            return Val(fn.let(f"load {type}, ptr {self._row_place(row, node, scope)}, align 4"), scope.lanes)

    def _keep_rows(self, rows: dict[Node, str], scope: Scope) -> None:
        """Stores what the step has computed of them; a masked rest may store more, for which rows have room."""
        for node, row in rows.items():
            value = scope.memo.get(node)
            if value is not None and value.lanes == scope.lanes:
                with self.at(scope) as fn:
                    type = vector(scalar_type(node.dtype), scope.lanes)
                    fn.do(f"store {type} {value.name}, ptr {self._row_place(row, node, scope)}, align 4")

    def _order(self, node: Node) -> list[Node]:
        """What the node needs, children first; a fold's insides are its own affair."""
        found = self._orders.get(node)
        if found is None:
            seen: set[Node] = set()
            found = self._orders[node] = []
            stack: list[tuple[Node, bool]] = [(node, False)]
            while stack:
                here, done = stack.pop()
                if done:
                    found.append(here)
                elif here not in seen:
                    seen.add(here)
                    stack.append((here, True))
                    below = list(here.data.inits) if here.op == "fold" else children(here)
                    stack += [(child, False) for child in reversed(below) if child not in seen]
        return found

    def _made(self, node: Node, scope: Scope) -> Any:
        if node.op == "const":
            return Val(primitives.constant(node.data, node.dtype))
        if node.op == "number":
            return self._number(node.data, node.dtype, scope)
        if node.op == "range":
            return self._range(*node.data, scope)
        if node.op in ("load", "current"):
            return self._load(node, scope)
        if node.op == "fold":
            return self._fold(node, scope)
        if node.op == "part":
            return scope.holder(node.args[0].deps).memo[node.args[0]][node.data]
        if node.op == "hole":
            raise AssertionError("a hole outside a combiner")
        return self._primitive(node, [scope.holder(a.deps).memo[a] for a in node.args], scope)

    def _primitive(self, node: Node, values: list[Val], scope: Scope) -> Val:
        lanes = max(v.lanes for v in values)
        args = node.args
        uniform = False
        if node.op == "select" and values[0].lanes == 1 and lanes > 1:
            uniform = True
        names = [v.name if uniform and k == 0 else self._spread(v, lanes, a.dtype, scope)
                 for k, (v, a) in enumerate(zip(values, args, strict=True))]  # fmt: skip
        of = args[1].dtype if node.op == "select" else args[0].dtype
        if node.op == "div" and lanes > 1 and self._is_inverted(values[1], of):
            return self._divided(names[0], values[1], lanes, node, scope)
        with self.at(scope) as fn:
            more: dict[str, Any] = {"uniform_condition": True} if uniform else {}
            name = primitives.emit(
                fn, node.op, of, lanes, names, node.dtype, target=self.target, strict=self.loops.strict, **more
            )
        return Val(name, lanes)

    def _is_inverted(self, divisor: Val, dtype: DType) -> bool:
        """Whether all lanes are divided by one number, found at run time: its reciprocal is taken once."""
        return divisor.lanes == 1 and not divisor.is_constant and dtype.name in ("f32", "f64") and not self.loops.strict

    def _divided(self, name: str, divisor: Val, lanes: int, node: Node, scope: Scope) -> Val:
        """x / s as q = x * (1 / s), corrected by what q * s - x leaves: rounded as a division is (Markstein).

        But for divisors whose bits are all ones and quotients near the ends of the range, where the last bit may
        differ. The corrections' signs keep that of a zero; an infinite q has none. Divisors that are negative or have
        no good reciprocal divide.
        """
        dtype = node.dtype
        scalar, type = scalar_type(dtype), vector(scalar_type(dtype), lanes)
        holder = scope.holder(node.args[1].deps)
        key = ("inverse", divisor.name)
        if key not in holder.memo:
            low, high = (float_constant(2.0**n, scalar) for n in ((-126, 125) if dtype.bits == 32 else (-1022, 1021)))
            with self.at(holder) as fn:
                inverse = fn.let(f"fdiv {scalar} {float_constant(1.0, scalar)}, {divisor.name}")
                tests = [f"fcmp {test} {scalar} {divisor.name}, {bound}" for test, bound in (("oge", low), ("ole", high))]
                holder.memo[key] = inverse, fn.let(f"and i1 {fn.let(tests[0])}, {fn.let(tests[1])}")
        inverse, is_good = holder.memo[key]
        by, times = (self._spread(v, lanes, dtype, scope) for v in (divisor, Val(inverse)))
        with self.at(scope) as fn:
            good, bad, after = (fn.new_block(label) for label in ("times", "divide", "quotient"))
            fn.branch(is_good, good, bad)
            fn.start(good)
            fma = f"call {type} @llvm.fma.v{lanes}{dtype.name}({type}"
            first = fn.let(f"fmul {type} {name}, {times}")
            left = fn.let(f"{fma} {first}, {type} {by}, {type} {fn.let(f'fneg {type} {name}')})")
            better = fn.let(f"{fma} {fn.let(f'fneg {type} {left}')}, {type} {times}, {type} {first})")
            some = fn.let(f"fcmp ord {type} {better}, {better}")
            product = fn.let(f"select <{lanes} x i1> {some}, {type} {better}, {type} {first}")
            fn.jump(after)
            fn.start(bad)
            quotient = fn.let(f"fdiv {type} {name}, {by}")
            fn.jump(after)
            fn.start(after)
            return Val(fn.let(f"phi {type} [ {product}, %{good} ], [ {quotient}, %{bad} ]"), lanes)

    def _spread(self, value: Val, lanes: int, dtype: DType, scope: Scope) -> str:
        """The value with so many lanes."""
        if value.lanes == lanes:
            return value.name
        scalar = scalar_type(dtype)
        if value.is_constant:
            return splat(value.name, scalar, lanes)
        return self._splatted(value.name, scalar, lanes, scope)

    def _splatted(self, name: str, scalar: str, lanes: int, scope: Scope) -> str:
        key = ("splat", name, lanes)
        found = scope.memo.get(key)
        if found is None:
            type = vector(scalar, lanes)
            with self.at(scope) as fn:
                one = fn.let(f"insertelement {type} poison, {scalar} {name}, i64 0")
                found = fn.let(f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")
            scope.memo[key] = found
        return found

    # -- affines

    def _terms(self, affine: Affine, scope: Scope) -> tuple[int, list[tuple[Scope, str, int]], list[tuple[str, int]]]:
        """(coefficient of the lane axis, scalar terms as (scope, i64 name, factor), vector terms as (i64 name, factor))."""
        lane, scalars, vectors = 0, [], []
        for key, c in affine.terms:
            if isinstance(key, Axis):
                owner = scope.of_axis(key)
                if key is scope.lane_axis:
                    lane = c
                scalars.append((owner, owner.axes[key], c))
                continue
            assert isinstance(key, RuntimeInt)
            value = self.value(key.node, scope)
            owner = scope.holder(key.node.deps)
            memo = ("wide", value.name)
            name = owner.memo.get(memo)
            if name is None:
                with self.at(owner) as fn:
                    old, new = vector(scalar_type(key.node.dtype), value.lanes), vector("i64", value.lanes)
                    name = fn.let(f"sext {old} {value.name} to {new}") if old != new else value.name
                owner.memo[memo] = name
            if value.lanes > 1:
                vectors.append((name, c))
            else:
                scalars.append((owner, name, c))
        scalars.sort(key=lambda term: term[0].depth)
        return lane, scalars, vectors

    def _constant_part(self, affine: Affine, scope: Scope) -> int:
        """The constant, with what loops of one step add to it."""
        total = affine.constant + self._shifted(affine, scope)
        for key, c in affine.terms:
            if isinstance(key, Axis):
                name = scope.of_axis(key).axes[key]
                if name.isdigit():
                    total += c * int(name)
        return total

    def _address(self, buffer: Buffer, affine: Affine, scope: Scope) -> tuple[str, int, list[tuple[str, int]]]:
        """(pointer to the first lane's element, lane coefficient, vector terms)."""
        type = memory_type(buffer.dtype)
        lane, scalars, vectors = self._terms(affine, scope)
        constant = affine.constant + self._shifted(affine, scope)
        pointer = self._pointer(buffer)
        key: tuple[Any, ...] = ()
        for owner, name, c in scalars:
            if name.isdigit():
                constant += c * int(name)
                continue
            key = (*key, name, c)
            memo = owner.memo.get(("address", buffer, key))
            if memo is None:
                with self.at(owner) as fn:
                    product = owner.memo.get(("product", name, c))
                    if product is None:
                        product = name if c == 1 else fn.let(f"mul nsw i64 {name}, {c}")
                        owner.memo[("product", name, c)] = product
                    memo = fn.let(f"getelementptr {type}, ptr {pointer}, i64 {product}", "p")
                owner.memo[("address", buffer, key)] = memo
            pointer = memo
        if constant:
            memo = scope.memo.get(("at", pointer, constant))
            if memo is None:
                with self.at(scope) as fn:
                    memo = fn.let(f"getelementptr {type}, ptr {pointer}, i64 {constant}", "p")
                scope.memo[("at", pointer, constant)] = memo
            pointer = memo
        return pointer, lane, vectors

    def _pointer(self, buffer: Buffer) -> str:
        found = self._pointers.get(buffer)
        if found is None:
            number = len(self.buffers)
            self.buffers.append(buffer)
            fn = self.fn
            slot, found = fn.fresh("s"), fn.fresh("b")
            fn._entry.append(f"  {slot} = getelementptr ptr, ptr %table, i64 {number}")
            fn._entry.append(f"  {found} = load ptr, ptr {slot}, align 8")
            self._pointers[buffer] = found
        return found

    def _lane_numbers(self, scalar: str, lanes: int, factor: int) -> str:
        return "<" + ", ".join(f"{scalar} {k * factor}" for k in range(lanes)) + ">"

    def _number(self, affine: Affine, dtype: DType, scope: Scope) -> Val:
        """An affine as a value of an integer type that holds it."""
        lane, total, vectors = self._scalar_sum(affine, scope)
        scalar = scalar_type(dtype)
        constant = self._constant_part(affine, scope)
        with self.at(scope) as fn:
            if total is None:
                base = str(constant)
            else:
                base = fn.let(f"add nsw i64 {total}, {constant}") if constant else total
                if scalar != "i64":
                    base = fn.let(f"trunc i64 {base} to {scalar}")
        lanes = scope.lanes if lane or vectors else 1
        if lanes == 1:
            return Val(base)
        type = vector(scalar, lanes)
        name = splat(base, scalar, lanes) if total is None else self._splatted(base, scalar, lanes, scope)
        with self.at(scope) as fn:
            if lane:
                name = fn.let(f"add {type} {name}, {self._lane_numbers(scalar, lanes, lane)}")
            for term, c in vectors:
                if scalar != "i64":
                    term = fn.let(f"trunc {vector('i64', lanes)} {term} to {type}")
                if c != 1:
                    term = fn.let(f"mul {type} {term}, {splat(str(c), scalar, lanes)}")
                name = fn.let(f"add {type} {name}, {term}")
        return Val(name, lanes)

    def _scalar_sum(self, affine: Affine, scope: Scope) -> tuple[int, str | None, list[tuple[str, int]]]:
        lane, scalars, vectors = self._terms(affine, scope)
        total: str | None = None
        key: tuple[Any, ...] = ()
        for owner, name, c in scalars:
            if name.isdigit():
                continue
            key = (*key, name, c)
            memo = owner.memo.get(("sum", key))
            if memo is None:
                with self.at(owner) as fn:
                    memo = name if c == 1 else fn.let(f"mul nsw i64 {name}, {c}")
                    if total is not None:
                        memo = fn.let(f"add nsw i64 {total}, {memo}")
                owner.memo[("sum", key)] = memo
            total = memo
        return lane, total, vectors

    def _range(self, affine: Affine, low: int, high: int, scope: Scope) -> Val:
        """low <= affine < high."""
        small = -(2**31) <= affine.low and affine.high < 2**31
        dtype = dtypes.s32 if small else dtypes.s64
        value = self._number(affine - low, dtype, scope) if small else self._number(affine, dtype, scope)
        scalar = scalar_type(dtype)
        type = vector(scalar, value.lanes)
        with self.at(scope) as fn:
            name = value.name
            if not small and low:
                name = fn.let(f"sub {type} {name}, {splat(str(low), scalar, value.lanes)}")
            if low <= affine.low:
                name = fn.let(f"icmp slt {type} {name}, {splat(str(high - low), scalar, value.lanes)}")
            elif high > affine.high:
                name = fn.let(f"icmp sge {type} {name}, {splat('0', scalar, value.lanes)}")
            else:
                name = fn.let(f"icmp ult {type} {name}, {splat(str(high - low), scalar, value.lanes)}")
        return Val(name, value.lanes)

    # -- memory

    def _guard(self, nodes: Sequence[Node], scope: Scope) -> Val | None:
        """The conjunction of the guards."""
        total: Val | None = None
        for node in nodes:
            value = self.value(node, scope)
            if value.name == "true":
                continue
            if total is None:
                total = value
                continue
            lanes = max(total.lanes, value.lanes)
            a, b = (self._spread(v, lanes, dtypes.pred, scope) for v in (total, value))
            with self.at(scope) as fn:
                total = Val(fn.let(f"and {vector('i1', lanes)} {a}, {b}"), lanes)
        return total

    def _mask(self, guard: Val | None, scope: Scope, lanes: int) -> str | None:
        """The lanes that may be touched; None for all."""
        if guard is None:
            return scope.mask
        name = self._spread(guard, lanes, dtypes.pred, scope)
        if scope.mask is None:
            return name
        with self.at(scope) as fn:
            return fn.let(f"and {vector('i1', lanes)} {name}, {scope.mask}")

    def _load(self, node: Node, scope: Scope) -> Val:
        buffer, affine = node.data[:2]
        tile, axis = self.loops.tile, scope.lane_axis
        if tile is not None and axis is not None and tiles.is_transposed(affine, axis, tile, node.args):
            return self._transposed(buffer, affine, scope)
        guard = self._guard(node.args, scope)
        lane = affine.coefficient(scope.lane_axis) if scope.lane_axis is not None else 0
        if abs(lane) in (2, 3, 4) and guard is None and (scope.mask is None or scope.mask.startswith("<")):
            strided = self._strided(buffer, affine, lane, scope)
            if strided is not None:
                return self._from_memory(strided, buffer.dtype, scope)
        pointer, lane, vectors = self._address(buffer, affine, scope)
        type = memory_type(buffer.dtype)
        lanes = scope.lanes
        if lane == 0 and not vectors:
            return self._scalar_load(pointer, buffer, guard, scope)
        mask = self._mask(guard, scope, lanes)
        whole = vector(type, lanes)
        align = buffer.dtype.numpy.itemsize
        with self.at(scope) as fn:
            if abs(lane) == 1 and not vectors:
                if lane == -1:
                    pointer = fn.let(f"getelementptr {type}, ptr {pointer}, i64 {1 - lanes}")
                    if mask is not None:
                        mask = self._reversed(mask, "i1", lanes)
                if mask is None:
                    name = fn.let(f"load {whole}, ptr {pointer}, align {align}")
                else:
                    suffix = f"v{lanes}{_mangled(type)}"
                    name = fn.let(
                        f"call {whole} @llvm.masked.load.{suffix}.p0(ptr align {align} {pointer}, "
                        f"{vector('i1', lanes)} {mask}, {whole} zeroinitializer)"
                    )
                if lane == -1:
                    name = self._reversed(name, type, lanes)
            else:
                places = self._gathered(pointer, type, affine, lane, vectors, scope)
                suffix = f"v{lanes}{_mangled(type)}"
                chosen = mask if mask is not None else splat("true", "i1", lanes)
                name = fn.let(
                    f"call {whole} @llvm.masked.gather.{suffix}.v{lanes}p0({vector('ptr', lanes)} align {align} {places}, "
                    f"{vector('i1', lanes)} {chosen}, {whole} zeroinitializer)"
                )
        return self._from_memory(Val(name, lanes), buffer.dtype, scope)

    def _from_memory(self, value: Val, dtype: DType, scope: Scope) -> Val:
        """What was loaded, as registers hold it: pred as i1; integers below a byte extended, whose upper bits say nothing."""
        type, lanes, name = vector("i8", value.lanes), value.lanes, value.name
        if dtype.kind == "pred":
            with self.at(scope) as fn:
                return Val(fn.let(f"icmp ne {type} {name}, {splat('0', 'i8', lanes)}"), lanes)
        if dtype.is_integral and dtype.bits < 8:
            unused = splat(str(8 - dtype.bits), "i8", lanes)
            with self.at(scope) as fn:
                name = fn.let(f"shl {type} {name}, {unused}")
                return Val(fn.let(f"{'ashr' if dtype.is_signed else 'lshr'} {type} {name}, {unused}"), lanes)
        return value

    def _to_memory(self, name: str, dtype: DType, lanes: int) -> str:
        """The reverse; bits above an integer's own are 0 in memory, as ml_dtypes has it."""
        type = vector("i8", lanes)
        if dtype.kind == "pred":
            return self.fn.let(f"zext {vector('i1', lanes)} {name} to {type}")
        if dtype.is_integral and dtype.bits < 8:
            return self.fn.let(f"and {type} {name}, {splat(str((1 << dtype.bits) - 1), 'i8', lanes)}")
        return name

    def _reversed(self, name: str, scalar: str, lanes: int) -> str:
        type = vector(scalar, lanes)
        order = "<" + ", ".join(f"i32 {lanes - 1 - k}" for k in range(lanes)) + ">"
        return self.fn.let(f"shufflevector {type} {name}, {type} poison, <{lanes} x i32> {order}")

    def _scalar_load(self, pointer: str, buffer: Buffer, guard: Val | None, scope: Scope) -> Val:
        """A load by all lanes from one address; below a false guard it reads the buffer's start."""
        with self.at(scope) as fn:
            if guard is not None:
                chosen = guard.name
                if guard.lanes > 1:
                    type = vector("i1", guard.lanes)
                    if scope.mask is not None:
                        chosen = fn.let(f"and {type} {chosen}, {scope.mask}")
                    chosen = fn.let(f"call i1 @llvm.vector.reduce.or.v{guard.lanes}i1({type} {chosen})")
                pointer = fn.let(f"select i1 {chosen}, ptr {pointer}, ptr {self._pointer(buffer)}")
            type = memory_type(buffer.dtype)
            name = fn.let(f"load {type}, ptr {pointer}, align {buffer.dtype.numpy.itemsize}")
        return self._from_memory(Val(name), buffer.dtype, scope)

    def _strided(self, buffer: Buffer, affine: Affine, lane: int, scope: Scope) -> Val | None:
        """Every 2nd, 3rd or 4th element by whole vectors and shuffles; what may lie outside the buffer is masked."""
        lanes, stride = scope.lanes, abs(lane)
        if tiles.runtime_deps(affine) & scope.lane_axis.bit:  # type: ignore[union-attr]
            return None
        shares = not any(c % stride for _, c in affine.terms) and buffer.size % stride == 0
        offset = (affine.constant + self._shifted(affine, scope)) % stride if shares else 0
        count = lanes if scope.mask is None else scope.mask.count("true")
        needed = count * stride if shares else (count - 1) * stride + 1
        if scope.mask is None and not shares and affine.high + stride <= buffer.size:
            needed = lanes * stride
        if lane < 0 and needed < lanes * stride:
            return None
        start = affine - offset if lane > 0 else affine - offset - (lanes - 1) * stride
        pointer, _, _ = self._address(buffer, start, scope)
        type, size = memory_type(buffer.dtype), buffer.dtype.numpy.itemsize
        whole, total = vector(type, lanes * stride), lanes * stride
        loaded = scope.memo.get(("strided", pointer, stride))
        with self.at(scope) as fn:
            if loaded is None:
                if needed == total:
                    loaded = fn.let(f"load {whole}, ptr {pointer}, align {size}")
                else:
                    mask = ", ".join(f"i1 {'true' if k < needed else 'false'}" for k in range(total))
                    loaded = fn.let(
                        f"call {whole} @llvm.masked.load.v{total}{_mangled(type)}.p0("
                        f"ptr align {size} {pointer}, <{total} x i1> <{mask}>, {whole} zeroinitializer)"
                    )
                scope.memo[("strided", pointer, stride)] = loaded
            places = [offset + k * stride for k in range(lanes)]
            order = "<" + ", ".join(f"i32 {k}" for k in (places if lane > 0 else reversed(places))) + ">"
            name = fn.let(f"shufflevector {whole} {loaded}, {whole} poison, <{lanes} x i32> {order}")
        return Val(name, lanes)

    def _gathered(
        self, pointer: str, type: str, affine: Affine, lane: int, vectors: Sequence[tuple[str, int]], scope: Scope
    ) -> str:
        """The lanes' pointers; their distances are counted in 32 bits where that is enough."""
        lanes, fn = scope.lanes, self.fn
        reach = abs(lane) * lanes
        for key, c in affine.terms:
            reach += abs(c) * max(abs(key.low), abs(key.high)) if isinstance(key, RuntimeInt) else 0
        scalar = "i32" if reach < 2**31 else "i64"
        type_of_places = vector(scalar, lanes)
        places = self._lane_numbers(scalar, lanes, lane) if lane else None
        for name, c in vectors:
            if scalar == "i32":
                name = fn.let(f"trunc {vector('i64', lanes)} {name} to {type_of_places}")
            if c != 1:
                name = fn.let(f"mul nsw {type_of_places} {name}, {splat(str(c), scalar, lanes)}")
            places = name if places is None else fn.let(f"add nsw {type_of_places} {name}, {places}")
        return fn.let(f"getelementptr {type}, ptr {pointer}, {type_of_places} {places}")

    def _stores(self, stores: Sequence[Store], scope: Scope) -> None:
        for store in stores:  # all values before the first store: a result may lie where an operand does
            for node in (store.node, *store.guards):
                self.value(node, scope)
        for _, same in groupby(stores, key=lambda s: id(s.buffer)):
            run = list(same)
            while run:
                store = run.pop(0)
                if run and self._is_pair(store, run[0], scope):
                    self._store_pair(store, run.pop(0), scope)
                else:
                    self._store(store, scope)

    def _is_pair(self, first: Store, second: Store, scope: Scope) -> bool:
        lane = first.place.coefficient(scope.lane_axis) if scope.lane_axis is not None else 0
        return (
            lane == 2
            and second.place is first.place + 1
            and not first.guards
            and not second.guards
            and scope.mask is None
            and not self._terms(first.place, scope)[2]
        )

    def _store_pair(self, first: Store, second: Store, scope: Scope) -> None:
        """Two components side by side."""
        lanes = scope.lanes
        names = [self._spread(self.value(s.node, scope), lanes, s.node.dtype, scope) for s in (first, second)]
        type = memory_type(first.buffer.dtype)
        pointer, _, _ = self._address(first.buffer, first.place, scope)
        order = "<" + ", ".join(f"i32 {k // 2 + lanes * (k % 2)}" for k in range(2 * lanes)) + ">"
        half, whole = vector(type, lanes), vector(type, 2 * lanes)
        with self.at(scope) as fn:
            both = fn.let(f"shufflevector {half} {names[0]}, {half} {names[1]}, <{2 * lanes} x i32> {order}")
            fn.do(f"store {whole} {both}, ptr {pointer}, align {first.buffer.dtype.numpy.itemsize}")

    def _store(self, store: Store, scope: Scope) -> None:
        value = self.value(store.node, scope)
        guard = self._guard(store.guards, scope)
        pointer, lane, vectors = self._address(store.buffer, store.place, scope)
        dtype = store.buffer.dtype
        type, align = memory_type(dtype), dtype.numpy.itemsize
        if lane == 0 and not vectors:
            self._scalar_store(value, guard, pointer, store, scope)
            return
        lanes = scope.lanes
        name = self._spread(value, lanes, store.node.dtype, scope)
        mask = self._mask(guard, scope, lanes)
        whole = vector(type, lanes)
        with self.at(scope) as fn:
            name = self._to_memory(name, dtype, lanes)
            if abs(lane) == 1 and not vectors:
                if lane == -1:
                    pointer = fn.let(f"getelementptr {type}, ptr {pointer}, i64 {1 - lanes}")
                    name = self._reversed(name, type, lanes)
                    mask = None if mask is None else self._reversed(mask, "i1", lanes)
                if mask is None:
                    hint = self._stream_hint(store, lanes, align, scope)
                    fn.do(f"store {whole} {name}, ptr {pointer}, align {64 if hint else align}{hint}")
                else:
                    fn.do(
                        f"call void @llvm.masked.store.v{lanes}{_mangled(type)}.p0({whole} {name}, "
                        f"ptr align {align} {pointer}, {vector('i1', lanes)} {mask})"
                    )
            else:
                places = self._gathered(pointer, type, store.place, lane, vectors, scope)
                chosen = mask if mask is not None else splat("true", "i1", lanes)
                fn.do(
                    f"call void @llvm.masked.scatter.v{lanes}{_mangled(type)}.v{lanes}p0({whole} {name}, "
                    f"{vector('ptr', lanes)} align {align} {places}, {vector('i1', lanes)} {chosen})"
                )

    def _stream_hint(self, store: Store, lanes: int, align: int, scope: Scope) -> str:
        if not self.loops.streamed or lanes * align < 64 or store.buffer.nbytes < 1 << 20:
            return ""
        if store.buffer in self.loops.in_place:
            return ""
        unit = 64 // align
        aligned = all(c % unit == 0 for key, c in store.place.terms if key is not scope.lane_axis) and store.place.constant % unit == 0
        if not aligned or lanes % unit:
            return ""
        self._streams = True
        return ", !nontemporal !0"

    def _scalar_store(self, value: Val, guard: Val | None, pointer: str, store: Store, scope: Scope) -> None:
        dtype = store.buffer.dtype
        if value.lanes > 1:
            raise AssertionError("a vector for one place")
        with self.at(scope) as fn:
            name = self._to_memory(value.name, dtype, 1)
            text = f"store {memory_type(dtype)} {name}, ptr {pointer}, align {dtype.numpy.itemsize}"
            if guard is None:
                fn.do(text)
            else:
                with fn.when(guard.name):
                    fn.do(text)

    # -- folds

    def _fold_groups(self) -> dict[Node, list[Node]]:
        """Folds over the same axes at the same place, none of which needs another, share a loop."""
        roots = [r for s in self.loops.stores for r in (s.node, *s.guards, *runtime_nodes(s.place))]
        self._folds = [n for n in reachable(roots) if n.op == "fold"]
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
                group = []
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
        axis = self.loops.folds.get(node)
        bound = [a for a in node.data.bound if a is not axis]
        if axis is not None and scope.lane_axis is None:
            values = self._vector_fold(group, bound, axis, scope)
        else:
            values = self._plain_fold(group, list(node.data.bound), scope)
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
        values = {}
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
            width = lanes
            while width > 1:
                half = width // 2
                low = [self._half(v, i.dtype, width, 0, scope) for v, i in zip(mine, data.inits, strict=True)]
                high = [self._half(v, i.dtype, width, half, scope) for v, i in zip(mine, data.inits, strict=True)]
                mine = self._combined(data, low, high, scope)
                mine = [Val(self._spread(v, half, i.dtype, scope), half) for v, i in zip(mine, data.inits, strict=True)]
                width = half
            if len(data.inits) == 1 and identity_name(data.combined[0]) is not None:
                mine = self._combined(data, [self.value(data.inits[0], scope)], mine, scope)
            results += mine
        return results

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
                values = [Val(self._spread(v, lanes, i.dtype, scope), lanes) for v, i in zip(combined, data.inits, strict=True)]
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
                    moved.append(Val(fn.let(f"shufflevector {type} {v.name}, {type} poison, <{lanes} x i32> {order}"), lanes))
            new = self._combined(fold, moved, values, scope)
            mask = "<" + ", ".join(f"i1 {'true' if k >= step else 'false'}" for k in range(lanes)) + ">"
            values = [
                Val(self._where(Val(mask, lanes), self._spread(a, lanes, t, scope), b, t, scope), lanes)
                for a, b, t in zip(new, values, types, strict=True)
            ]
            step *= 2
        is_quick = len(types) == 1 and identity_name(fold.combined[0]) in ("add", "mul")
        totals = self._last_lanes(values, types, lanes, scope)
        before = [Val(self._splatted(c, scalar_type(t), lanes, scope), lanes) for c, t in zip(carried, types, strict=True)]
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


def _mangled(type: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(type, type)

