"""topk: one look at each element, in vectors, against the worst of the best so far, which are a heap.

What the heap holds is (key, index) in one integer, key above index: never two equal, so ties need no thought.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlokit.cpu.kernels.flow import Element, at, least, table_pointer, unused_name
from hlokit.cpu.kernels.routine import KERNELS, PHASE, Call, Phase, Routine
from hlokit.cpu.kernels.sort.keys import KeyMap
from hlokit.cpu.kernels.sort.topk_select import select
from hlokit.cpu.llvm import Function, Module, While, vector

_LANES = 64  # elements of one look; their mask is an i64
_SEGMENT = 1 << 16  # the fewest elements of a line that are worth a chunk
_SEGMENTS = 8
_CHUNK = 1 << 15  # elements of small lines that make a chunk


def topk(call: Call, module: Module) -> Routine | None:
    """A heap for each line, or for segments of long ones, whose heaps are then merged; if they are large, selection."""
    size, count = call.operands[0].dimensions[-1], call.results[0].dimensions[-1]
    lines = call.operands[0].size // size if size else 0
    if not lines * count:
        return Routine(())
    if size > 2**31:
        return None  # more than the index of an item, or of the result, can name
    op: Any = call.op
    keys = KeyMap(call.operands[0].dtype, descending=op.largest)
    name = unused_name(module, "topk")
    selected = select(name, module, keys, (lines, size, count), call.target)
    return selected if selected is not None else _TopK(name, module, keys, lines, size, count).write()


@dataclass(frozen=True)
class _TopK:
    name: str
    module: Module
    keys: KeyMap
    lines: int
    size: int
    count: int

    @property
    def _item(self) -> str:
        """The type of a heap's item; its low half is the index."""
        return f"i{2 * self._half}"

    @property
    def _half(self) -> int:
        return 32 if self.keys.bits <= 32 else 64

    @property
    def _heap_bytes(self) -> int:
        return -(-self.count * self._half // 4 // 64) * 64

    @property
    def _segments(self) -> int:
        """Chunks of a line."""
        if self.lines >= _SEGMENTS:
            return 1
        return max(1, min(_SEGMENTS, self.size // max(_SEGMENT, 4 * self.count)))

    def write(self) -> Routine:
        self._write_sift()
        segment = -(-self.size // self._segments)
        if self._segments == 1:
            per_chunk = max(-(-self.lines // 64), min(self.lines, -(-_CHUNK // self.size)))
            chunks = -(-self.lines // per_chunk)
            phases = (Phase(self._write_lines(per_chunk), chunks),)
        else:
            chunks = self.lines * self._segments
            phases = (Phase(self._write_segments(segment), chunks), Phase(self._write_joins(), self.lines))
        return Routine(phases, chunks * self._heap_bytes)

    def _write_lines(self, per_chunk: int) -> str:
        """A chunk's lines, one after the other, with one heap."""
        f = self._phase("lines")
        with f.loop("%begin", "%end") as chunk:
            heap = self._heap(f, chunk.index)
            low = f.let(f"mul i64 {chunk.index}, {per_chunk}")
            with f.loop(low, least(f, f.let(f"add i64 {low}, {per_chunk}"), str(self.lines))) as line:
                start = f.let(f"mul i64 {line.index}, {self.size}")
                self._scan(f, start, heap, "0", str(self.size))
                self._output(f, line.index, heap)
        return self._finished(f)

    def _write_segments(self, segment: int) -> str:
        f = self._phase("segments")
        with f.loop("%begin", "%end") as chunk:
            line = f.let(f"udiv i64 {chunk.index}, {self._segments}")
            low = f.let(f"mul i64 {f.let(f'urem i64 {chunk.index}, {self._segments}')}, {segment}")
            high = least(f, f.let(f"add i64 {low}, {segment}"), str(self.size))
            self._scan(f, f.let(f"mul i64 {line}, {self.size}"), self._heap(f, chunk.index), low, high)
        return self._finished(f)

    def _write_joins(self) -> str:
        """Puts each line's heaps together in the first one."""
        f = self._phase("join")
        with f.loop("%begin", "%end") as line:
            first = f.let(f"mul i64 {line.index}, {self._segments}")
            heap = self._heap(f, first)
            with f.loop("1", str(self._segments)) as segment:
                other = self._heap(f, f.let(f"add i64 {first}, {segment.index}"))
                with f.loop("0", str(self.count)) as item:
                    self._offer(f, heap, f.let(f"load {self._item}, ptr {self._place(f, other, item.index)}"))
            self._output(f, line.index, heap)
        return self._finished(f)

    def _scan(self, f: Function, line: str, heap: str, low: str, high: str) -> None:
        """Makes the heap of the best of elements [low, high) of the line that starts at element `line`."""
        operand = at(f, table_pointer(f, 0), line, self._size)
        first = f.let(f"add i64 {low}, {self.count}")
        with f.loop(low, first) as fill:
            place = self._place(f, heap, f.let(f"sub i64 {fill.index}, {low}"))
            f.do(f"store {self._item} {self._item_at(f, operand, fill.index)}, ptr {place}")
        with f.loop("0", str(self.count // 2)) as loop:
            root = f.let(f"sub i64 {self.count // 2 - 1}, {loop.index}")
            item = f.let(f"load {self._item}, ptr {self._place(f, heap, root)}")
            self._sift(f, heap, root, str(self.count), item)
        looked = f.let(f"and i64 {f.let(f'sub i64 {high}, {first}')}, {-_LANES}")
        rest = f.let(f"add i64 {first}, {looked}")
        with f.loop(first, rest, _LANES) as loop:
            self._look(f, operand, heap, loop.index)
        with f.loop(rest, high) as loop:
            self._offer(f, heap, self._item_at(f, operand, loop.index))

    def _look(self, f: Function, operand: str, heap: str, start: str) -> None:
        """Offers those of `_LANES` elements that are better than the worst one kept. (Equal ones come too late.)"""
        raw_type, mask = vector(f"i{self.keys.bits}", _LANES), vector("i1", _LANES)
        raw = f.let(f"load {raw_type}, ptr {at(f, operand, start, self._size)}, align {self._size}")
        keys = self.keys.write(f, self.module, raw, _LANES)
        worst = f.let(f"load {self._item}, ptr {heap}")
        worst = f.let(f"lshr {self._item} {worst}, {self._half}")
        worst = f.let(f"trunc {self._item} {worst} to i{self.keys.bits}")
        one = f.let(f"insertelement {raw_type} poison, i{self.keys.bits} {worst}, i64 0")
        all_worst = f.let(f"shufflevector {raw_type} {one}, {raw_type} poison, <{_LANES} x i32> zeroinitializer")
        better = f.let(f"bitcast {mask} {f.let(f'icmp ult {raw_type} {keys}, {all_worst}')} to i64")
        pending = While(f, [("i64", better)])
        (bits,) = pending.values
        pending.test(f.let(f"icmp ne i64 {bits}, 0"))
        lane = f.let(f"call i64 @llvm.cttz.i64(i64 {bits}, i1 true)")
        self._offer(f, heap, self._item_at(f, operand, f.let(f"add i64 {start}, {lane}")))
        pending.again(f.let(f"and i64 {bits}, {f.let(f'sub i64 {bits}, 1')}"))

    def _offer(self, f: Function, heap: str, item: str) -> None:
        """Takes the item in if it is better than the worst one."""
        worst = f.let(f"load {self._item}, ptr {heap}")
        with f.when(f.let(f"icmp ult {self._item} {item}, {worst}")):
            self._sift(f, heap, "0", str(self.count), item)

    def _output(self, f: Function, line: str, heap: str) -> None:
        """Sorts the heap, best first, and writes values and indices."""
        with f.loop("0", str(self.count - 1)) as loop:
            last = f.let(f"sub i64 {self.count - 1}, {loop.index}")
            place = self._place(f, heap, last)
            item = f.let(f"load {self._item}, ptr {place}")
            f.do(f"store {self._item} {f.let(f'load {self._item}, ptr {heap}')}, ptr {place}")
            self._sift(f, heap, "0", last, item)
        element = Element(self.keys.dtype)
        operand = at(f, table_pointer(f, 0), f.let(f"mul i64 {line}, {self.size}"), self._size)
        start = f.let(f"mul i64 {line}, {self.count}")
        values = at(f, table_pointer(f, 1), start, self._size)
        indices = at(f, table_pointer(f, 2), start, 4)
        with f.loop("0", str(self.count)) as loop:
            item = f.let(f"load {self._item}, ptr {self._place(f, heap, loop.index)}")
            index = f.let(f"trunc {self._item} {item} to i32")
            f.do(f"store i32 {index}, ptr {at(f, indices, loop.index, 4)}")
            source = at(f, operand, f.let(f"zext i32 {index} to i64"), self._size)
            element.store(f, element.load(f, source), at(f, values, loop.index, self._size))

    def _item_at(self, f: Function, operand: str, index: str) -> str:
        raw = f.let(f"load i{self.keys.bits}, ptr {at(f, operand, index, self._size)}")
        key = f.let(f"zext i{self.keys.bits} {self.keys.write(f, self.module, raw)} to {self._item}")
        raised = f.let(f"shl {self._item} {key}, {self._half}")
        wide = index if self._half == 32 else f.let(f"zext i64 {index} to {self._item}")
        return f.let(f"or {self._item} {raised}, {wide}")

    def _sift(self, f: Function, heap: str, root: str, count: str, item: str) -> None:
        f.do(f"call void @{self.name}_sift(ptr {heap}, i64 {root}, i64 {count}, {self._item} {item})")

    def _write_sift(self) -> None:
        """Puts the item into the heap's first `count` places at `root` or below, the greatest item on top."""
        parameters = [("ptr", "heap"), ("i64", "root"), ("i64", "count"), (self._item, "item")]
        f = Function(f"{self.name}_sift", parameters, attributes="noinline")
        down = While(f, [("i64", "%root")])
        (hole,) = down.values
        left = f.let(f"add i64 {f.let(f'shl i64 {hole}, 1')}, 1")
        down.test(f.let(f"icmp slt i64 {left}, %count"))
        last = f.let("sub i64 %count, 1")
        right = least(f, f.let(f"add i64 {left}, 1"), last)
        items = [f.let(f"load {self._item}, ptr {self._place(f, '%heap', child)}") for child in (left, right)]
        is_right = f.let(f"icmp ugt {self._item} {items[1]}, {items[0]}")
        child = f.let(f"select i1 {is_right}, i64 {right}, i64 {left}")
        greater = f.let(f"select i1 {is_right}, {self._item} {items[1]}, {self._item} {items[0]}")
        down.test(f.let(f"icmp ugt {self._item} {greater}, %item"))
        f.do(f"store {self._item} {greater}, ptr {self._place(f, '%heap', hole)}")
        down.again(child)
        f.do(f"store {self._item} %item, ptr {self._place(f, '%heap', hole)}")
        f.do("ret void")
        self.module.add(f)

    @property
    def _size(self) -> int:
        """Bytes of an element."""
        return self.keys.bits // 8

    def _phase(self, what: str) -> Function:
        return Function(f"{self.name}_{what}", PHASE)

    def _finished(self, f: Function) -> str:
        f.do("ret void")
        self.module.add(f)
        return f.name

    def _heap(self, f: Function, chunk: str) -> str:
        return at(f, table_pointer(f, 3), chunk, self._heap_bytes)

    def _place(self, f: Function, heap: str, index: str) -> str:
        return at(f, heap, index, self._half // 4)


KERNELS["topk"] = topk
