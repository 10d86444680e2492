"""Sorting by keys, digit by digit from the lowest: a histogram of the digit, then every element moves to its position.

An item is moved: the key below, above it the payload, which is the other operand's element where that is all there is
and small, else the element's number in the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine, chunk_bounds, each_chunk, up
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.lines import copy, lines_per_chunk, part
from hlokit.cpu.llvm import I1, I8, I32, I64, Function, IfElse, Index, Module, Pointer, Type, Value, While, type_of

_LANES = 16  # counts in a vector


@dataclass(frozen=True)
class RadixSort:
    """A sort of lines by keys. The order of equals is kept."""

    name: str
    data: KeyedLines
    module: Module

    @property
    def _carried(self) -> int | None:
        """The operand whose elements go along with the keys."""
        key = self.data.only
        if key is None or len(self.data.elements) != 2 or self.data.bits != 32:
            return None
        other = 1 - key.operand
        return other if self.data.elements[other].size <= 4 else None

    @property
    def _is_bare(self) -> bool:
        """Whether the keys are all there is."""
        return self.data.only is not None and len(self.data.elements) == 1

    @property
    def _has_numbers(self) -> bool:
        """Whether items are numbered, so that elements are read anew at the end."""
        return not self._is_bare and self._carried is None

    @property
    def _item(self) -> Type:
        return self.data.key_type if self._is_bare else type_of(f"i{2 * self.data.bits}")

    @property
    def _digits(self) -> int:
        return -(-self.data.key_bits // costs.RADIX_DIGITS[self.data.size >= costs.RADIX_WIDE])

    @property
    def _digit_bits(self) -> int:
        return -(-self.data.key_bits // self._digits)

    @property
    def _values(self) -> int:
        """Values of a digit."""
        return 1 << self._digit_bits

    @property
    def _buffer_bytes(self) -> int:
        """Bytes of a line's items."""
        return up(self.data.size * self._item.bytes, 64)

    def write(self) -> Routine:
        """Writes the functions; gives the phases."""
        if self.data.size >= costs.LONG_LINE and self.data.lines < self._segments:
            return self._split_lines()
        return self._whole_lines()

    def _items(self, memory: Pointer, offset: int = 0) -> Pointer:
        """Items from a byte of a memory on."""
        return (memory + offset).to(self._item, min(8, self._item.bytes))

    # -- whole lines, several to a chunk

    def _whole_lines(self) -> Routine:
        data = self.data
        per_chunk = lines_per_chunk(data.lines, data.size, costs.SORT_CHUNK)
        chunks = -(-data.lines // per_chunk)
        with self.module.function(f"{self.name}_lines", PHASE) as f:
            operands, results, scratch = data.table(f)
            histograms = f.local(I32, self._digits * self._values, 64)
            bounds = f.index(0), f.index(data.size)

            def count(item: Value) -> None:
                for digit in range(self._digits):
                    _increment(histograms[digit * self._values], self._digit(item, f.index(digit * self._digit_bits)))

            with each_chunk(f) as chunk:
                memory = scratch + chunk * (2 * self._buffer_bytes)
                buffer, other = self._items(memory), self._items(memory, self._buffer_bytes)
                with part(chunk, per_chunk, data.lines) as line:
                    source, target = (data.line(arrays, line) for arrays in (operands, results))
                    f.memset(histograms, 0, 4 * self._digits * self._values)
                    special, _ = self._make_items(source, buffer, bounds, count)
                    self._finish(self._sort_items(buffer, other, histograms), source, target, bounds)
                    if special is not None:
                        with f.when(special):
                            data.restore(f, source, target)
        return Routine((Phase(f.name, chunks),), chunks * 2 * self._buffer_bytes)

    def _sort_items(self, buffer: Pointer, other: Pointer, histograms: Pointer) -> Pointer:
        """Sorts a line's items by histograms of all digits; gives the buffer in which they end."""
        f = buffer.fn
        digits = While(f, [f.index(0), buffer, other])
        digit: Index = digits.values[0]
        source: Pointer = digits.values[1]
        target: Pointer = digits.values[2]
        digits.test(digit < self._digits)
        places, shift = histograms[digit * self._values], digit * self._digit_bits
        same = places[self._digit(source.load(), shift)].load()
        choice = IfElse(f, same.eq(self.data.size))
        choice.otherwise(source, target)
        self._sum_before(places)
        self._move(source, target, places, shift, (f.index(0), f.index(self.data.size)))
        buffers = choice.end(target, source)
        digits.again(digit + 1, *buffers)
        return source

    def _sum_before(self, histogram: Pointer, more: Pointer | None = None) -> None:
        """Makes places of a histogram: adds to each count those of lesser digits, in `more` if there is one."""
        f = histogram.fn
        with f.loop(0, self._values, carries=[f.constant(0, I32)]) as loop:
            place, before = histogram[loop.index], loop.carried[0]
            if more is None:
                own = place.load()
                place.store(before)
            else:
                place.store(place.load() + before)
                own = more[loop.index].load()
            loop.next = [before + own]

    # -- long lines, each in several segments

    @property
    def _segments(self) -> int:
        """Segments of a long line."""
        return min(costs.RADIX_SEGMENTS, 1 << (self.data.size // costs.RADIX_SEGMENT).bit_length() - 1)

    @property
    def _segment(self) -> int:
        return -(-self.data.size // self._segments)

    @property
    def _histograms_at(self) -> int:
        """The offset of a line's histograms, after both buffers; then come the current buffers, and flags."""
        return 2 * self._buffer_bytes

    @property
    def _current_at(self) -> int:
        return self._histograms_at + 4 * self._segments * self._values

    @property
    def _flags_at(self) -> int:
        return self._current_at + 64

    @property
    def _differences_at(self) -> int:
        """The offset of the bits, for each segment an i64, in which its keys differ from the line's first key."""
        return self._flags_at + 64

    @property
    def _line_bytes(self) -> int:
        return self._differences_at + 8 * self._segments

    def _split_lines(self) -> Routine:
        chunks = self.data.lines * self._segments
        self._write_counting()
        self._write_moving()
        phases = [Phase(self._write_first(), chunks)]
        for digit in range(self._digits):
            if digit:
                phases.append(Phase(self._write_step("counting", digit), chunks))
            phases.append(Phase(self._write_step("moving", digit), chunks))
        phases.append(Phase(self._write_last(), chunks))
        if self._has_special:
            phases.append(Phase(self._write_restoring(), self.data.lines))
        return Routine(tuple(phases), self.data.lines * self._line_bytes)

    def _write_first(self) -> str:
        """Makes the items and counts the first digit."""
        with self.module.function(f"{self.name}_items", PHASE) as f:
            operands, _, scratch = self.data.table(f)
            with each_chunk(f) as chunk:
                line, segment, bounds = self._segment_of(chunk)
                memory = scratch + line * self._line_bytes
                histogram = self._histogram(memory, segment)
                f.memset(histogram, 0, 4 * self._values)
                special, differences = self._make_items(
                    self.data.line(operands, line),
                    self._items(memory),
                    bounds,
                    lambda item: _increment(histogram, self._digit(item, f.index(0))),
                )
                (memory + self._differences_at).to(I64)[segment].store(differences)
                if special is not None:
                    (memory + self._flags_at)[segment].store(special.zext(8))
                with f.when(segment.eq(0)):
                    self._current(memory, f.index(0)).store(0)
        return f.name

    def _write_counting(self) -> None:
        """Counts a digit in the current items."""
        with self._digit_function("counting") as f:
            _, _, scratch = self.data.table(f)
            digit = f.index_argument("digit")
            shift = digit * self._digit_bits
            with each_chunk(f) as chunk:
                line, segment, (low, high) = self._segment_of(chunk)
                memory = scratch + line * self._line_bytes
                with f.when(self._differs(memory, shift)):
                    histogram = self._histogram(memory, segment)
                    f.memset(histogram, 0, 4 * self._values)
                    source, _ = self._buffers(memory, digit)
                    with f.loop(low, high) as loop:
                        _increment(histogram, self._digit(source[loop.index].load(), shift))

    def _write_moving(self) -> None:
        """Moves the items of a segment to where the histograms of all segments say."""
        with self._digit_function("moving") as f:
            _, _, scratch = self.data.table(f)
            totals, places = (f.local(I32, self._values, 64) for _ in range(2))
            digit = f.index_argument("digit")
            shift = digit * self._digit_bits
            with each_chunk(f) as chunk:
                line, segment, bounds = self._segment_of(chunk)
                memory = scratch + line * self._line_bytes
                differs = self._differs(memory, shift)
                with f.when(segment.eq(0)):
                    now = self._current(memory, digit).load()
                    self._current(memory, digit + 1).store(now ^ differs.zext(8))
                with f.when(differs):
                    self._sum_segments(memory, segment, places, totals)
                    self._sum_before(places, totals)
                    source, target = self._buffers(memory, digit)
                    self._move(source, target, places, shift, bounds)

    def _sum_segments(self, memory: Pointer, segment: Index, places: Pointer, totals: Pointer) -> None:
        """Adds up the histograms, in `places` of the segments before this one, in `totals` of all."""
        f = memory.fn
        with f.loop(0, self._values, _LANES) as values:

            def summed(low: Index, high: Index, total: Value) -> Value:
                with f.loop(low, high, carries=[total]) as loop:
                    row = self._histogram(memory, loop.index)[values.index]
                    loop.next = [loop.carried[0] + row.load(_LANES)]
                return loop.results[0]

            before = summed(f.index(0), segment, f.constant(0, I32.of(_LANES)))
            places[values.index].store(before)
            totals[values.index].store(summed(segment, f.index(self._segments), before))

    def _differs(self, memory: Pointer, shift: Index) -> Value:
        """Whether keys of the line differ in the digit."""
        bits = (memory + self._differences_at).to(I64).load(self._segments).reduce("or")
        return ((bits >> shift) & (self._values - 1)).ne(0)

    def _digit_function(self, what: str) -> AbstractContextManager[Function]:
        """The function of the phases of any digit."""
        return self.module.function(f"{self.name}_{what}", [*PHASE, (I64, "digit")], attributes="noinline")

    def _write_step(self, what: str, digit: int) -> str:
        """The phase of one digit."""
        with self.module.function(f"{self.name}_{what}{digit}", PHASE) as f:
            f.call(f"{self.name}_{what}", f.pointer("table"), *chunk_bounds(f), f.index(digit))
        return f.name

    def _write_last(self) -> str:
        """Writes the results."""
        with self.module.function(f"{self.name}_finish", PHASE) as f:
            operands, results, scratch = self.data.table(f)
            with each_chunk(f) as chunk:
                line, _, bounds = self._segment_of(chunk)
                items, _ = self._buffers(scratch + line * self._line_bytes, f.index(self._digits))
                source, target = (self.data.line(arrays, line) for arrays in (operands, results))
                self._finish(items, source, target, bounds)
        return f.name

    def _write_restoring(self) -> str:
        """Writes zeros and NaNs anew in lines that have some."""
        with self.module.function(f"{self.name}_restore", PHASE) as f:
            operands, results, scratch = self.data.table(f)
            with each_chunk(f) as line:
                flags = (scratch + line * self._line_bytes + self._flags_at).load(self._segments)
                with f.when(flags.reduce("or").ne(0)):
                    self.data.restore(f, self.data.line(operands, line), self.data.line(results, line))
        return f.name

    def _segment_of(self, chunk: Index) -> tuple[Index, Index, tuple[Index, Index]]:
        """(line, segment of it, the segment's bounds)."""
        line, segment = chunk // self._segments, chunk % self._segments
        low = segment * self._segment
        return line, segment, (low, (low + self._segment).smin(self.data.size))

    def _histogram(self, memory: Pointer, segment: Index) -> Pointer:
        return (memory + self._histograms_at).to(I32)[segment * self._values]

    def _current(self, memory: Pointer, digit: Index) -> Pointer:
        """The number of the buffer in which the items lie before they are moved by this digit."""
        return (memory + self._current_at).to(I8)[digit]

    def _buffers(self, memory: Pointer, digit: Index) -> tuple[Pointer, Pointer]:
        """(where the items lie, the other buffer)."""
        is_second = self._current(memory, digit).load().ne(0)
        first, second = self._items(memory), self._items(memory, self._buffer_bytes)
        return is_second.select(second, first), is_second.select(first, second)

    # -- items

    @property
    def _has_special(self) -> bool:
        """Whether there may be elements that cannot be made from their keys."""
        key = self.data.only
        return key is not None and key.map.merges and not self._has_numbers

    def _make_items(
        self, source: Sequence[Pointer], items: Pointer, bounds: tuple[Index, Index], count: Callable[[Value], object]
    ) -> tuple[Value | None, Value]:
        """Stores and counts the items of a line's elements.

        Gives whether some cannot be made from their keys (None: none), and the bits in which any key is not the first.
        """
        f, data = items.fn, self.data
        first, _ = data.key(source, 0)
        with f.loop(*bounds, carries=[f.constant(False, I1), f.constant(0, data.key_type)]) as loop:
            key, special = data.key(source, loop.index)
            item = (
                key if self._is_bare else key.zext(self._item.bits) | (self._payload(source, loop.index) << data.bits)
            )
            items[loop.index].store(item)
            count(item)
            some, differences = loop.carried
            if special is not None and self._has_special:
                some = some | special
            loop.next = [some, differences | (key ^ first)]
        some, differences = loop.results
        return some if self._has_special else None, differences.zext(64)

    def _payload(self, source: Sequence[Pointer], place: Index) -> Value:
        """The number or the element above the key, in the item's type."""
        if self._carried is None:
            return place.cast("zext", self._item.scalar)
        return self.data.elements_at(source, place)[self._carried].load().zext(self._item.bits)

    def _finish(
        self, items: Pointer, source: Sequence[Pointer], target: Sequence[Pointer], bounds: tuple[Index, Index]
    ) -> None:
        """Writes the elements of items between the bounds to the results."""
        f = items.fn
        with f.loop(*bounds) as loop:
            item = items[loop.index].load()
            goal = self.data.elements_at(target, loop.index)
            if self._has_numbers:
                number = f.index((item >> self.data.bits).trunc(64))
                copy(self.data.elements_at(source, number), goal)
            else:
                self._store_made(item, goal)

    def _store_made(self, item: Value, goal: Sequence[Pointer]) -> None:
        """Writes the elements that an item itself holds."""
        key = self.data.only
        assert key is not None
        goal[key.operand].store(key.map.element(item.trunc(key.map.bits)))
        if self._carried is not None:
            place = goal[self._carried]
            place.store((item >> self.data.bits).trunc(place.element.bits))

    def _move(
        self, source: Pointer, target: Pointer, places: Pointer, shift: Index, bounds: tuple[Index, Index]
    ) -> None:
        """Moves items to where the place of their digit says, which then counts on."""
        f = source.fn
        with f.loop(*bounds) as loop:
            item = source[loop.index].load()
            goal = _increment(places, self._digit(item, shift))
            target[f.index(goal.zext(64))].store(item)

    def _digit(self, item: Value, shift: Index) -> Index:
        """A digit. Above the key's last one there are zeros, not the payload."""
        key = item.trunc(self.data.bits).zext(64)
        return item.fn.index((key >> shift) & (self._values - 1))


def _increment(histogram: Pointer, digit: Index) -> Value:
    """Counts a digit; gives the count before."""
    place = histogram[digit]
    before = place.load()
    place.store(before + 1)
    return before
