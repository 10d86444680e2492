"""topk for large k: partitions select the best, and only these are sorted; long lines are divided into segments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu import costs
from hlokit.cpu.kernels.flow import Element
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine, each_chunk
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.comparators import KeyOrder, SortKey
from hlokit.cpu.kernels.sort.items import LineItems, number_bits
from hlokit.cpu.kernels.sort.keys import KeyMap
from hlokit.cpu.kernels.sort.lines import lines_per_chunk, part
from hlokit.cpu.kernels.sort.vector import VectorSort, supports
from hlokit.cpu.llvm import I32, Function, Index, Pointer
from hlokit.cpu.target import Target


def selected_lines(keys: KeyMap, sizes: tuple[int, int, int], target: Target) -> KeyedLines | None:
    """The lines to select from, for sizes (lines, size, count). None: a heap of the best is as good."""
    lines, size, count = sizes
    data = KeyedLines((Element(keys.dtype),), lines, size, 1, KeyOrder((SortKey(0, None, keys),)))
    if not supports(target) or keys.is_table or keys.bits + number_bits(data) > 64:
        return None
    heap = 8 * count * math.log2(count + 1) * (1 + math.log(size / count))  # ns, as it was measured
    return data if heap > 3 * size else None


def segments(lines: int, size: int, count: int) -> int:
    """Chunks of a line."""
    most = costs.SELECTION_SEGMENTS
    return 1 if lines >= most else max(1, min(most, size // max(costs.SELECTION_SEGMENT, 4 * count)))


@dataclass(frozen=True)
class Selection(LineItems):
    """The best `count` of each line."""

    count: int

    @property
    def _segments(self) -> int:
        """Chunks of a line."""
        return segments(self.data.lines, self.data.size, self.count)

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
            per_chunk = lines_per_chunk(lines, self.data.size, costs.SORT_CHUNK)
            chunks = -(-lines // per_chunk)
            phases = (Phase(self._write_lines(per_chunk), chunks),)
        else:
            chunks = lines * (self._segments + 1)
            phases = (Phase(self._write_segments(), lines * self._segments), Phase(self._write_joins(), lines))
        return Routine(phases, chunks * self._chunk_bytes)

    def _write_lines(self, per_chunk: int) -> str:
        with self.module.function(f"{self.name}_lines", PHASE) as f, each_chunk(f) as chunk:
            memory = self._chunk_memory(chunk)
            with part(chunk, per_chunk, self.data.lines) as line:
                items, size = self._items(memory), f.index(self.data.size)
                self._make_items(self._line(f, line), items, f.index(0), size)
                self._select(memory, size)
                self._output(items, line)
        return f.name

    def _write_segments(self) -> str:
        with self.module.function(f"{self.name}_segments", PHASE) as f, each_chunk(f) as chunk:
            memory = self._chunk_memory(chunk)
            line, low = chunk // self._segments, chunk % self._segments * self._segment
            high = (low + self._segment).smin(self.data.size)
            self._make_items(self._line(f, line), self._items(memory)[0 - low], low, high)
            self._select(memory, high - low)
        return f.name

    def _write_joins(self) -> str:
        """Selects from the best of a line's segments."""
        nbytes = self.count * self._item.bytes
        with self.module.function(f"{self.name}_join", PHASE) as f, each_chunk(f) as line:
            memory = self._chunk_memory(line + self.data.lines * self._segments)
            with f.loop(0, self._segments) as segment:
                best = self._chunk_memory(line * self._segments + segment.index)
                f.memcpy(memory + segment.index * nbytes, best, nbytes)
            self._select(memory, f.index(self._segments * self.count))
            self._output(self._items(memory), line)
        return f.name

    def _select(self, memory: Pointer, n: Index) -> None:
        items = self._items(memory)
        self._end(items, n)
        self._sorter.call(items, n, self._items(memory, self._spare_at), self.count)

    def _output(self, items: Pointer, line: Index) -> None:
        """Writes values and indices."""
        f, lanes, start = items.fn, self._sorter.lanes, line * self.count
        values, indices = self.data.elements[0].array(f.table(1))[start], f.table(2, I32)[start]
        with f.loop(0, self.count, lanes) as loop:
            inside = self._sorter.inside(self.count - loop.index)
            item = items[loop.index].load(lanes, inside)
            values[loop.index].store(self._element(item, 0), inside)
            indices[loop.index].store(self._number(item).trunc(32), inside)

    def _line(self, f: Function, line: Index) -> list[Pointer]:
        return self.data.line(self.data.arrays([f.table(0)]), line)

    def _chunk_memory(self, chunk: Index) -> Pointer:
        return chunk.fn.table(3) + chunk * self._chunk_bytes
