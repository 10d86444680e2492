"""Sorting by keys with AVX-512: what is sorted are items, the key above, below it the element's number in the line.

No two items with numbers are equal, so the order of equal elements is kept. Where the keys are all there is, items have
no numbers: equal keys are equal elements, but for zeros and NaNs, which are then written anew in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu.kernels.comparators import Key
from hlokit.cpu.kernels.flow import Element, at, least, table_pointer
from hlokit.cpu.kernels.routine import Phase, Routine
from hlokit.cpu.kernels.sort_keys import KeyedLines
from hlokit.cpu.kernels.sort_vector import VectorSort
from hlokit.cpu.llvm import Function, Module, splat, vector

_CHUNK = 4096  # elements of short lines that make a chunk
_LONG = 1 << 15  # elements from which a line is worth several chunks
_SEGMENT = 1 << 17  # bytes of items that are parted into buckets at once
_BUCKET = 1 << 16  # bytes of items that are worth a bucket
_BUCKETS = 32  # at most
_SAMPLES = 1024  # that the borders of buckets are chosen from
_SAMPLED = 8  # neighbours at each place
_SPECIAL = 0  # the flag of a line in which some keyed elements cannot be made from items; those of `_counted` follow
_FLAGS = 60
_PARAMETERS = [("ptr", "table"), ("i64", "begin"), ("i64", "end")]


def fits(data: KeyedLines) -> bool:
    """Whether items have at most 64 bits."""
    return data.key_bits + _number_bits(data) <= 64


def _number_bits(data: KeyedLines) -> int:
    bare = data.only is not None and len(data.elements) == 1
    return 0 if bare else (data.size - 1).bit_length()


@dataclass(frozen=True)
class QuickSort:
    """A sort of lines by keys. The order of equals is kept."""

    name: str
    data: KeyedLines
    module: Module

    @property
    def _number_bits(self) -> int:
        return _number_bits(self.data)

    @property
    def _bits(self) -> int:
        """Of an item."""
        return 32 if self.data.key_bits + self._number_bits <= 32 else 64

    @property
    def _item(self) -> str:
        return f"i{self._bits}"

    @cached_property
    def _sorter(self) -> VectorSort:
        size = self.data.size if not self._is_split else max(self.data.size, _SAMPLES)
        return VectorSort(f"{self.name}_items", self._bits, size)

    @property
    def _lanes(self) -> int:
        """Elements that are made to items at once: in strided lines one."""
        return self._sorter.lanes if self.data.inner == 1 and self._is_plain else 1

    @property
    def _is_plain(self) -> bool:
        """Whether keys are elements as they lie in memory."""
        return all(key.component is None for key in self.data.order.keys)

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

    def _bytes(self, items: int) -> int:
        return -(-items * self._bits // 512) * 64

    # -- whole lines, several to a chunk

    def _whole_lines(self) -> Routine:
        data = self.data
        per_chunk = max(-(-data.lines // 64), min(data.lines, -(-_CHUNK // data.size)))
        chunks = -(-data.lines // per_chunk)
        nbytes = self._bytes(data.size + self._sorter.overrun)
        total = nbytes + self._bytes(data.size + self._sorter.padding)
        f = Function(f"{self.name}_lines", _PARAMETERS)
        operands, results, scratch = self._table(f)
        with f.loop("%begin", "%end") as chunk:
            items = at(f, scratch, chunk.index, total)
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
                    with f.when(self._flag(f, flags, _SPECIAL)):
                        data.restore(f, self.module, source, target)
        self._done(f)
        return Routine((Phase(f.name, chunks),), chunks * total)

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
        f = Function(f"{self.name}_lines", _PARAMETERS)
        operands, results, scratch = self._table(f)
        with f.loop("%begin", "%end") as chunk:
            items = at(f, scratch, chunk.index, total)
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
        return Routine((Phase(f.name, chunks),), chunks * total)

    def _sort_neighbours(self, f: Function, items: str, count: str, source: list[str], target: list[str]) -> None:
        """Sorts so many lines, which begin one after the other."""
        data, lanes = self.data, self._sorter.lanes
        inside, size = self._inside(f, count, lanes), str(data.size)
        with f.loop("0", size, carries=self._no_flags(lanes)) as loop:
            narrow = loop.index if self._bits == 64 else f.let(f"trunc i64 {loop.index} to i32")
            numbers = "" if self._is_bare else self._spread(f, narrow)
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
            with f.when(self._flag(f, flags, _SPECIAL)), f.loop("0", count) as line:
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

    def _end(self, f: Function, items: str, count: str) -> None:
        """Puts the greatest items after the last one."""
        place = at(f, items, count, self._bits // 8)
        size = self._sorter.overrun * self._bits // 8
        f.do(f"call void @llvm.memset.p0.i64(ptr align {self._bits // 8} {place}, i8 -1, i64 {size}, i1 false)")

    # -- long lines: segments are parted into buckets, then buckets sorted

    @property
    def _spare_at(self) -> int:
        """Where a line's spare memory begins, after its items, parted in segments."""
        return self._bytes(self.data.size)

    @property
    def _buckets_at(self) -> int:
        return self._spare_at + self._bytes(self.data.size + max(self._segments, self._buckets) * self._sorter.padding)

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
        f = Function(f"{self.name}_sample", _PARAMETERS)
        operands, _, scratch = self._table(f)
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
        f = Function(f"{self.name}_part", _PARAMETERS)
        operands, _, scratch = self._table(f)
        count = self._buckets
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
            pad = f.let(f"mul i64 {segment}, {self._sorter.padding}")
            spare = self._place(f, self._memory(f, memory, self._spare_at), f.let(f"add i64 {low}, {pad}"))
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
                    left = self._sorter.part(f, self._place(f, memory, begin), n, spare, pivot)
                    f.do(f"store i64 {f.let(f'add i64 {begin}, {left}')}, ptr {at(f, bounds, middle, 8)}")
            f.do(f"store i64 {flags}, ptr {at(f, self._memory(f, memory, self._flags_at), segment, 8)}")
        return self._done(f)

    def _write_sorting(self) -> str:
        """Fetches a bucket's items from all segments, sorts them and writes the results."""
        f = Function(f"{self.name}_bucket", _PARAMETERS)
        operands, results, scratch = self._table(f)
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
            items, spare = (
                self._place(f, self._memory(f, memory, area), f.let(f"add i64 {start}, {pad}"))
                for area, pad in zip((self._buckets_at, self._spare_at), pads, strict=True)
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
        f = Function(f"{self.name}_restore", _PARAMETERS)
        operands, results, scratch = self._table(f)
        with f.loop("%begin", "%end") as line:
            memory = at(f, scratch, line.index, self._line_bytes)
            with f.when(self._flag(f, self._line_flags(f, memory), _SPECIAL)):
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

    def _write_make(self) -> None:
        """`_make_items` as a function."""
        names = [f"from{k}" for k in range(len(self.data.elements))]
        parameters = [*(("ptr", n) for n in names), ("ptr", "items"), ("i64", "low"), ("i64", "high")]
        f = Function(f"{self.name}_make", parameters, "i64", "noinline")
        f.do(f"ret i64 {self._make_items(f, [f'%{n}' for n in names], '%items', ('%low', '%high'))}")
        self.module.add(f)

    def _call_make(self, f: Function, source: list[str], items: str, bounds: tuple[str, str]) -> str:
        pointers = "".join(f"ptr {p}, " for p in (*source, items))
        return f.let(f"call i64 @{self.name}_make({pointers}i64 {bounds[0]}, i64 {bounds[1]})")

    def _memory(self, f: Function, base: str, offset: int) -> str:
        return f.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    # -- items from elements

    @property
    def _is_bare(self) -> bool:
        return self._number_bits == 0

    @cached_property
    def _keys_of(self) -> dict[int, tuple[Key, int]]:
        """Of each operand that can be made from items: its key, and the bits of the item below it."""
        below, found = self._number_bits, dict[int, tuple[Key, int]]()
        for key in reversed(self.data.order.keys):
            if key.component is None and not key.map.is_table:
                found[key.operand] = key, below
            below += key.map.bits
        return found

    @cached_property
    def _counted(self) -> list[int]:
        """The operands that may be the elements' numbers, as they are when places are sorted for."""
        if self._is_bare:
            return []
        return [
            k
            for k, e in enumerate(self.data.elements[:_FLAGS])
            if k not in self._keys_of and e.dtype.is_integral and e.dtype.bits in (32, 64)
        ]

    @property
    def _has_special(self) -> bool:
        """Whether there may be zeros or NaNs that cannot be made from bare keys."""
        return self._is_bare and self.data.order.keys[0].map.merges

    def _make_items(self, f: Function, source: list[str], items: str, bounds: tuple[str, str]) -> str:
        """Stores the items of a line's elements within the bounds; gives the flags, an i64."""
        lanes = self._lanes
        with f.loop(*bounds, lanes, carries=self._no_flags(lanes)) as loop:
            inside = self._inside(f, f.let(f"sub i64 {bounds[1]}, {loop.index}"), lanes)
            numbers = "" if self._is_bare else self._numbers(f, loop.index, lanes)
            item, flags = self._make(f, source, loop.index, numbers, lanes, inside)
            self._store_lanes(f, item, self._place(f, items, loop.index), self._bits, lanes, inside)
            loop.next = self._flagged(f, loop.carried, flags, lanes, inside)
        return self._flag_bits(f, loop.results, lanes)

    def _no_flags(self, lanes: int) -> list[tuple[str, str]]:
        """What a loop that makes items carries: a bit for each lane, of each flag."""
        merging = any(key.map.merges for key, _ in self._keys_of.values())
        return [(f"i{lanes}", "0")] * (merging + len(self._counted))

    def _flagged(self, f: Function, before: list[str], flags: list[str], lanes: int, inside: str) -> list[str]:
        kind, masks = f"i{lanes}", vector("i1", lanes)
        if lanes > 1:
            flags = [f.let(f"and {masks} {flag}, {inside}") for flag in flags]
            flags = [f.let(f"bitcast {masks} {flag} to {kind}") for flag in flags]
        return [f.let(f"or {kind} {a}, {b}") for a, b in zip(before, flags, strict=True)]

    def _flag_bits(self, f: Function, flags: list[str], lanes: int) -> str:
        """All flags as an i64."""
        found, first = "0", _SPECIAL + 1 + len(self._counted) - len(flags)
        for bit, lanes_set in enumerate(flags, first):
            one = f.let(f"zext i1 {f.let(f'icmp ne i{lanes} {lanes_set}, 0')} to i64")
            found = f.let(f"or i64 {found}, {f.let(f'shl i64 {one}, {bit}')}")
        return found

    def _flag(self, f: Function, flags: str, bit: int) -> str:
        return f.let(f"icmp ne i64 {f.let(f'and i64 {flags}, {1 << bit}')}, 0")

    def _make(
        self, f: Function, source: list[str], place: str, numbers: str, lanes: int, inside: str
    ) -> tuple[str, list[str]]:
        """(the items of the elements that lie from a place on, flags of them)."""
        type, masks = vector(self._item, lanes), vector("i1", lanes)
        addresses = self.data.addresses(f, source, place)
        combined, special = "", ""
        for key in self.data.order.keys:
            address, bits = addresses[key.operand], key.map.bits
            if key.component:
                address = self._memory(f, address, bits // 8)
            raw = self._load_lanes(f, address, bits, lanes, inside)
            mapped = key.map.write(f, self.module, raw, lanes)
            wide = f.let(f"zext {vector(f'i{bits}', lanes)} {mapped} to {type}") if bits < self._bits else mapped
            if combined:
                raised = f.let(f"shl {type} {combined}, {splat(str(bits), self._item, lanes)}")
                wide = f.let(f"or {type} {raised}, {wide}")
            combined = wide
            if key.map.merges and key.operand in self._keys_of:
                own = key.map.is_special(f, raw, lanes)
                special = f.let(f"or {masks} {special}, {own}") if special else own
        if numbers:
            raised = f.let(f"shl {type} {combined}, {splat(str(self._number_bits), self._item, lanes)}")
            combined = f.let(f"or {type} {raised}, {numbers}")
        flags = [special] if special else []
        for k in self._counted:
            bits = self.data.elements[k].dtype.bits
            raw = self._load_lanes(f, addresses[k], bits, lanes, inside)
            flags.append(f.let(f"icmp ne {vector(f'i{bits}', lanes)} {raw}, {self._resized(f, numbers, bits, lanes)}"))
        return combined, flags

    def _numbers(self, f: Function, place: str, lanes: int) -> str:
        narrow = place if self._bits == 64 else f.let(f"trunc i64 {place} to i32")
        if lanes == 1:
            return narrow
        return f.let(f"add {vector(self._item, lanes)} {self._spread(f, narrow)}, {self._sorter.lane_numbers}")

    # -- elements from items

    def _finish(self, f: Function, items: str, count: str, source: list[str], target: list[str], flags: str) -> None:
        """Writes the elements of so many items to the results from `target` on."""
        for k, element in enumerate(self.data.elements):
            fetch, make = self._ways(f, k, flags)
            if fetch:
                with f.when(fetch):
                    self._fetch(f, items, count, element, source[k], target[k])
            if make:
                with f.when(make):
                    self._make_elements(f, items, count, k, target[k])

    def _ways(self, f: Function, operand: int, flags: str) -> tuple[str, str]:
        """(whether to fetch an operand's elements by their numbers, whether to make them); "": never."""
        if operand in self._keys_of:
            if self._is_bare or not self._keys_of[operand][0].map.merges:
                return "", "true"
            bit = _SPECIAL
        elif operand in self._counted:
            bit = _SPECIAL + 1 + self._counted.index(operand)
        else:
            return "true", ""
        fetch = self._flag(f, flags, bit)
        return fetch, f.let(f"xor i1 {fetch}, true")

    def _fetch(self, f: Function, items: str, count: str, element: Element, source: str, target: str) -> None:
        """Copies the elements that have the items' numbers."""
        with f.loop("0", count) as loop:
            item = f.let(f"load {self._item}, ptr {self._place(f, items, loop.index)}")
            number = self._resized(f, self._number(f, item, 1), 64, 1)
            places = [self._strided(f, place) for place in (number, loop.index)]
            value = element.load(f, at(f, source, places[0], element.size))
            element.store(f, value, at(f, target, places[1], element.size))

    def _make_elements(self, f: Function, items: str, count: str, operand: int, target: str) -> None:
        """Makes an operand's elements from the items."""
        lanes = self._sorter.lanes if self.data.inner == 1 else 1
        size = self.data.elements[operand].size
        with f.loop("0", count, lanes) as loop:
            inside = self._inside(f, f.let(f"sub i64 {count}, {loop.index}"), lanes)
            item = self._load_lanes(f, self._place(f, items, loop.index), self._bits, lanes, inside)
            goal = at(f, target, self._strided(f, loop.index), size)
            self._store_lanes(f, self._element(f, item, operand, lanes), goal, 8 * size, lanes, inside)

    def _element(self, f: Function, item: str, operand: int, lanes: int) -> str:
        """An operand's elements of items."""
        if operand not in self._keys_of:
            return self._resized(f, self._number(f, item, lanes), self.data.elements[operand].dtype.bits, lanes)
        key, below = self._keys_of[operand]
        if below:
            item = f.let(f"lshr {vector(self._item, lanes)} {item}, {splat(str(below), self._item, lanes)}")
        return key.map.write_back(f, self._resized(f, item, key.map.bits, lanes), lanes)

    def _number(self, f: Function, item: str, lanes: int) -> str:
        mask = splat(str((1 << self._number_bits) - 1), self._item, lanes)
        return f.let(f"and {vector(self._item, lanes)} {item}, {mask}")

    def _strided(self, f: Function, place: str) -> str:
        return f.let(f"mul i64 {place}, {self.data.inner}") if self.data.inner > 1 else place

    # -- parts

    def _resized(self, f: Function, value: str, bits: int, lanes: int) -> str:
        """Unsigned integers of the items' type in another width."""
        if bits == self._bits:
            return value
        what = "trunc" if bits < self._bits else "zext"
        return f.let(f"{what} {vector(self._item, lanes)} {value} to {vector(f'i{bits}', lanes)}")

    def _inside(self, f: Function, count: str, lanes: int) -> str:
        """Mask of the first `count` lanes; "" for one lane."""
        return self._sorter.inside(f, count) if lanes > 1 else ""

    def _spread(self, f: Function, value: str) -> str:
        return self._sorter.spread(f, value)

    def _place(self, f: Function, base: str, index: str) -> str:
        return f.let(f"getelementptr {self._item}, ptr {base}, i64 {index}")

    def _load_lanes(self, f: Function, address: str, bits: int, lanes: int, inside: str) -> str:
        if lanes == 1:
            return f.let(f"load i{bits}, ptr {address}, align {bits // 8}")
        type = vector(f"i{bits}", lanes)
        return f.let(
            f"call {type} @llvm.masked.load.v{lanes}i{bits}.p0(ptr align {bits // 8} {address}, "
            f"{vector('i1', lanes)} {inside}, {type} zeroinitializer)"
        )

    def _store_lanes(self, f: Function, value: str, address: str, bits: int, lanes: int, inside: str) -> None:
        type = vector(f"i{bits}", lanes)
        if lanes == 1:
            f.do(f"store {type} {value}, ptr {address}, align {bits // 8}")
        else:
            f.do(
                f"call void @llvm.masked.store.v{lanes}i{bits}.p0({type} {value}, ptr align {bits // 8} {address}, "
                f"{vector('i1', lanes)} {inside})"
            )

    def _table(self, f: Function) -> tuple[list[str], list[str], str]:
        count = len(self.data.elements)
        operands, results = ([table_pointer(f, first + k) for k in range(count)] for first in (0, count))
        return operands, results, table_pointer(f, 2 * count)

    def _done(self, f: Function) -> str:
        f.do("ret void")
        self.module.add(f)
        return f.name
