"""Loops in LLVM text: steps one by one, or by vectors with a masked rest."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from hlokit.cpu.emit.scope import Body, Scope
from hlokit.cpu.llvm import Function
from hlokit.cpu.loops.expr import Axis, Buffer, Expressions, Node
from hlokit.cpu.loops.nest import Loops, Span, Store
from hlokit.cpu.target import Target


class LoopWriter:
    """Writes loops into scopes; what is in them is the derived classes' affair."""

    def __init__(self, loops: Loops, name: str, target: Target) -> None:
        self.loops = loops
        self.target = target
        parameters = [("ptr noalias readonly", "table"), ("i64", "begin"), ("i64", "end")]
        self.fn = Function(name, parameters, target=target)
        self.buffers: list[Buffer] = []
        self.root = Scope(None, self.fn.lines, "entry")
        self._orders: dict[Node, list[Node]] = {}
        self._pointers: dict[Buffer, str] = {}
        self._streams = False
        self._stored: Sequence[Store] = loops.stores
        self._known: dict[Axis, Span] = {}
        self._in_pieces = Expressions()

    @contextmanager
    def at(self, scope: Scope) -> Generator[Function]:
        """Writes into a scope."""
        owner, fn = scope.owner, self.fn
        saved = fn.lines, fn.block
        fn.lines, fn.block = owner.lines, owner.block
        yield fn
        owner.block = fn.block
        fn.lines, fn.block = saved
        if owner.lines is saved[0]:
            fn.block = owner.block

    @contextmanager
    def when(self, scope: Scope, condition: str) -> Generator[None]:
        """What is written into the scope meanwhile runs only if the i1 holds."""
        with self.at(scope) as fn:
            then, after = fn.new_block("then"), fn.new_block("after")
            fn.branch(condition, then, after)
            fn.start(then)
        yield
        with self.at(scope) as fn:
            fn.jump(after)
            fn.start(after)

    # -- loops

    def _axis_loop(
        self,
        parent: Scope,
        axis: Axis,
        carries: list[tuple[str, str]],
        body: Body,
        low: int = 0,
        high: int | None = None,
    ) -> list[str]:
        """The steps of an axis one by one: all of them, or those from low to high."""

        def bound(scope: Scope, carried: list[str]) -> list[str]:
            scope.bits |= axis.bit
            scope.axes[axis] = scope.memo["index"]
            if scope.lane_axis is axis:  # a fold's own again, where it goes by vectors outside
                scope.lane_axis, scope.lanes, scope.mask = None, 1, None
            return body(scope, carried)

        return self._loop(parent, str(low), str(axis.extent if high is None else high), 1, carries, bound, some=True)

    def _vector_loop(
        self,
        parent: Scope,
        axis: Axis,
        low: str,
        high: str,
        carries: list[tuple[str, str]],
        body: Body,
        span: Span | None = None,
    ) -> list[str]:
        """The steps of an axis by vectors: wide ones, single ones, a masked rest. Carries have `lanes` lanes or one.

        Of all of them, those in the span; if low and high are not the whole axis, they are whole wide vectors.
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

        if not static and (begin % wide or (end % wide and end != axis.extent)):
            assert not carries
            self._between(parent, (low, high), (begin, end), (wide, lanes), part)
            return []
        types = [type for type, _ in carries]
        values = [value for _, value in carries]

        def again(values: list[str]) -> list[tuple[str, str]]:
            return list(zip(types, values, strict=True))

        if begin < whole_wide:
            if static:
                values = self._loop(
                    parent, str(begin), str(whole_wide), wide, again(values), part(wide, None), some=True
                )
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
        with self.when(parent, last):
            self._rest(parent, axis, whole_wide, whole, end, lanes, [], part)
        return values

    def _between(self, parent: Scope, steps: tuple[str, str], span: Span, sizes: tuple[int, int], part: Any) -> None:
        """Those of the steps that are in the span: by wide vectors, then by vectors with a mask."""
        wide, lanes = sizes
        with self.at(parent) as fn:
            first = fn.let(f"call i64 @llvm.smax.i64(i64 {steps[0]}, i64 {span[0]})")
            last = fn.let(f"call i64 @llvm.smin.i64(i64 {steps[1]}, i64 {span[1]})")
            last = fn.let(f"call i64 @llvm.smax.i64(i64 {first}, i64 {last})")  # where they have no step in common
            count = fn.let(f"sub i64 {last}, {first}")
            whole = fn.let(f"and i64 {count}, {-wide}")
            whole = fn.let(f"add i64 {first}, {whole}")
        self._loop(parent, first, whole, wide, [], part(wide, None))

        def masked(scope: Scope, _: list[str]) -> list[str]:
            type = f"<{lanes} x i64>"
            with self.at(scope) as fn:
                left = fn.let(f"sub i64 {last}, {scope.memo['index']}")
                left = fn.let(f"insertelement {type} poison, i64 {left}, i64 0")
                left = fn.let(f"shufflevector {type} {left}, {type} poison, <{lanes} x i32> zeroinitializer")
                numbers = ", ".join(f"i64 {k}" for k in range(lanes))
                mask = fn.let(f"icmp slt {type} <{numbers}>, {left}")
            return part(lanes, mask)(scope, [])

        self._loop(parent, whole, last, lanes, [], masked)

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
