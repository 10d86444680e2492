"""topk: compares each element, in vectors, with the worst of the best so far, which are kept in a heap.

An item of the heap is (key, index) in one integer, key above index: never two equal, so ties need no thought.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlokit.cpu import costs
from hlokit.cpu.kernels.flow import Element, unused_name
from hlokit.cpu.kernels.routine import (
    KERNELS,
    PHASE,
    Call,
    EmptyPlan,
    Phase,
    PlannedKernel,
    Routine,
    RoutinePlan,
    each_chunk,
    up,
)
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.keys import KeyMap
from hlokit.cpu.kernels.sort.lines import lines_per_chunk, part
from hlokit.cpu.kernels.sort.topk_select import Selection, segments, selected_lines
from hlokit.cpu.llvm import I32, I64, POINTER, Index, Module, Pointer, Type, Value, While, type_of

_LANES = 64  # elements of one look; their mask is an i64


@dataclass(frozen=True)
class TopKPlan:
    """The best `count` elements of each line, by heaps or by selection.

    selected   the lines that partitions select from; None: heaps
    """

    keys: KeyMap
    lines: int
    size: int
    count: int
    selected: KeyedLines | None

    def write(self, module: Module) -> Routine:
        name = unused_name(module, "topk")
        if self.selected is not None:
            return Selection(name, self.selected, module, True, self.count).write()
        return _HeapSelection(name, module, self.keys, self.lines, self.size, self.count).write()


def plan(call: Call) -> RoutinePlan | None:
    """A heap for each line, or for segments of long ones, whose heaps are then merged; if they are large, selection."""
    size, count = call.operands[0].dimensions[-1], call.results[0].dimensions[-1]
    lines = call.operands[0].size // size if size else 0
    if not lines * count:
        return EmptyPlan()
    if size > 2**31:
        return None  # more than the index of an item, or of the result, can name
    op: Any = call.op
    keys = KeyMap(call.operands[0].dtype, descending=op.largest)
    return TopKPlan(keys, lines, size, count, selected_lines(keys, (lines, size, count), call.target))


@dataclass(frozen=True)
class _HeapSelection:
    name: str
    module: Module
    keys: KeyMap
    lines: int
    size: int
    count: int

    @property
    def _item(self) -> Type:
        """The type of a heap's item; its low half is the index."""
        return type_of(f"i{2 * self._half}")

    @property
    def _half(self) -> int:
        return 32 if self.keys.bits <= 32 else 64

    @property
    def _heap_bytes(self) -> int:
        return up(self.count * self._item.bytes, 64)

    @property
    def _segments(self) -> int:
        """Chunks of a line."""
        return segments(self.lines, self.size, self.count)

    def write(self) -> Routine:
        self._write_sift()
        segment = -(-self.size // self._segments)
        if self._segments == 1:
            per_chunk = lines_per_chunk(self.lines, self.size, costs.HEAP_CHUNK)
            chunks = -(-self.lines // per_chunk)
            phases = (Phase(self._write_lines(per_chunk), chunks),)
        else:
            chunks = self.lines * self._segments
            phases = (Phase(self._write_segments(segment), chunks), Phase(self._write_joins(), self.lines))
        return Routine(phases, chunks * self._heap_bytes)

    def _write_lines(self, per_chunk: int) -> str:
        """A chunk's lines, one after the other, with one heap."""
        with self.module.function(f"{self.name}_lines", PHASE) as f, each_chunk(f) as chunk:
            heap = self._heap(chunk)
            with part(chunk, per_chunk, self.lines) as line:
                self._scan(self._line(line), heap, f.index(0), f.index(self.size))
                self._output(line, heap)
        return f.name

    def _write_segments(self, segment: int) -> str:
        """A heap for each segment."""
        with self.module.function(f"{self.name}_segments", PHASE) as f, each_chunk(f) as chunk:
            low = chunk % self._segments * segment
            line = self._line(chunk // self._segments)
            self._scan(line, self._heap(chunk), low, (low + segment).smin(self.size))
        return f.name

    def _write_joins(self) -> str:
        """Puts each line's heaps together in the first one."""
        with self.module.function(f"{self.name}_join", PHASE) as f, each_chunk(f) as line:
            first = line * self._segments
            heap = self._heap(first)
            with f.loop(1, self._segments) as segment:
                other = self._heap(first + segment.index)
                with f.loop(0, self.count) as item:
                    self._offer(heap, other[item.index].load())
            self._output(line, heap)
        return f.name

    def _scan(self, line: Pointer, heap: Pointer, low: Index, high: Index) -> None:
        """Makes the heap of the best of elements [low, high) of the line."""
        f, first = heap.fn, low + self.count
        with f.loop(low, first) as fill:
            heap[fill.index - low].store(self._item_at(line, fill.index))
        with f.loop(0, self.count // 2) as loop:
            root = self.count // 2 - 1 - loop.index
            self._sift(heap, root, f.index(self.count), heap[root].load())
        rest = first + ((high - first) & -_LANES)
        with f.loop(first, rest, _LANES) as loop:
            self._look(line, heap, loop.index)
        with f.loop(rest, high) as loop:
            self._offer(heap, self._item_at(line, loop.index))

    def _look(self, line: Pointer, heap: Pointer, start: Index) -> None:
        """Offers those of `_LANES` elements that are better than the worst one kept. (Equal ones come too late.)"""
        f, keys = heap.fn, self.keys.key(line[start].load(_LANES))
        worst = (heap.load() >> self._half).trunc(self.keys.bits)
        better = keys.compare("ult", worst.splat(_LANES)).bitcast(I64)
        pending = While(f, [better])
        bits: Value = pending.values[0]
        pending.test(bits.ne(0))
        lane = bits.intrinsic("cttz", extra=", i1 true")
        self._offer(heap, self._item_at(line, start + lane))
        pending.again(bits & (bits - 1))

    def _offer(self, heap: Pointer, item: Value) -> None:
        """Takes the item in if it is better than the worst one."""
        f = heap.fn
        with f.when(item.compare("ult", heap.load())):
            self._sift(heap, f.index(0), f.index(self.count), item)

    def _output(self, line: Index, heap: Pointer) -> None:
        """Sorts the heap, best first, and writes values and indices."""
        f, element = heap.fn, Element(self.keys.dtype)
        with f.loop(0, self.count - 1) as loop:
            last = self.count - 1 - loop.index
            item = heap[last].load()
            heap[last].store(heap.load())
            self._sift(heap, f.index(0), last, item)
        source, start = self._line(line), line * self.count
        values, indices = element.array(f.table(1))[start], f.table(2, I32)[start]
        with f.loop(0, self.count) as loop:
            index = heap[loop.index].load().trunc(32)
            indices[loop.index].store(index)
            values[loop.index].store(source[f.index(index.zext(64))].load())

    def _item_at(self, line: Pointer, index: Index) -> Value:
        key = self.keys.key(line[index].load()).zext(self._item.bits)
        return (key << self._half) | index.cast("zext", self._item.scalar)

    def _sift(self, heap: Pointer, root: Index, count: Index, item: Value) -> None:
        heap.fn.call(f"{self.name}_sift", heap, root, count, item)

    def _write_sift(self) -> None:
        """Puts the item into the heap's first `count` places at `root` or below, the greatest item on top."""
        parameters = [(POINTER, "heap"), (I64, "root"), (I64, "count"), (self._item, "item")]
        with self.module.function(f"{self.name}_sift", parameters, attributes="noinline") as f:
            heap, count, item = f.pointer("heap", self._item), f.index_argument("count"), f.argument("item")
            down = While(f, [f.index_argument("root")])
            hole: Index = down.values[0]
            left = (hole << 1) + 1
            down.test(left < count)
            right = (left + 1).smin(count - 1)
            children = heap[left].load(), heap[right].load()
            is_right = children[1].compare("ugt", children[0])
            child, greater = is_right.select(right, left), is_right.select(children[1], children[0])
            down.test(greater.compare("ugt", item))
            heap[hole].store(greater)
            down.again(child)
            heap[hole].store(item)

    def _line(self, line: Index) -> Pointer:
        """A line of the operand."""
        return Element(self.keys.dtype).array(line.fn.table(0))[line * self.size]

    def _heap(self, chunk: Index) -> Pointer:
        return (chunk.fn.table(3) + chunk * self._heap_bytes).to(self._item)


KERNELS["topk"] = PlannedKernel(plan)
