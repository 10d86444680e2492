"""Regions: runs of blocks that are open at the same time, so that loop-invariant code can be placed before a loop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from hlokit.cpu.llvm.function import Function, phis
from hlokit.cpu.llvm.indices import Index
from hlokit.cpu.llvm.references import MARK
from hlokit.cpu.llvm.types import I64
from hlokit.cpu.llvm.values import Value, variable

LoopBody = Callable[["Region", Index, list[Any]], Sequence[Any]]
"""Writes a loop's body into a region of its own, from the counter and the carried values; gives their next values."""


class Region:
    """Blocks in the writing, of a whole function or of a loop's body. `with region as fn:` writes to its end.

    Values of a region can be used in those inside it.
    """

    __slots__ = ("_block", "_outside", "fn", "lines")

    def __init__(self, fn: Function, lines: list[str], block: str) -> None:
        self.fn, self.lines = fn, lines
        self._block = block
        self._outside: list[Region] = []

    @classmethod
    def of(cls, fn: Function) -> Region:
        """The function as far as it is written, as the region that instructions go to from now on."""
        region = fn.region = cls(fn, fn.lines, fn.block)
        return region

    @property
    def block(self) -> str:
        """The label of the block at its end."""
        return self.fn.block if self.fn.region is self else self._block

    def __enter__(self) -> Function:
        fn = self.fn
        outside: Region = fn.region
        self._outside.append(outside)
        if outside is not self:
            outside._block = fn.block
            fn.region, fn.lines, fn.block = self, self.lines, self._block
        return fn

    def __exit__(self, *_: object) -> None:
        outside = self._outside.pop()
        if outside is not self:
            fn = self.fn
            self._block = fn.block
            fn.region, fn.lines, fn.block = outside, outside.lines, outside._block

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """A branch: code written into the region meanwhile runs only if the i1 holds."""
        with self as fn:
            then, after = fn.new_block("then"), fn.new_block("after")
            fn.branch(condition, then, after)
            fn.start(then)
        yield
        with self as fn:
            fn.jump(after)
            fn.start(after)

    def loop(
        self, low: Index, high: Index, step: int, carries: Sequence[Value], body: LoopBody, *, runs: bool = False
    ) -> Sequence[Any]:
        """for (i64 i = low; i < high; i += step) with carried values, whose initial ones are given; gives the last.

        runs    it runs at least once: the test is at its end, and of one step, known as such, there is no loop at all
        """
        fn = self.fn
        if runs and low.number is not None and high.number is not None and low.number + step >= high.number:
            return body(self, low, list(carries))
        head, inside, after = fn.new_block("loop"), fn.new_block("body"), fn.new_block("end")
        index = Index(fn, I64, fn.fresh("i"))
        carried = [fn.carried(carry, "c") for carry in carries]
        inner = Region(fn, [], head if runs else inside)
        following = body(inner, index, carried)
        with inner:
            then = index.named(fn.let(f"add nuw nsw i64 {index.text}, {MARK}{step}{MARK}", "i"))
        lines, latch = inner.lines, inner.block
        with self:
            before = fn.block
            fn.jump(head)
            fn.start(head)
            self.lines += phis([index, *carried], [low, *carries], before, [then, *following], latch)
            if not runs:
                fn.branch(fn.let(f"icmp slt i64 {index.text}, {variable(high)}", "m"), inside, after)
                fn.start(inside)
            self.lines += lines
            if runs:
                fn.branch(fn.let(f"icmp slt i64 {then.text}, {variable(high)}", "m"), head, after)
            else:
                fn.do(f"br label %{head}")
            fn.start(after)
        return following if runs else carried
