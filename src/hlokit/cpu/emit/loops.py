"""Loops over axes: one step at a time, or by vectors with a masked remainder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hlokit.cpu.emit.scope import Body, Scope
from hlokit.cpu.llvm import Index, LaneMask, Value
from hlokit.cpu.loops.expr import LoopAxis
from hlokit.cpu.loops.nest import Loops, Span


def axis_loop(
    scope: Scope, axis: LoopAxis, carries: Sequence[Value], body: Body, low: int = 0, high: int | None = None
) -> Sequence[Value]:
    """The steps of an axis one by one: all of them, or those from low to high."""
    fn = scope.region.fn

    def bound(inner: Scope, index: Index, carried: list[Value]) -> Sequence[Value]:
        inner.binds(axis, index)
        if inner.lane_axis is axis:  # a fold's own again, where it goes by vectors outside
            inner.lane_axis, inner.lanes, inner.mask = None, 1, None
        return body(inner, index, carried)

    end = fn.index(axis.extent if high is None else high)
    return scope.loop(fn.index(low), end, 1, carries, bound, runs=True)


def by_vectors(axis: LoopAxis, lanes: int, mask: Value | None, body: Body) -> Body:
    """The body of a loop that takes so many steps of the axis at a time."""

    def bound(inner: Scope, index: Index, carried: list[Value]) -> Sequence[Value]:
        inner.binds(axis, index)
        inner.lane_axis, inner.lanes, inner.mask = axis, lanes, mask
        return body(inner, index, carried)

    return bound


class VectorSteps(NamedTuple):
    """The vectors of the steps of an axis in a span: `wide` ones at a time, then `lanes`, then some of these.

    With `together` the steps that the wide ones leave are a single masked one.
    """

    axis: LoopAxis
    span: Span
    wide: int
    lanes: int
    together: bool = False

    @property
    def wide_end(self) -> int:
        """Where the wide vectors end."""
        begin, end = self.span
        return begin + (end - begin) // self.wide * self.wide


def vector_steps(loops: Loops, axis: LoopAxis, span: Span, *, whole: bool) -> VectorSteps:
    """The vectors of an axis. `whole`: one loop does all of the span, not what a chunk has of it."""
    lanes = loops.lanes
    wide = lanes * loops.unroll
    while lanes > 2 and axis.extent <= lanes // 2:
        lanes //= 2
    steps = span[1] - span[0] if whole else axis.extent
    while wide > lanes and (steps <= wide // 2 if loops.unroll > 4 else steps < wide):
        wide //= 2
    return VectorSteps(axis, span, max(wide, lanes), lanes, loops.unroll > 4)


def vector_loop(scope: Scope, steps: VectorSteps, carries: Sequence[Value], body: Body) -> Sequence[Value]:
    """The steps of an axis by vectors: wide ones, single ones, a masked rest. Carries have `lanes` lanes or one."""
    fn, begin = scope.region.fn, steps.span[0]
    if begin < steps.wide_end:
        part = by_vectors(steps.axis, steps.wide, None, body)
        carries = scope.loop(fn.index(begin), fn.index(steps.wide_end), steps.wide, carries, part, runs=True)
    return _rest(scope, steps, carries, body)


def _rest(scope: Scope, steps: VectorSteps, carries: Sequence[Value], body: Body) -> Sequence[Value]:
    """The steps after the wide vectors."""
    fn, axis, lanes = scope.region.fn, steps.axis, steps.lanes
    begin, end = steps.span
    while steps.together and lanes < end - steps.wide_end and not carries:
        lanes *= 2
    whole = begin + (end - begin) // lanes * lanes
    if steps.wide_end < whole:
        part = by_vectors(axis, lanes, None, body)
        carries = scope.loop(fn.index(steps.wide_end), fn.index(whole), lanes, carries, part, runs=True)
    if whole < end:
        count = end - whole
        while lanes > 2 and count <= lanes // 2 and not carries:
            lanes //= 2
        part = by_vectors(axis, lanes, LaneMask(fn, count, lanes) if count < lanes else None, body)
        carries = scope.loop(fn.index(whole), fn.index(whole + lanes), lanes, carries, part, runs=True)
    return carries


def chunk_loop(scope: Scope, steps: VectorSteps, low: Value, high: Value, body: Body) -> None:
    """As `vector_loop`, those from low to high: a chunk's, which is whole wide vectors but at the axis's end."""
    axis, (begin, end), wide = steps.axis, steps.span, steps.wide
    if begin % wide or (end % wide and end != axis.extent):
        _between(scope, steps, low, high, body)
        return
    fn = scope.region.fn
    if begin < steps.wide_end:
        with scope.region:
            first = fn.index(low.smax(begin) if begin else low)
            last = fn.index(high.smin(steps.wide_end))
        scope.loop(first, last, wide, [], by_vectors(axis, wide, None, body))
    if steps.wide_end == end:
        return
    assert end == axis.extent
    with scope.region:
        is_last = high.eq(axis.extent)
    with scope.region.when(is_last):
        _rest(scope, steps, [], body)


def _between(scope: Scope, steps: VectorSteps, low: Value, high: Value, body: Body) -> None:
    """The steps from low to high that are in the span: by wide vectors, then by vectors with a mask."""
    axis, span, wide, lanes = steps.axis, steps.span, steps.wide, steps.lanes
    with scope.region as fn:
        first = low.smax(span[0])
        last = first.smax(high.smin(span[1]))  # where they have no step in common
        whole = fn.index(first + ((last - first) & -wide))
    scope.loop(fn.index(first), whole, wide, [], by_vectors(axis, wide, None, body))

    def masked(inner: Scope, index: Index, carried: list[Value]) -> Sequence[Value]:
        with inner.region:
            mask = fn.index(last - index).first_lanes(lanes, 64)
        return by_vectors(axis, lanes, mask, body)(inner, index, carried)

    scope.loop(whole, fn.index(last), lanes, [], masked)
