"""Scopes: the positions for code in a kernel and the values known there; the state that a kernel's writers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlokit.cpu.llvm import Function, Index, LaneMask, Region, Value
from hlokit.cpu.loops.expr import Buffer, Expressions, LoopAxis, Node
from hlokit.cpu.loops.nest import Loops, Span, Store


class Scope:
    """A loop's body, or the function's: where code can be put, and the values that it has.

    region     where its code goes; scopes that are no loops of their own share that of the scope around them
    bits       the axes that it binds (HOLE for the application of a combiner)
    memo       nodes' values; by tuples what else has been computed here
    axes       the induction variables of the axes that it binds
    index      its loop's induction variable
    lane_axis  the axis that goes by vectors, here or outside
    lanes      how many lanes it has; 1 where none does
    mask       the lanes of a last, partial vector that exist; None for all
    shift      the step of the tile axis, of those that are written out side by side
    columns    how many of these there are
    block      the block of the tile axis, where an outer loop goes by blocks
    guarded    the guards of all stores hold here
    is_branch  only some runs of its region's code come here
    """

    def __init__(self, parent: Scope | None, region: Region, bits: int = 0) -> None:
        self.parent = parent
        self.region = region
        self.bits = bits
        self.memo: dict[Any, Any] = {}
        self.axes: dict[LoopAxis, Index] = {}
        self.index: Index | None = None
        self.block: Index | None = None
        self.shift = self.columns = self.depth = 0
        self.lane_axis: LoopAxis | None = None
        self.lanes = 1
        self.mask: Value | None = None
        self.guarded = self.is_branch = False
        if parent is not None:
            self.lane_axis, self.lanes, self.mask = parent.lane_axis, parent.lanes, parent.mask
            self.depth = parent.depth + 1

    def holder(self, deps: int) -> Scope:
        """The innermost scope that binds any of these axes; the function's where there is none. For a branch's code
        the branch: what comes after it may not have been through it."""
        scope = self
        branches: list[Scope] = []
        while scope.parent is not None and not scope.bits & deps:
            if scope.is_branch:
                branches.append(scope)
            scope = scope.parent
        return next((b for b in branches if b.region is scope.region), scope)

    def of_axis(self, axis: LoopAxis) -> Scope:
        """The scope that has the axis's induction variable."""
        scope: Scope | None = self
        while scope is not None:
            if axis in scope.axes:
                return scope
            scope = scope.parent
        raise AssertionError(f"{axis} is read outside its loop")

    def binds(self, axis: LoopAxis, index: Index) -> None:
        """Makes this the scope of the axis."""
        self.bits |= axis.bit
        self.axes[axis] = index

    def beside(self) -> Scope:
        """A branch of this scope, with its values: those that it computes are not for what comes after it."""
        one = Scope(self, self.region)
        one.is_branch = True
        outer: Scope | None = self
        while outer is not None and outer.region is self.region:
            one.bits |= outer.bits
            one.axes = {**outer.axes, **one.axes}
            outer = outer.parent
        return one

    def loop(
        self, low: Index, high: Index, step: int, carries: Sequence[Value], body: Body, *, runs: bool = False
    ) -> Sequence[Value]:
        """A loop in this scope: see Region.loop."""

        def inside(region: Region, index: Index, carried: list[Value]) -> Sequence[Value]:
            scope = Scope(self, region)
            scope.index = index
            return body(scope, index, carried)

        return self.region.loop(low, high, step, carries, inside, runs=runs)


def is_static(mask: Value | None) -> bool:
    """Whether the lanes that a mask has are known at compile time."""
    return mask is None or isinstance(mask, LaneMask)


def lanes_of(scope: Scope) -> int:
    """The number of lanes that exist, of a scope whose mask is static."""
    return scope.mask.count if isinstance(scope.mask, LaneMask) else scope.lanes


Body = Callable[[Scope, Index, list[Value]], Sequence[Value]]
"""Writes a loop's body into its scope, from the induction variable and the carried values; gives their next values."""


@dataclass
class Emission:
    """A kernel in the writing: what its writers share.

    root     the function's scope
    stores   the stores that are being written, with what is known of the axes' steps put in
    known    the steps of axes that the code being written is for
    within   the expressions of these stores
    fold     the fold whose loop is being written
    streams  some results are stored past the caches
    asks     loads ask for what is read later
    beside   vectors that are made side by side before those of the next row: the next ones are asked for; 0: all
    """

    fn: Function
    loops: Loops
    root: Scope
    stores: Sequence[Store] = ()
    known: Mapping[LoopAxis, Span] = field(default_factory=dict[LoopAxis, Span])
    within: Expressions = field(default_factory=Expressions)
    fold: Node | None = None
    streams: bool = False
    asks: bool = True
    beside: int = 0

    @classmethod
    def of(cls, fn: Function, loops: Loops, bits: int = 0) -> Emission:
        """The state of a kernel whose code goes to the function's end. `bits`: the axes that are bound there."""
        return cls(fn, loops, Scope(None, Region.of(fn), bits), loops.stores)


class BufferTable:
    """The arrays that a kernel reads and writes: entries of its first parameter, %table, in the order of first use.

    buffers  what the table has from entry `first` on
    """

    def __init__(self, fn: Function, buffers: list[Buffer] | None = None, first: int = 0) -> None:
        self.fn, self.first = fn, first
        self.buffers: list[Buffer] = [] if buffers is None else buffers

    def entry(self, buffer: Buffer) -> int:
        """The number of the table's entry for the buffer."""
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return self.first + self.buffers.index(buffer)
