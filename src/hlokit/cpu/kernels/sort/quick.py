"""Sorting by keys with AVX-512: items have the key in the high bits and the element's number in the low bits.

No two items with numbers are equal, so the order of equal elements is kept. Where the keys are all there is, items have
no numbers: equal keys are equal elements, but for zeros and NaNs, which are then written anew in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine, each_chunk, up
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.items import LineItems, number_bits
from hlokit.cpu.kernels.sort.lines import lines_per_chunk, moved, part
from hlokit.cpu.llvm import I8, I64, Function, Index, Module, Pointer, Pointers, Value

_SAMPLES = 2048  # that the borders of buckets are chosen from
_SAMPLED = 8  # neighbours at each place


def fits(data: KeyedLines) -> bool:
    """Whether items have at most 64 bits."""
    return data.key_bits + (number_bits(data) if _is_numbered(data) else 0) <= 64


def quick_sort(name: str, data: KeyedLines, module: Module) -> Routine:
    """A sort of lines by keys. The order of equals is kept."""
    return _QuickSort(name, data, module, _is_numbered(data)).write()


def _is_numbered(data: KeyedLines) -> bool:
    """Whether there is more than the keys."""
    return data.only is None or len(data.elements) > 1


@dataclass(frozen=True)
class _QuickSort(LineItems):
    @property
    def _longest(self) -> int:
        return max(self.data.size, _SAMPLES) if self._is_split else self.data.size

    @property
    def _is_split(self) -> bool:
        return self.data.size >= costs.LONG_LINE and self.data.lines < self._buckets

    @property
    def _buckets(self) -> int:
        """Buckets of a long line: a power of two."""
        return min(costs.BUCKETS, 1 << (self.data.size * self._bits // 8 // costs.BUCKET_BYTES).bit_length())

    @property
    def _segment(self) -> int:
        """Elements of a segment."""
        return costs.PARTED_BYTES * 8 // self._bits

    @property
    def _segments(self) -> int:
        return -(-self.data.size // self._segment)

    def write(self) -> Routine:
        """Writes the functions; gives the phases."""
        self._sorter.write(self.module)
        if self._is_split:
            return self._split_lines()
        return self._neighbours() if self.data.inner > 1 and self._is_plain else self._whole_lines()

    def _chunk_memory(self, f: Function, scratch: Pointer, chunk: Index, nbytes: int) -> Pointer:
        """A chunk's own memory, which lies on the stack if it is little."""
        return f.local(I8, nbytes, 64) if nbytes <= costs.SORT_STACK_BYTES else scratch + chunk * nbytes

    # -- whole lines, several to a chunk

    def _whole_lines(self) -> Routine:
        data = self.data
        per_chunk = lines_per_chunk(data.lines, data.size, costs.SORT_CHUNK)
        chunks = -(-data.lines // per_chunk)
        nbytes = self._bytes(data.size + self._sorter.overrun)
        total = nbytes + self._bytes(data.size + self._sorter.padding)
        with self.module.function(f"{self.name}_lines", PHASE) as f:
            operands, results, scratch = data.table(f)
            with each_chunk(f) as chunk:
                memory = self._chunk_memory(f, scratch, chunk, total)
                items, spare = self._items(memory), self._items(memory, nbytes)
                self._end(items, data.size)
                with part(chunk, per_chunk, data.lines) as line:
                    source, target = (data.line(arrays, line) for arrays in (operands, results))
                    flags = self._make_items(source, items, f.index(0), f.index(data.size))
                    self._sorter.call(items, data.size, spare)
                    self._finish(items, f.index(data.size), source, target, flags)
                    if self._has_special:
                        with f.when(self._is_special(flags)):
                            data.restore(f, source, target)
        return Routine((Phase(f.name, chunks),), 0 if total <= costs.SORT_STACK_BYTES else chunks * total)

    # -- strided lines, as many neighbours at once as a vector has lanes

    @property
    def _line_stride(self) -> int:
        """Bytes from one line's items to the next one's: an odd number of cache lines, which spreads them."""
        return (self._bytes(self.data.size + self._sorter.overrun) // 64 | 1) * 64

    def _neighbours(self) -> Routine:
        data, lanes = self.data, self._sorter.lanes
        across = -(-data.inner // lanes)
        groups = data.outer * across
        per_chunk = lines_per_chunk(groups, data.size * min(data.inner, lanes), costs.SORT_CHUNK)
        chunks = -(-groups // per_chunk)
        total = lanes * self._line_stride + self._bytes(data.size + self._sorter.padding)
        with self.module.function(f"{self.name}_lines", PHASE) as f:
            operands, results, scratch = data.table(f)
            with each_chunk(f) as chunk:
                memory = self._chunk_memory(f, scratch, chunk, total)
                with f.loop(0, lanes) as line:
                    self._end(self._line_items(memory, line.index), data.size)
                with part(chunk, per_chunk, groups) as group:
                    first = group % across * lanes
                    start = group // across * (data.size * data.inner) + first
                    source, target = (moved(arrays, start) for arrays in (operands, results))
                    self._sort_neighbours(memory, (data.inner - first).smin(lanes), source, target)
        return Routine((Phase(f.name, chunks),), 0 if total <= costs.SORT_STACK_BYTES else chunks * total)

    def _sort_neighbours(
        self, memory: Pointer, count: Index, source: Sequence[Pointer], target: Sequence[Pointer]
    ) -> None:
        """Sorts so many lines, which begin one after the other."""
        f, data, lanes = memory.fn, self.data, self._sorter.lanes
        inside = self._sorter.inside(count)
        with f.loop(0, data.size, carries=self._no_flags(f, lanes)) as loop:
            numbers = loop.index.trunc(self._bits).splat(lanes) if self.numbered else None
            made, found = self._make(moved(source, loop.index * data.inner), numbers, inside)
            self._across(memory, loop.index).scatter(made, inside)
            loop.next = self._flagged(loop.carried, found, inside)
        flags = self._flag_bits(f, loop.results)
        spare = self._items(memory, lanes * self._line_stride)
        with f.loop(0, count) as line:
            self._sorter.call(self._line_items(memory, line.index), data.size, spare)

        def fetch(k: int) -> None:
            with f.loop(0, count) as line:
                items = self._line_items(memory, line.index)
                self._fetch(items, f.index(data.size), source[k][line.index], target[k][line.index])

        def make(k: int) -> None:
            with f.loop(0, data.size) as loop:
                value = self._element(self._across(memory, loop.index).gather(inside), k)
                target[k][loop.index * data.inner].store(value, inside)

        for k in range(len(data.elements)):
            self._fetch_or_make(k, flags, lambda k=k: fetch(k), lambda k=k: make(k))
        if self._has_special:
            with f.when(self._is_special(flags)), f.loop(0, count) as line:
                data.restore(f, moved(source, line.index), moved(target, line.index))

    def _line_items(self, memory: Pointer, line: Index) -> Pointer:
        """The items of a line."""
        return (memory + line * self._line_stride).to(self._item)

    def _across(self, memory: Pointer, place: Index) -> Pointers:
        """The items at a place of all lines."""
        strides = [k * self._line_stride for k in range(self._sorter.lanes)]
        first = self._items(memory)[place].to(I8)
        addresses = first.elements(memory.fn.vector_constant(strides, I64))
        return addresses.to(self._item)

    # -- long lines: segments are parted into buckets, then buckets sorted

    @property
    def _spare_at(self) -> int:
        """The offset of a line's spare memory, after its items, parted in segments."""
        return self._bytes(self.data.size)

    @property
    def _buckets_at(self) -> int:
        return self._spare_at + self._bytes(self.data.size + self._buckets * self._sorter.padding)

    @property
    def _samples_at(self) -> int:
        """The offset of the samples; then comes spare memory for them."""
        return self._buckets_at + self._bytes(self.data.size + self._buckets * self._sorter.overrun)

    @property
    def _bounds_at(self) -> int:
        """The offset of the i64 that are the places in each segment at which buckets begin, and the last one ends."""
        return self._samples_at + 2 * self._bytes(_SAMPLES + max(self._sorter.overrun, self._sorter.padding))

    @property
    def _flags_at(self) -> int:
        """The offset of each segment's flags, as i64."""
        return self._bounds_at + 8 * self._segments * (self._buckets + 1)

    @property
    def _line_bytes(self) -> int:
        return up(self._flags_at + 8 * self._segments, 64)

    def _split_lines(self) -> Routine:
        self._write_make()
        phases = [
            Phase(self._write_sampling(), self.data.lines),
            Phase(self._write_partitioning(), self.data.lines * self._segments),
            Phase(self._write_sorting(), self.data.lines * self._buckets),
        ]
        if self._has_special:
            phases.append(Phase(self._write_restoring(), self.data.lines))
        return Routine(tuple(phases), self.data.lines * self._line_bytes)

    def _write_sampling(self) -> str:
        """Sorts samples of the line."""
        with self.module.function(f"{self.name}_sample", PHASE, is_cold=True) as f:
            operands, _, scratch = self.data.table(f)
            with each_chunk(f) as line:
                samples = self._items(scratch + line * self._line_bytes, self._samples_at)
                source = self.data.line(operands, line)
                with f.loop(0, _SAMPLES, _SAMPLED) as loop:
                    low = loop.index * (self.data.size // _SAMPLES)
                    self._call_make(source, samples[loop.index - low], low, low + _SAMPLED)
                self._end(samples, _SAMPLES)
                spare = samples[self._bytes(_SAMPLES + self._sorter.overrun) // self._item.bytes]
                self._sorter.call(samples, _SAMPLES, spare)
        return f.name

    def _write_partitioning(self) -> str:
        """Makes a segment's items and partitions them: into halves, quarters, ..."""
        count = self._buckets
        with self.module.function(f"{self.name}_part", PHASE, is_cold=True) as f:
            operands, _, scratch = self.data.table(f)
            spare = f.local(I8, self._bytes(self._segment + self._sorter.padding), 64).to(self._item)
            with each_chunk(f) as chunk:
                line, segment = chunk // self._segments, chunk % self._segments
                memory = scratch + line * self._line_bytes
                items, samples = self._items(memory), self._items(memory, self._samples_at)
                low = segment * self._segment
                high = (low + self._segment).smin(self.data.size)
                flags = self._call_make(self.data.line(operands, line), items, low, high)
                bounds = self._segment_bounds(memory, segment)
                bounds[0].store(low)
                bounds[count].store(high)
                with f.loop(0, count.bit_length() - 1) as level:
                    width = f.index(count) >> level.index
                    with f.loop(0, f.index(1) << level.index) as pair:
                        first = pair.index * width
                        middle = first + (width >> 1)
                        pivot = samples[middle * (_SAMPLES // count)].load()
                        begin, end = (f.index(bounds[bound].load()) for bound in (first, first + width))
                        left = self._sorter.part(items[begin], end - begin, spare, pivot)
                        bounds[middle].store(begin + left)
                (memory + self._flags_at).to(I64)[segment].store(flags)
        return f.name

    def _write_sorting(self) -> str:
        """Fetches a bucket's items from all segments, sorts them and writes the results."""
        most = costs.SORT_STACK_BYTES // self._item.bytes
        with self.module.function(f"{self.name}_bucket", PHASE) as f:
            operands, results, scratch = self.data.table(f)
            more = max(self._sorter.overrun, self._sorter.padding)
            own = costs.SORT_STACK_BYTES + self._bytes(more)
            own_items, own_spare = (self._items(f.local(I8, own, 64)) for _ in range(2))
            with each_chunk(f) as chunk:
                line, bucket = chunk // self._buckets, chunk % self._buckets
                memory = scratch + line * self._line_bytes
                with f.loop(0, self._segments, carries=[f.index(0)] * 2) as loop:
                    first = f.index(self._segment_bounds(memory, loop.index).load())
                    low, high = self._bucket(memory, loop.index, bucket)
                    before, count = loop.carried
                    loop.next = [before + (low - first), count + (high - low)]
                start: Index = loop.results[0]
                count: Index = loop.results[1]
                far_items = self._items(memory, self._buckets_at)[start + bucket * self._sorter.overrun]
                far_spare = self._items(memory, self._spare_at)[start + bucket * self._sorter.padding]
                is_small = count <= most
                items, spare = is_small.select(own_items, far_items), is_small.select(own_spare, far_spare)
                with f.loop(0, self._segments, carries=[items]) as loop:
                    low, high = self._bucket(memory, loop.index, bucket)
                    goal: Pointer = loop.carried[0]
                    f.memcpy(goal, self._items(memory)[low], (high - low) * self._item.bytes)
                    loop.next = [goal[high - low]]
                self._end(items, count)
                self._sorter.call(items, count, spare)
                source, target = (self.data.line(arrays, line) for arrays in (operands, results))
                flags = self._line_flags(memory)
                self._finish(items, count, source, self.data.elements_at(target, start), flags)
        return f.name

    def _write_restoring(self) -> str:
        """Writes zeros and NaNs anew in lines that have some."""
        with self.module.function(f"{self.name}_restore", PHASE) as f:
            operands, results, scratch = self.data.table(f)
            with each_chunk(f) as line:
                flags = self._line_flags(scratch + line * self._line_bytes)
                with f.when(self._is_special(flags)):
                    self.data.restore(f, self.data.line(operands, line), self.data.line(results, line))
        return f.name

    def _segment_bounds(self, memory: Pointer, segment: Index) -> Pointer:
        return (memory + self._bounds_at).to(I64)[segment * (self._buckets + 1)]

    def _bucket(self, memory: Pointer, segment: Index, bucket: Index) -> tuple[Index, Index]:
        """The places in a segment where a bucket begins and ends."""
        bounds = self._segment_bounds(memory, segment)[bucket]
        return memory.fn.index(bounds.load()), memory.fn.index(bounds[1].load())

    def _line_flags(self, memory: Pointer) -> Value:
        """The flags of all segments together."""
        f, flags = memory.fn, (memory + self._flags_at).to(I64)
        with f.loop(0, self._segments, carries=[f.constant(0, I64)]) as loop:
            loop.next = [loop.carried[0] | flags[loop.index].load()]
        return loop.results[0]
