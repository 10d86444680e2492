"""topk of many: partitions part off the best, which alone are sorted; long lines in segments, whose best are joined."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu.kernels.flow import Element, at, least, table_pointer
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.comparators import Key, KeyOrder
from hlokit.cpu.kernels.sort.items import LineItems, number_bits
from hlokit.cpu.kernels.sort.keys import KeyMap
from hlokit.cpu.kernels.sort.vector import VectorSort, supports
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import Target

_SEGMENT = 1 << 16  # the fewest elements of a line that are worth a chunk
_SEGMENTS = 8
_CHUNK = 4096  # elements of small lines that make a chunk


def select(name: str, module: Module, keys: KeyMap, sizes: tuple[int, int, int], target: Target) -> Routine | None:
    """The best `count` of each line, for sizes (lines, size, count). None: a heap of the best is as good."""
    lines, size, count = sizes
    data = KeyedLines((Element(keys.dtype),), lines, size, 1, KeyOrder((Key(0, None, keys),)))
    if not supports(target) or keys.is_table or keys.bits + number_bits(data) > 64:
        return None
    heap = 8 * count * math.log2(count + 1) * (1 + math.log(size / count))  # ns, as it was measured
    return _Selection(name, data, module, True, count).write() if heap > 3 * size else None


@dataclass(frozen=True)
class _Selection(LineItems):
    count: int

    @property
    def _segments(self) -> int:
        """Chunks of a line."""
        if self.data.lines >= _SEGMENTS:
            return 1
        return max(1, min(_SEGMENTS, self.data.size // max(_SEGMENT, 4 * self.count)))

    @property
    def _segment(self) -> int:
        """Elements of a chunk."""
        return -(-self.data.size // self._segments)

    @property
    def _longest(self) -> int:
        return max(self._segment, self._segments * self.count)

    @cached_property
    def _sorter(self) -> VectorSort:
        return VectorSort(f"{self.name}_items", self._bits, self._longest, selects=True)

    @property
    def _spare_at(self) -> int:
        return self._bytes(self._longest + self._sorter.overrun)

    @property
    def _chunk_bytes(self) -> int:
        return self._spare_at + self._bytes(self._longest + self._sorter.padding)

    def write(self) -> Routine:
        self._sorter.write(self.module)
        lines = self.data.lines
        if self._segments == 1:
            per_chunk = max(-(-lines // 64), min(lines, -(-_CHUNK // self.data.size)))
            chunks = -(-lines // per_chunk)
            phases = (Phase(self._write_lines(per_chunk), chunks),)
        else:
            chunks = lines * (self._segments + 1)
            phases = (Phase(self._write_segments(), lines * self._segments), Phase(self._write_joins(), lines))
        return Routine(phases, chunks * self._chunk_bytes)

    def _write_lines(self, per_chunk: int) -> str:
        f = Function(f"{self.name}_lines", PHASE)
        with f.loop("%begin", "%end") as chunk:
            memory = self._chunk_memory(f, chunk.index)
            low = f.let(f"mul i64 {chunk.index}, {per_chunk}")
            with f.loop(low, least(f, f.let(f"add i64 {low}, {per_chunk}"), str(self.data.lines))) as line:
                self._make_items(f, self._line(f, line.index), memory, ("0", str(self.data.size)))
                self._select(f, memory, str(self.data.size))
                self._output(f, memory, line.index)
        return self._done(f)

    def _write_segments(self) -> str:
        f = Function(f"{self.name}_segments", PHASE)
        with f.loop("%begin", "%end") as chunk:
            memory = self._chunk_memory(f, chunk.index)
            line, segment = (f.let(f"{what} i64 {chunk.index}, {self._segments}") for what in ("udiv", "urem"))
            low = f.let(f"mul i64 {segment}, {self._segment}")
            high = least(f, f.let(f"add i64 {low}, {self._segment}"), str(self.data.size))
            items = self._place(f, memory, f.let(f"sub i64 0, {low}"))
            self._make_items(f, self._line(f, line), items, (low, high))
            self._select(f, memory, f.let(f"sub i64 {high}, {low}"))
        return self._done(f)

    def _write_joins(self) -> str:
        """Selects from the best of a line's segments."""
        f = Function(f"{self.name}_join", PHASE)
        with f.loop("%begin", "%end") as line:
            memory = self._chunk_memory(f, f.let(f"add i64 {line.index}, {self.data.lines * self._segments}"))
            first = f.let(f"mul i64 {line.index}, {self._segments}")
            nbytes = self.count * self._bits // 8
            with f.loop("0", str(self._segments)) as segment:
                source = self._chunk_memory(f, f.let(f"add i64 {first}, {segment.index}"))
                goal = at(f, memory, segment.index, nbytes)
                f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {goal}, ptr {source}, i64 {nbytes}, i1 false)")
            self._select(f, memory, str(self._segments * self.count))
            self._output(f, memory, line.index)
        return self._done(f)

    def _select(self, f: Function, memory: str, n: str) -> None:
        self._end(f, memory, n)
        self._sorter.call(f, memory, n, self._memory(f, memory, self._spare_at), str(self.count))

    def _output(self, f: Function, items: str, line: str) -> None:
        """Writes values and indices."""
        lanes, size = self._sorter.lanes, self.data.elements[0].size
        start = f.let(f"mul i64 {line}, {self.count}")
        values, indices = at(f, table_pointer(f, 1), start, size), at(f, table_pointer(f, 2), start, 4)
        with f.loop("0", str(self.count), lanes) as loop:
            inside = self._inside(f, f.let(f"sub i64 {self.count}, {loop.index}"), lanes)
            item = self._load_lanes(f, self._place(f, items, loop.index), self._bits, lanes, inside)
            goal = at(f, values, loop.index, size)
            self._store_lanes(f, self._element(f, item, 0, lanes), goal, 8 * size, lanes, inside)
            number = self._resized(f, self._number(f, item, lanes), 32, lanes)
            self._store_lanes(f, number, at(f, indices, loop.index, 4), 32, lanes, inside)

    def _line(self, f: Function, line: str) -> list[str]:
        return self.data.moved(f, [table_pointer(f, 0)], self.data.line_start(f, line))

    def _chunk_memory(self, f: Function, chunk: str) -> str:
        return at(f, table_pointer(f, 3), chunk, self._chunk_bytes)
