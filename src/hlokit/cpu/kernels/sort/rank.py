"""Sorting short lines: each element is compared with all others, many at once; as many as go before it is its place."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.llvm import Function, Module, vector

_CHUNK = 2048  # elements that make a chunk
_UNROLLED = 2  # divides all numbers of lanes


@dataclass(frozen=True)
class RankSort:
    """A sort of lines of some dozens of elements by keys. The order of equals is kept.

    vector_bytes  of the target's registers
    """

    name: str
    data: KeyedLines
    vector_bytes: int

    @property
    def _lanes(self) -> int:
        return 8 * self.vector_bytes // self.data.bits

    def write(self, module: Module) -> Routine:
        data = self.data
        per_chunk = max(-(-data.lines // 64), min(data.lines, -(-_CHUNK // data.size)))
        padded = -(-data.size // self._lanes) * self._lanes
        f = Function(f"{self.name}_lines", PHASE)
        count = len(data.elements)
        operands, results = ([table_pointer(f, k + first) for k in range(count)] for first in (0, count))
        keys, ranks = (f.alloca(f"i{data.bits}", padded) for _ in range(2))
        low = f.let(f"mul i64 %begin, {per_chunk}")
        high = least(f, f.let(f"mul i64 %end, {per_chunk}"), str(data.lines))
        with f.loop(str(data.size), str(padded)) as loop:  # the last keys: they go before none
            f.do(f"store i{data.bits} -1, ptr {self._place(f, keys, loop.index)}")
        with f.loop(low, high) as line:
            start = data.line_start(f, line.index)
            source, target = (data.moved(f, bases, start) for bases in (operands, results))
            with f.loop("0", str(data.size)) as loop:
                key, _ = data.key(f, module, source, loop.index)
                f.do(f"store i{data.bits} {key}, ptr {self._place(f, keys, loop.index)}")
            with f.loop("0", str(data.size), self._lanes) as block:
                self._rank(f, keys, ranks, block.index, padded)
            with f.loop("0", str(data.size)) as loop:
                rank = f.let(f"load i{data.bits}, ptr {self._place(f, ranks, loop.index)}")
                place = rank if data.bits == 64 else f.let(f"zext i32 {rank} to i64")
                data.copy(f, data.addresses(f, source, loop.index), data.addresses(f, target, place))
        f.do("ret void")
        module.add(f)
        return Routine((Phase(f.name, -(-data.lines // per_chunk)),))

    def _rank(self, f: Function, keys: str, ranks: str, block: str, end: int) -> None:
        """Stores the ranks of a vector of keys; of equal ones the left go before. Lanes past the end are junk."""
        type = vector(f"i{self.data.bits}", self._lanes)
        own = f.let(f"load {type}, ptr {self._place(f, keys, block)}")
        after = f.let(f"add i64 {block}, {self._lanes}")
        ranked = self._count(f, keys, ("0", block), own, "ule", "zeroinitializer")
        lanes = ", ".join(f"i{self.data.bits} {i}" for i in range(self._lanes))
        with f.loop(block, after, carries=[(type, ranked)]) as loop:
            other = self._spread(f, keys, loop.index)
            less = f.let(f"icmp ult {type} {other}, {own}")
            equal = f.let(f"icmp eq {type} {other}, {own}")
            lane = f.let(f"sub i64 {loop.index}, {block}")
            if self.data.bits < 64:
                lane = f.let(f"trunc i64 {lane} to i{self.data.bits}")
            left = f.let(f"icmp ult {type} {self._splat(f, lane)}, <{lanes}>")
            mask = vector("i1", self._lanes)
            before = f.let(f"or {mask} {less}, {f.let(f'and {mask} {equal}, {left}')}")
            loop.next = [self._counted(f, loop.carried[0], before)]
        ranked = self._count(f, keys, (after, str(end)), own, "ult", loop.results[0])
        f.do(f"store {type} {ranked}, ptr {self._place(f, ranks, block)}")

    def _count(self, f: Function, keys: str, bounds: tuple[str, str], own: str, predicate: str, counted: str) -> str:
        """Adds to each lane of `counted` how many keys within the bounds are `predicate` than its own."""
        type = vector(f"i{self.data.bits}", self._lanes)
        with f.loop(*bounds, _UNROLLED, carries=[(type, counted)]) as loop:
            total = loop.carried[0]
            for step in range(_UNROLLED):
                other = self._spread(f, keys, f.let(f"add i64 {loop.index}, {step}"))
                before = f.let(f"icmp {predicate} {type} {other}, {own}")
                total = self._counted(f, total, before)
            loop.next = [total]
        return loop.results[0]

    def _counted(self, f: Function, total: str, mask: str) -> str:
        """One more where the mask is set: an addition under it with AVX-512, else one of the comparison's result."""
        type, masks = vector(f"i{self.data.bits}", self._lanes), vector("i1", self._lanes)
        if self.vector_bytes < 64:
            return f.let(f"sub {type} {total}, {f.let(f'sext {masks} {mask} to {type}')}")
        more = f.let(f"add {type} {total}, splat (i{self.data.bits} 1)")
        return f.let(f"select {masks} {mask}, {type} {more}, {type} {total}")

    def _spread(self, f: Function, keys: str, index: str) -> str:
        """A key in every lane."""
        return self._splat(f, f.let(f"load i{self.data.bits}, ptr {self._place(f, keys, index)}"))

    def _splat(self, f: Function, value: str) -> str:
        type = vector(f"i{self.data.bits}", self._lanes)
        one = f.let(f"insertelement {type} poison, i{self.data.bits} {value}, i64 0")
        return f.let(f"shufflevector {type} {one}, {type} poison, <{self._lanes} x i32> zeroinitializer")

    def _place(self, f: Function, base: str, index: str) -> str:
        return f.let(f"getelementptr i{self.data.bits}, ptr {base}, i64 {index}")
