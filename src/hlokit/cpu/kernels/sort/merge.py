"""Sorting by any comparator: insertion sort of short runs, then merges from the bottom up. Keeps the order of equals.

A comparator that is no strict weak order gives some permutation; nothing outside the line is read or written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu import costs
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine, chunk_bounds, each_chunk, up
from hlokit.cpu.kernels.sort.lines import SortedLines, copy, lines_per_chunk, moved, part
from hlokit.cpu.llvm import I1, I64, POINTER, Function, Index, Module, Pointer, Type, Value, While

_RUN = 16  # elements of a run that is sorted by insertion


@dataclass(frozen=True)
class MergeSort(SortedLines):
    """A sort of lines by a comparator.

    comparator  LLVM function of two elements of each operand: whether the first goes before the second
    """

    name: str
    comparator: str

    @cached_property
    def _is_split(self) -> bool:
        return self.size >= costs.LONG_LINE and self.lines < costs.MERGE_BLOCKS

    @property
    def _block(self) -> int:
        """Elements of a line that one chunk sorts."""
        return -(-self.size // costs.MERGE_BLOCKS) if self._is_split else self.size

    @property
    def _block_merges(self) -> int:
        """The number of times a block's elements are merged; the same in the last, shorter block."""
        return max(0, math.ceil(math.log2(max(1, self._block) / _RUN)))

    def write(self, module: Module) -> Routine:
        """Writes the functions; gives the phases."""
        self._write_merge(module)
        self._write_block(module)
        return self._split_lines(module) if self._is_split else self._whole_lines(module)

    # -- whole lines, several to a chunk

    def _whole_lines(self, module: Module) -> Routine:
        per_chunk = lines_per_chunk(self.lines, self.size, costs.COMPARISON_SORT_CHUNK)
        chunks = -(-self.lines // per_chunk)
        spare = 1 if self.inner == 1 else 2  # lines of scratch: the result's own line is no use if it is strided
        with module.function(f"{self.name}_lines", PHASE) as f:
            operands, results, scratch = self._arrays(f, chunks * spare * self.size)
            with each_chunk(f) as chunk:
                other = moved(scratch, chunk * (spare * self.size))
                with part(chunk, per_chunk, self.lines) as line:
                    source, goal = (self.line(arrays, line) for arrays in (operands, results))
                    dense = goal if self.inner == 1 else moved(other, self.size)
                    self._call_block(f, source, dense, other, f.index(self.size))
                    if self.inner > 1:
                        self._scatter(f, dense, goal)
        return Routine((Phase(f.name, chunks),), self._scratch_bytes(chunks * spare * self.size))

    # -- long lines: blocks, then merges of pairs of runs, each by several chunks

    def _split_lines(self, module: Module) -> Routine:
        phases = [Phase(self._write_blocks_of_lines(module), self.lines * costs.MERGE_BLOCKS)]
        self._write_merges_of_lines(module)
        for level in range(costs.MERGE_BLOCKS.bit_length() - 1):
            with module.function(f"{self.name}_merges{level}", PHASE) as f:
                f.call(f"{self.name}_merges", f.pointer("table"), *chunk_bounds(f), f.index(level))
            phases.append(Phase(f.name, self.lines * costs.MERGE_BLOCKS))
        if self.inner > 1:
            phases.append(Phase(self._write_scatter_of_lines(module), self.lines))
        return Routine(tuple(phases), self._scratch_bytes(self.lines * self.size))

    def _line_buffers(
        self, results: list[Pointer], scratch: list[Pointer], merges_left: int
    ) -> tuple[list[Pointer], list[Pointer]]:
        """(where the elements lie while so many merges are left, the other buffers); lines are contiguous in both.

        Lines end in the results, or, if those are strided, in the scratch memory.
        """
        last, other = (results, scratch) if self.inner == 1 else (scratch, results)
        return (last, other) if merges_left % 2 == 0 else (other, last)

    def _write_blocks_of_lines(self, module: Module) -> str:
        with module.function(f"{self.name}_blocks", PHASE) as f:
            operands, results, scratch = self._arrays(f, self.lines * self.size)
            goal, other = self._line_buffers(results, scratch, costs.MERGE_BLOCKS.bit_length() - 1)
            with each_chunk(f) as chunk:
                line, low = chunk // costs.MERGE_BLOCKS, chunk % costs.MERGE_BLOCKS * self._block
                count = (self.size - low).smin(self._block).smax(0)
                source = moved(operands, self.line_start(line) + low * self.inner)
                dense = line * self.size + low
                self._call_block(f, source, moved(goal, dense), moved(other, dense), count)
        return f.name

    def _write_merges_of_lines(self, module: Module) -> None:
        """Merges runs of 2^level blocks."""
        self._write_border(module)
        with module.function(f"{self.name}_merges", [*PHASE, (I64, "level")], attributes="noinline") as f:
            _, results, scratch = self._arrays(f, self.lines * self.size)
            even, odd = self._line_buffers(results, scratch, costs.MERGE_BLOCKS.bit_length() - 1)
            level = f.index_argument("level")
            is_even = (level & 1).eq(0)
            source = [is_even.select(a, b) for a, b in zip(even, odd, strict=True)]
            target = [is_even.select(b, a) for a, b in zip(even, odd, strict=True)]
            width = f.index(self._block) << level
            with each_chunk(f) as chunk:
                start, own = chunk // costs.MERGE_BLOCKS * self.size, chunk % costs.MERGE_BLOCKS
                first = own & (f.index(-2) << level)  # block at which the two runs begin
                low = (first * self._block).smin(self.size)
                middle = (low + width).smin(self.size)
                high = (middle + width).smin(self.size)
                lines, goal = moved(source, start), moved(target, start)
                begin, end = self._borders(lines, (low, middle, high), own - first)
                left = [low + border[0] for border in (begin, end)]
                right = [middle + (border[1] - border[0]) for border in (begin, end)]
                f.call(f"{self.name}_merge", *lines, *goal, *left, *right, low + begin[1])

    def _borders(
        self, lines: Sequence[Pointer], bounds: tuple[Index, Index, Index], number: Index
    ) -> tuple[tuple[Index, Index], tuple[Index, Index]]:
        """Both ends of a pair's `number`th block: (elements of the left run before it, elements before it).

        Found one after the other from the pair's beginning, since no order, if the comparator is none, makes them
        increase: each is kept between the one before and that plus a block.
        """
        f, (low, middle, high) = number.fn, bounds
        total, in_left, in_right = high - low, middle - low, high - middle
        with f.loop(0, number + 1, carries=[f.index(0)] * 4) as loop:
            left: Index = loop.carried[2]
            before: Index = loop.carried[3]
            ahead = (before + self._block).smin(total)
            found = f.index(f.call_for(I64, f"{self.name}_border", *lines, low, middle, high, ahead))
            found = found.smax(left.smax(ahead - in_right))
            loop.next = [left, before, found.smin((left + (ahead - before)).smin(in_left)), ahead]
        values = loop.results
        return (values[0], values[1]), (values[2], values[3])

    def _write_scatter_of_lines(self, module: Module) -> str:
        with module.function(f"{self.name}_spread", PHASE) as f:
            _, results, scratch = self._arrays(f, self.lines * self.size)
            with each_chunk(f) as line:
                self._scatter(f, moved(scratch, line * self.size), self.line(results, line))
        return f.name

    # -- parts

    def _write_block(self, module: Module) -> None:
        """Sorts `n` elements of the operand's stride into the dense memory `goal`, with `other` of the same size."""
        parameters = [*self._pointers("in", "goal", "other"), (I64, "n")]
        with module.function(f"{self.name}_block", parameters, attributes="noinline") as f:
            source, goal, other = (self._named(f, kind) for kind in ("in", "goal", "other"))
            n = f.index_argument("n")
            if self._block_merges % 2:
                goal, other = other, goal
            self._write_insertion_sort(f, source, goal, n)
            if not self._block_merges:
                return
            level = While(f, [f.index(_RUN), *goal, *other])
            width: Index = level.values[0]
            level.test(width < self._block)
            source, target = level.values[1 : 1 + len(goal)], level.values[1 + len(goal) :]
            double = width << 1
            pair = While(f, [f.index(0)])
            low: Index = pair.values[0]
            pair.test(low < n)
            middle, high = (low + width).smin(n), (low + double).smin(n)
            f.call(f"{self.name}_merge", *source, *target, low, middle, middle, high, low)
            pair.again(low + double)
            level.again(double, *target, *source)

    def _write_insertion_sort(
        self, f: Function, source: Sequence[Pointer], target: Sequence[Pointer], n: Index
    ) -> None:
        """Sorts each run; `source` has the operand's stride."""
        with f.loop(0, n) as loop:
            elements = self.elements_at(source, loop.index)
            own, raw = self._read(elements), [element.load() for element in elements]
            first = loop.index & -_RUN
            free = While(f, [loop.index])
            hole: Index = free.values[0]
            free.test(hole > first)
            before = moved(target, hole - 1)
            free.test(self._less(f, own, self._read(before)))
            copy(before, moved(target, hole))
            free.again(hole - 1)
            for value, place in zip(raw, moved(target, hole), strict=True):
                place.store(value)

    def _write_merge(self, module: Module) -> None:
        """Merges the runs [a, a_end) and [b, b_end) of the sources to the targets from `o` on."""
        parameters = [*self._pointers("from", "to"), *((I64, name) for name in ("a", "a_end", "b", "b_end", "o"))]
        with module.function(f"{self.name}_merge", parameters, attributes="noinline") as f:
            source, target = self._named(f, "from"), self._named(f, "to")
            ends = f.index_argument("a_end"), f.index_argument("b_end")
            both = While(f, [f.index_argument(name) for name in ("a", "b", "o")])
            a: Index = both.values[0]
            b: Index = both.values[1]
            o: Index = both.values[2]
            both.test(a < ends[0])
            both.test(b < ends[1])
            take = self._less(f, self._read(moved(source, b)), self._read(moved(source, a)))
            chosen = take.select(b, a, unpredictable=True)
            copy(moved(source, chosen), moved(target, o))
            step = take.zext(64)
            both.again(a + (step ^ 1), b + step, o + 1)
            for start, end in zip((a, b), ends, strict=True):
                with f.loop(start, end, carries=[o]) as rest:
                    copy(moved(source, rest.index), moved(target, rest.carried[0]))
                    rest.next = [rest.carried[0] + 1]
                (o,) = rest.results

    def _write_border(self, module: Module) -> None:
        """The number of elements from the left one of the first `ahead` merged of [low, middle) and [middle, high)."""
        names = ("low", "middle", "high", "ahead")
        parameters = [*self._pointers("from"), *((I64, name) for name in names)]
        with module.function(f"{self.name}_border", parameters, I64, "noinline") as f:
            source = self._named(f, "from")
            begin, middle, end, ahead = (f.index_argument(name) for name in names)
            search = While(f, [(ahead - (end - middle)).smax(0), ahead.smin(middle - begin)])
            low: Index = search.values[0]
            high: Index = search.values[1]
            search.test(low < high)
            half = (low + high) >> 1
            left, right = moved(source, begin + half), moved(source, middle + (ahead - half - 1))
            enough = self._less(f, self._read(right), self._read(left))
            search.again(enough.select(low, half + 1), enough.select(half, high))
            f.returns(low)

    def _scatter(self, f: Function, source: Sequence[Pointer], target: Sequence[Pointer]) -> None:
        """Copies a dense line to a strided one."""
        with f.loop(0, self.size) as loop:
            copy(moved(source, loop.index), self.elements_at(target, loop.index))

    def _pointers(self, *kinds: str) -> list[tuple[Type, str]]:
        """Parameters: for each kind a pointer to each operand's elements."""
        return [(POINTER, f"{kind}{k}") for kind in kinds for k in range(len(self.elements))]

    def _named(self, f: Function, kind: str) -> list[Pointer]:
        return self.arrays([f.pointer(name) for _, name in self._pointers(kind)])

    def _arrays(self, f: Function, count: int) -> tuple[list[Pointer], list[Pointer], list[Pointer]]:
        """Operands, results, and scratch memory for `count` elements of each operand."""
        operands, results, base = self.table(f)
        return operands, results, self.arrays([base + offset for offset in self._scratch_offsets(count)])

    def _scratch_offsets(self, count: int) -> list[int]:
        sizes = [up(count * e.size, 64) for e in self.elements]
        return [sum(sizes[:k]) for k in range(len(sizes))]

    def _scratch_bytes(self, count: int) -> int:
        return self._scratch_offsets(count)[-1] + count * self.elements[-1].size

    def _read(self, elements: Sequence[Pointer]) -> list[list[Value]]:
        return [e.read(place) for e, place in zip(self.elements, elements, strict=True)]

    def _less(self, f: Function, first: list[list[Value]], second: list[list[Value]]) -> Value:
        """Whether the first element goes before the second."""
        pairs = zip(first, second, strict=True)
        return f.call_for(I1, self.comparator, *(value for pair in pairs for scalars in pair for value in scalars))

    def _call_block(
        self, f: Function, source: Sequence[Pointer], goal: Sequence[Pointer], other: Sequence[Pointer], count: Index
    ) -> None:
        f.call(f"{self.name}_block", *source, *goal, *other, count)
