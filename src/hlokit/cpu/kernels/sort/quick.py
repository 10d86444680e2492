"""Sorting by keys with AVX-512: what is sorted are items, the key above, below it the element's number in the line.

No two items with numbers are equal, so the order of equal elements is kept. Where the keys are all there is, items have
no numbers: equal keys are equal elements, but for zeros and NaNs, which are then written anew in their order.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import at, least
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.items import LineItems, number_bits
from hlokit.cpu.llvm import I64, Function, Index, Module, Pointer, Value, vector

_CHUNK = 4096  # elements of short lines that make a chunk
_LONG = 1 << 15  # elements from which a line is worth several chunks
_SEGMENT = 1 << 16  # bytes of items that are parted into buckets at once
_BUCKET = 1 << 17  # bytes of items that are worth a bucket
_BUCKETS = 128  # at most
_STACK = 1 << 19  # bytes of items, and as many to spare, that lie on the stack: every thread's own stays in its cache
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
        return self.data.size >= _LONG and self.data.lines < self._buckets

    @property
    def _buckets(self) -> int:
        """Of a long line: a power of two."""
        return min(_BUCKETS, 1 << (self.data.size * self._bits // 8 // _BUCKET).bit_length())

    @property
    def _segment(self) -> int:
        """Elements of a segment."""
        return _SEGMENT * 8 // self._bits

    @property
    def _segments(self) -> int:
        return -(-self.data.size // self._segment)

    def write(self) -> Routine:
        """Writes the functions; gives the phases."""
        self._sorter.write(self.module)
        if self._is_split:
            return self._split_lines()
        return self._neighbours() if self.data.inner > 1 and self._is_plain else self._whole_lines()

    # -- whole lines, several to a chunk

    def _whole_lines(self) -> Routine:
        data = self.data
        per_chunk = max(-(-data.lines // 64), min(data.lines, -(-_CHUNK // data.size)))
        chunks = -(-data.lines // per_chunk)
        nbytes = self._bytes(data.size + self._sorter.overrun)
        total = nbytes + self._bytes(data.size + self._sorter.padding)
        f = Function(f"{self.name}_lines", PHASE)
        operands, results, scratch = self.data.table(f)
        stack = f.alloca("i8", total) if total <= _STACK else ""
        with f.loop("%begin", "%end") as chunk:
            items = stack or at(f, scratch, chunk.index, total)
            spare = self._memory(f, items, nbytes)
            self._end(f, items, str(data.size))
            low = f.let(f"mul i64 {chunk.index}, {per_chunk}")
            with f.loop(low, least(f, f.let(f"add i64 {low}, {per_chunk}"), str(data.lines))) as line:
                start = data.line_start(f, line.index)
                source, target = (data.moved(f, bases, start) for bases in (operands, results))
                flags = self._make_items(f, source, items, ("0", str(data.size)))
                self._sorter.call(f, items, str(data.size), spare)
                self._finish(f, items, str(data.size), source, target, flags)
                if self._has_special:
                    with f.when(self._is_special(f, flags)):
                        data.restore(f, self.module, source, target)
        self._done(f)
        return Routine((Phase(f.name, chunks),), 0 if stack else chunks * total)

    # -- strided lines, as many neighbours at once as a vector has lanes

    @property
    def _line_stride(self) -> int:
        """Bytes from one line's items to the next one's: an odd number of cache lines, which spreads them."""
        return (self._bytes(self.data.size + self._sorter.overrun) // 64 | 1) * 64

    def _neighbours(self) -> Routine:
        data, lanes = self.data, self._sorter.lanes
        across = -(-data.inner // lanes)
        groups = data.outer * across
        per_chunk = max(-(-groups // 64), min(groups, -(-_CHUNK // (data.size * min(data.inner, lanes)))))
        chunks = -(-groups // per_chunk)
        total = lanes * self._line_stride + self._bytes(data.size + self._sorter.padding)
        f = Function(f"{self.name}_lines", PHASE)
        operands, results, scratch = self.data.table(f)
        stack = f.alloca("i8", total) if total <= _STACK else ""
        with f.loop("%begin", "%end") as chunk:
            items = stack or at(f, scratch, chunk.index, total)
            with f.loop("0", str(lanes)) as line:
                self._end(f, at(f, items, line.index, self._line_stride), str(data.size))
            low = f.let(f"mul i64 {chunk.index}, {per_chunk}")
            with f.loop(low, least(f, f.let(f"add i64 {low}, {per_chunk}"), str(groups))) as group:
                block, part = (f.let(f"{what} i64 {group.index}, {across}") for what in ("udiv", "urem"))
                first = f.let(f"mul i64 {part}, {lanes}")
                start = f.let(f"add i64 {f.let(f'mul i64 {block}, {data.size * data.inner}')}, {first}")
                source, target = (data.moved(f, bases, start) for bases in (operands, results))
                count = least(f, f.let(f"sub i64 {data.inner}, {first}"), str(lanes))
                self._sort_neighbours(f, items, count, source, target)
        self._done(f)
        return Routine((Phase(f.name, chunks),), 0 if stack else chunks * total)

    def _sort_neighbours(self, f: Function, items: str, count: str, source: list[str], target: list[str]) -> None:
        """Sorts so many lines, which begin one after the other."""
        data, lanes = self.data, self._sorter.lanes
        inside, size = self._inside(f, count, lanes), str(data.size)
        with f.loop("0", size, carries=self._no_flags(lanes)) as loop:
            narrow = loop.index if self._bits == 64 else f.let(f"trunc i64 {loop.index} to i32")
            numbers = "" if not self.numbered else self._spread(f, narrow)
            made, found = self._make(f, source, loop.index, numbers, lanes, inside)
            self._scatter(f, made, items, loop.index, inside)
            loop.next = self._flagged(f, loop.carried, found, lanes, inside)
        flags = self._flag_bits(f, loop.results, lanes)
        spare = self._memory(f, items, lanes * self._line_stride)
        with f.loop("0", count) as line:
            self._sorter.call(f, at(f, items, line.index, self._line_stride), size, spare)
        for k, element in enumerate(data.elements):
            fetch, make = self._ways(f, k, flags)
            if fetch:
                with f.when(fetch), f.loop("0", count) as line:
                    places = [at(f, base, line.index, element.size) for base in (source[k], target[k])]
                    self._fetch(f, at(f, items, line.index, self._line_stride), size, element, *places)
            if make:
                with f.when(make), f.loop("0", size) as loop:
                    value = self._element(f, self._gather(f, items, loop.index, inside), k, lanes)
                    goal = at(f, target[k], self._strided(f, loop.index), element.size)
                    self._store_lanes(f, value, goal, 8 * element.size, lanes, inside)
        if self._has_special:
            with f.when(self._is_special(f, flags)), f.loop("0", count) as line:
                lines = [data.moved(f, bases, line.index) for bases in (source, target)]
                data.restore(f, self.module, *lines)

    def _scatter(self, f: Function, value: str, items: str, place: str, inside: str) -> None:
        """Stores an item of each line."""
        lanes, type = self._sorter.lanes, vector(self._item, self._sorter.lanes)
        f.do(
            f"call void @llvm.masked.scatter.v{lanes}{self._item}.v{lanes}p0({type} {value}, "
            f"<{lanes} x ptr> align {self._bits // 8} {self._of_lines(f, items, place)}, <{lanes} x i1> {inside})"
        )

    def _gather(self, f: Function, items: str, place: str, inside: str) -> str:
        """An item of each line."""
        lanes, type = self._sorter.lanes, vector(self._item, self._sorter.lanes)
        return f.let(
            f"call {type} @llvm.masked.gather.v{lanes}{self._item}.v{lanes}p0(<{lanes} x ptr> align "
            f"{self._bits // 8} {self._of_lines(f, items, place)}, <{lanes} x i1> {inside}, {type} zeroinitializer)"
        )

    def _of_lines(self, f: Function, items: str, place: str) -> str:
        """The addresses of a place in all lines."""
        offsets = ", ".join(f"i64 {k * self._line_stride}" for k in range(self._sorter.lanes))
        first = self._place(f, items, place)
        return f.let(f"getelementptr i8, ptr {first}, <{self._sorter.lanes} x i64> <{offsets}>")

    # -- long lines: segments are parted into buckets, then buckets sorted

    @property
    def _spare_at(self) -> int:
        """Where a line's spare memory begins, after its items, parted in segments."""
        return self._bytes(self.data.size)

    @property
    def _buckets_at(self) -> int:
        return self._spare_at + self._bytes(self.data.size + self._buckets * self._sorter.padding)

    @property
    def _samples_at(self) -> int:
        """Of the samples, then spare memory for them."""
        return self._buckets_at + self._bytes(self.data.size + self._buckets * self._sorter.overrun)

    @property
    def _bounds_at(self) -> int:
        """Of i64: the places in each segment where buckets begin, and the last one ends."""
        return self._samples_at + 2 * self._bytes(_SAMPLES + max(self._sorter.overrun, self._sorter.padding))

    @property
    def _flags_at(self) -> int:
        """Of i64: flags of each segment."""
        return self._bounds_at + 8 * self._segments * (self._buckets + 1)

    @property
    def _line_bytes(self) -> int:
        return -(-(self._flags_at + 8 * self._segments) // 64) * 64

    def _split_lines(self) -> Routine:
        self._write_make()
        phases = [
            Phase(self._write_sampling(), self.data.lines),
            Phase(self._write_parting(), self.data.lines * self._segments),
            Phase(self._write_sorting(), self.data.lines * self._buckets),
        ]
        if self._has_special:
            phases.append(Phase(self._write_restoring(), self.data.lines))
        return Routine(tuple(phases), self.data.lines * self._line_bytes)

    def _write_sampling(self) -> str:
        """Sorts samples of the line."""
        f = Function(f"{self.name}_sample", PHASE, is_cold=True)
        operands, _, scratch = self.data.table(f)
        with f.loop("%begin", "%end") as line:
            memory = at(f, scratch, line.index, self._line_bytes)
            samples = self._memory(f, memory, self._samples_at)
            source = self.data.moved(f, operands, self.data.line_start(f, line.index))
            with f.loop("0", str(_SAMPLES), _SAMPLED) as loop:
                low = f.let(f"mul i64 {loop.index}, {self.data.size // _SAMPLES}")
                high = f.let(f"add i64 {low}, {_SAMPLED}")
                goal = self._place(f, samples, f.let(f"sub i64 {loop.index}, {low}"))
                self._call_make(f, source, goal, (low, high))
            self._end(f, samples, str(_SAMPLES))
            spare = self._memory(f, samples, self._bytes(_SAMPLES + self._sorter.overrun))
            self._sorter.call(f, samples, str(_SAMPLES), spare)
        return self._done(f)

    def _write_parting(self) -> str:
        """Makes a segment's items and parts them: into halves, quarters, ..."""
        f = Function(f"{self.name}_part", PHASE, is_cold=True)
        operands, _, scratch = self.data.table(f)
        count = self._buckets
        spare = f.alloca("i8", self._bytes(self._segment + self._sorter.padding))
        with f.loop("%begin", "%end") as chunk:
            line, segment = self._chunk(f, chunk.index, self._segments)
            memory = at(f, scratch, line, self._line_bytes)
            low = f.let(f"mul i64 {segment}, {self._segment}")
            high = least(f, f.let(f"add i64 {low}, {self._segment}"), str(self.data.size))
            source = self.data.moved(f, operands, self.data.line_start(f, line))
            flags = self._call_make(f, source, memory, (low, high))
            bounds = self._segment_bounds(f, memory, segment)
            f.do(f"store i64 {low}, ptr {bounds}")
            f.do(f"store i64 {high}, ptr {at(f, bounds, str(count), 8)}")
            samples = self._memory(f, memory, self._samples_at)
            with f.loop("0", str(count.bit_length() - 1)) as level:
                width = f.let(f"lshr i64 {count}, {level.index}")
                half = f.let(f"lshr i64 {width}, 1")
                with f.loop("0", f.let(f"shl i64 1, {level.index}")) as pair:
                    first = f.let(f"mul i64 {pair.index}, {width}")
                    middle = f.let(f"add i64 {first}, {half}")
                    sample = f.let(f"mul i64 {middle}, {_SAMPLES // count}")
                    pivot = f.let(f"load {self._item}, ptr {self._place(f, samples, sample)}")
                    begin = f.let(f"load i64, ptr {at(f, bounds, first, 8)}")
                    end = f.let(f"load i64, ptr {at(f, bounds, f.let(f'add i64 {first}, {width}'), 8)}")
                    n = f.let(f"sub i64 {end}, {begin}")
                    item = self._sorter.item
                    items, others = Pointer(f, self._place(f, memory, begin), item), Pointer(f, spare, item)
                    left = self._sorter.part(items, Index(f, I64, n), others, Value(f, item, pivot))
                    f.do(f"store i64 {f.let(f'add i64 {begin}, {left}')}, ptr {at(f, bounds, middle, 8)}")
            f.do(f"store i64 {flags}, ptr {at(f, self._memory(f, memory, self._flags_at), segment, 8)}")
        return self._done(f)

    def _write_sorting(self) -> str:
        """Fetches a bucket's items from all segments, sorts them and writes the results."""
        f = Function(f"{self.name}_bucket", PHASE)
        operands, results, scratch = self.data.table(f)
        more = self._bytes(max(self._sorter.overrun, self._sorter.padding))
        stack = [f.alloca("i8", _STACK + more) for _ in range(2)]
        with f.loop("%begin", "%end") as chunk:
            line, bucket = self._chunk(f, chunk.index, self._buckets)
            memory = at(f, scratch, line, self._line_bytes)
            after = f.let(f"add i64 {bucket}, 1")
            with f.loop("0", str(self._segments), carries=[("i64", "0"), ("i64", "0")]) as loop:
                bounds = self._segment_bounds(f, memory, loop.index)
                first = f.let(f"load i64, ptr {bounds}")
                ends = [f.let(f"load i64, ptr {at(f, bounds, b, 8)}") for b in (bucket, after)]
                before = f.let(f"sub i64 {ends[0]}, {first}")
                own = f.let(f"sub i64 {ends[1]}, {ends[0]}")
                loop.next = [f.let(f"add i64 {a}, {b}") for a, b in zip(loop.carried, (before, own), strict=True)]
            start, count = loop.results
            pads = [f.let(f"mul i64 {bucket}, {n}") for n in (self._sorter.overrun, self._sorter.padding)]
            small = f.let(f"icmp sle i64 {count}, {_STACK * 8 // self._bits}")
            items, spare = (
                f.let(f"select i1 {small}, ptr {near}, ptr {self._place(f, far, f.let(f'add i64 {start}, {pad}'))}")
                for near, far, pad in zip(
                    stack, [self._memory(f, memory, o) for o in (self._buckets_at, self._spare_at)], pads, strict=True
                )
            )
            with f.loop("0", str(self._segments), carries=[("ptr", items)]) as loop:
                bounds = self._segment_bounds(f, memory, loop.index)
                ends = [f.let(f"load i64, ptr {at(f, bounds, b, 8)}") for b in (bucket, after)]
                own = f.let(f"sub i64 {ends[1]}, {ends[0]}")
                size = f.let(f"mul i64 {own}, {self._bits // 8}")
                source = self._place(f, memory, ends[0])
                f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {loop.carried[0]}, ptr {source}, i64 {size}, i1 false)")
                loop.next = [self._place(f, loop.carried[0], own)]
            self._end(f, items, count)
            self._sorter.call(f, items, count, spare)
            begin = self.data.line_start(f, line)
            sources = self.data.moved(f, operands, begin)
            targets = self.data.addresses(f, self.data.moved(f, results, begin), start)
            self._finish(f, items, count, sources, targets, self._line_flags(f, memory))
        return self._done(f)

    def _write_restoring(self) -> str:
        f = Function(f"{self.name}_restore", PHASE)
        operands, results, scratch = self.data.table(f)
        with f.loop("%begin", "%end") as line:
            memory = at(f, scratch, line.index, self._line_bytes)
            with f.when(self._is_special(f, self._line_flags(f, memory))):
                start = self.data.line_start(f, line.index)
                source, target = (self.data.moved(f, bases, start) for bases in (operands, results))
                self.data.restore(f, self.module, source, target)
        return self._done(f)

    def _chunk(self, f: Function, chunk: str, of: int) -> tuple[str, str]:
        """(line, segment or bucket of it)."""
        return f.let(f"udiv i64 {chunk}, {of}"), f.let(f"urem i64 {chunk}, {of}")

    def _segment_bounds(self, f: Function, memory: str, segment: str) -> str:
        return at(f, self._memory(f, memory, self._bounds_at), segment, 8 * (self._buckets + 1))

    def _line_flags(self, f: Function, memory: str) -> str:
        """The flags of all segments together."""
        place = self._memory(f, memory, self._flags_at)
        with f.loop("0", str(self._segments), carries=[("i64", "0")]) as loop:
            own = f.let(f"load i64, ptr {at(f, place, loop.index, 8)}")
            loop.next = [f.let(f"or i64 {loop.carried[0]}, {own}")]
        return loop.results[0]
