"""Sorting by keys, digit by digit from the least: counts of each digit, then every element to its place.

What moves is an item: the key below, above it what goes along, which is the other operand's element where that is all
there is and small, else the element's number in the line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlokit.cpu.kernels.flow import at, least
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.llvm import Function, Module, While, vector

_DIGITS = {False: 8, True: 11}  # bits at most; by whether lines are so long that passing over them costs most
_WIDE = 1 << 13  # elements of such lines
_LANES = 16  # counts in a vector
_CHUNK = 4096  # elements of short lines that make a chunk
_LONG = 1 << 15  # elements from which a line is worth several chunks
_SEGMENTS = 16  # that a long line is split into at most: each goes through the counts of all
_SEGMENT = 1 << 13  # elements that are worth a segment


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
    def _item_bits(self) -> int:
        return self.data.bits if self._is_bare else 2 * self.data.bits

    @property
    def _item(self) -> str:
        return f"i{self._item_bits}"

    @property
    def _item_bytes(self) -> int:
        return self._item_bits // 8

    @property
    def _align(self) -> int:
        return min(8, self._item_bytes)

    @property
    def _digits(self) -> int:
        return -(-self.data.key_bits // _DIGITS[self.data.size >= _WIDE])

    @property
    def _digit_bits(self) -> int:
        return -(-self.data.key_bits // self._digits)

    @property
    def _values(self) -> int:
        """Of a digit."""
        return 1 << self._digit_bits

    @property
    def _buffer_bytes(self) -> int:
        """Of a line's items."""
        return -(-self.data.size * self._item_bytes // 64) * 64

    def write(self) -> Routine:
        """Writes the functions; gives the phases."""
        if self.data.size >= _LONG and self.data.lines < self._segments:
            return self._split_lines()
        return self._whole_lines()

    # -- whole lines, several to a chunk

    def _whole_lines(self) -> Routine:
        data = self.data
        per_chunk = max(-(-data.lines // 64), min(data.lines, -(-_CHUNK // data.size)))
        chunks = -(-data.lines // per_chunk)
        f = Function(f"{self.name}_lines", PHASE)
        operands, results, scratch = self.data.table(f)
        counts = f.alloca("i32", self._digits * self._values)
        with f.loop("%begin", "%end") as chunk:
            buffer = at(f, scratch, chunk.index, 2 * self._buffer_bytes)
            other = f.let(f"getelementptr i8, ptr {buffer}, i64 {self._buffer_bytes}")
            low = f.let(f"mul i64 {chunk.index}, {per_chunk}")
            with f.loop(low, least(f, f.let(f"add i64 {low}, {per_chunk}"), str(data.lines))) as line:
                start = data.line_start(f, line.index)
                source, target = (data.moved(f, bases, start) for bases in (operands, results))
                self._clear(f, counts, self._digits * self._values)
                size = str(data.size)

                def count(item: str) -> None:
                    for digit in range(self._digits):
                        table = f.let(f"getelementptr i32, ptr {counts}, i64 {digit * self._values}")
                        self._count(f, table, self._digit(f, item, str(digit * self._digit_bits)))

                special, _ = self._make_items(f, source, buffer, ("0", size), count)
                sorted_items = self._sort_items(f, buffer, other, counts)
                self._finish(f, sorted_items, source, target, ("0", size))
                if special:
                    with f.when(special):
                        data.restore(f, self.module, source, target)
        self._done(f)
        return Routine((Phase(f.name, chunks),), chunks * 2 * self._buffer_bytes)

    def _sort_items(self, f: Function, buffer: str, other: str, counts: str) -> str:
        """Sorts a line's items by counts of all digits; gives the buffer in which they end."""
        digits = While(f, [("i64", "0"), ("ptr", buffer), ("ptr", other)])
        digit, source, target = digits.values
        digits.test(f.let(f"icmp slt i64 {digit}, {self._digits}"))
        table = at(f, counts, digit, 4 * self._values)
        shift = f.let(f"mul i64 {digit}, {self._digit_bits}")
        first = self._digit(f, f.let(f"load {self._item}, ptr {source}"), shift)
        same = f.let(f"load i32, ptr {at(f, table, first, 4)}")
        sort, skip, after = f.new_block("sort"), f.new_block("skip"), f.new_block("sorted")
        f.branch(f.let(f"icmp eq i32 {same}, {self.data.size}"), skip, sort)
        f.start(sort)
        with f.loop("0", str(self._values), carries=[("i32", "0")]) as loop:
            place = at(f, table, loop.index, 4)
            found = f.let(f"load i32, ptr {place}")
            f.do(f"store i32 {loop.carried[0]}, ptr {place}")
            loop.next = [f.let(f"add i32 {loop.carried[0]}, {found}")]
        self._deal(f, source, target, table, shift, ("0", str(self.data.size)))
        sort = f.block
        f.jump(after)
        f.start(skip)
        f.jump(after)
        f.start(after)
        current = f.let(f"phi ptr [ {target}, %{sort} ], [ {source}, %{skip} ]")
        free = f.let(f"phi ptr [ {source}, %{sort} ], [ {target}, %{skip} ]")
        digits.again(f.let(f"add i64 {digit}, 1"), current, free)
        return source

    # -- long lines, each in several segments

    @property
    def _segments(self) -> int:
        """Of a long line."""
        return min(_SEGMENTS, 1 << (self.data.size // _SEGMENT).bit_length() - 1)

    @property
    def _segment(self) -> int:
        return -(-self.data.size // self._segments)

    @property
    def _counts_at(self) -> int:
        """Where a line's counts begin, after both buffers; then which buffer is current at each digit, and flags."""
        return 2 * self._buffer_bytes

    @property
    def _current_at(self) -> int:
        return self._counts_at + 4 * self._segments * self._values

    @property
    def _flags_at(self) -> int:
        return self._current_at + 64

    @property
    def _differences_at(self) -> int:
        """For each segment the bits in which its keys differ from the line's first key, as i64."""
        return self._flags_at + 64

    @property
    def _line_bytes(self) -> int:
        return self._differences_at + 8 * self._segments

    def _split_lines(self) -> Routine:
        chunks = self.data.lines * self._segments
        self._write_counting()
        self._write_dealing()
        phases = [Phase(self._write_first(), chunks)]
        for digit in range(self._digits):
            if digit:
                phases.append(Phase(self._write_step("counting", digit), chunks))
            phases.append(Phase(self._write_step("dealing", digit), chunks))
        phases.append(Phase(self._write_last(), chunks))
        if self._has_special:
            phases.append(Phase(self._write_restoring(), self.data.lines))
        return Routine(tuple(phases), self.data.lines * self._line_bytes)

    def _write_first(self) -> str:
        """Makes the items and counts the first digit."""
        f = Function(f"{self.name}_items", PHASE)
        operands, _, scratch = self.data.table(f)
        with f.loop("%begin", "%end") as chunk:
            line, segment, bounds = self._chunk(f, chunk.index)
            memory = at(f, scratch, line, self._line_bytes)
            counts = self._segment_counts(f, memory, segment)
            self._clear(f, counts, self._values)
            source = self.data.moved(f, operands, self.data.line_start(f, line))
            special, differences = self._make_items(
                f, source, memory, bounds, lambda item: self._count(f, counts, self._digit(f, item, "0"))
            )
            place = f.let(f"getelementptr i8, ptr {memory}, i64 {self._differences_at}")
            f.do(f"store i64 {differences}, ptr {at(f, place, segment, 8)}")
            if special:
                flags = f.let(f"getelementptr i8, ptr {memory}, i64 {self._flags_at}")
                f.do(f"store i8 {f.let(f'zext i1 {special} to i8')}, ptr {at(f, flags, segment, 1)}")
            with f.when(f.let(f"icmp eq i64 {segment}, 0")):
                f.do(f"store i8 0, ptr {self._current(f, memory, '0')}")
        return self._done(f)

    def _write_counting(self) -> None:
        """Counts a digit in the current items."""
        f = Function(f"{self.name}_counting", [*PHASE, ("i64", "digit")], attributes="noinline")
        _, _, scratch = self.data.table(f)
        shift = f.let(f"mul i64 %digit, {self._digit_bits}")
        with f.loop("%begin", "%end") as chunk:
            line, segment, (low, high) = self._chunk(f, chunk.index)
            memory = at(f, scratch, line, self._line_bytes)
            with f.when(self._differs(f, memory, shift)):
                counts = self._segment_counts(f, memory, segment)
                self._clear(f, counts, self._values)
                source, _ = self._buffers(f, memory, "%digit")
                with f.loop(low, high) as loop:
                    item = f.let(f"load {self._item}, ptr {at(f, source, loop.index, self._item_bytes)}")
                    self._count(f, counts, self._digit(f, item, shift))
        self._done(f)

    def _write_dealing(self) -> None:
        """Puts the items of a segment where their digit's counts in all segments say."""
        f = Function(f"{self.name}_dealing", [*PHASE, ("i64", "digit")], attributes="noinline")
        _, _, scratch = self.data.table(f)
        totals, places = f.alloca("i32", self._values), f.alloca("i32", self._values)
        shift = f.let(f"mul i64 %digit, {self._digit_bits}")
        type = vector("i32", _LANES)
        with f.loop("%begin", "%end") as chunk:
            line, segment, bounds = self._chunk(f, chunk.index)
            memory = at(f, scratch, line, self._line_bytes)
            differs = self._differs(f, memory, shift)
            with f.when(f.let(f"icmp eq i64 {segment}, 0")):
                now = f.let(f"load i8, ptr {self._current(f, memory, '%digit')}")
                following = self._current(f, memory, f.let("add i64 %digit, 1"))
                moved = f.let(f"zext i1 {differs} to i8")
                f.do(f"store i8 {f.let(f'xor i8 {now}, {moved}')}, ptr {following}")
            with f.when(differs):
                counts = self._segment_counts(f, memory, "0")
                with f.loop("0", str(self._values), _LANES) as digit:

                    def summed(low: str, high: str, initial: str, digit: str = digit.index) -> str:
                        with f.loop(low, high, carries=[(type, initial)]) as loop:
                            row = at(f, at(f, counts, loop.index, 4 * self._values), digit, 4)
                            loop.next = [f.let(f"add {type} {loop.carried[0]}, {f.let(f'load {type}, ptr {row}')}")]
                        return loop.results[0]

                    before = summed("0", segment, "zeroinitializer")
                    f.do(f"store {type} {before}, ptr {at(f, places, digit.index, 4)}")
                    total = summed(segment, str(self._segments), before)
                    f.do(f"store {type} {total}, ptr {at(f, totals, digit.index, 4)}")
                with f.loop("0", str(self._values), carries=[("i32", "0")]) as loop:
                    place = at(f, places, loop.index, 4)
                    own = f.let(f"add i32 {f.let(f'load i32, ptr {place}')}, {loop.carried[0]}")
                    f.do(f"store i32 {own}, ptr {place}")
                    total = f.let(f"load i32, ptr {at(f, totals, loop.index, 4)}")
                    loop.next = [f.let(f"add i32 {loop.carried[0]}, {total}")]
                source, target = self._buffers(f, memory, "%digit")
                self._deal(f, source, target, places, shift, bounds)
        self._done(f)

    def _differs(self, f: Function, memory: str, shift: str) -> str:
        """Whether keys of the line differ in the digit."""
        type = vector("i64", self._segments)
        place = f.let(f"getelementptr i8, ptr {memory}, i64 {self._differences_at}")
        every = f.let(f"load {type}, ptr {place}")
        bits = f.let(f"call i64 @llvm.vector.reduce.or.v{self._segments}i64({type} {every})")
        digit = f.let(f"and i64 {f.let(f'lshr i64 {bits}, {shift}')}, {self._values - 1}")
        return f.let(f"icmp ne i64 {digit}, 0")

    def _write_step(self, what: str, digit: int) -> str:
        f = Function(f"{self.name}_{what}{digit}", PHASE)
        f.do(f"call void @{self.name}_{what}(ptr %table, i64 %begin, i64 %end, i64 {digit})")
        return self._done(f)

    def _write_last(self) -> str:
        f = Function(f"{self.name}_finish", PHASE)
        operands, results, scratch = self.data.table(f)
        with f.loop("%begin", "%end") as chunk:
            line, _, bounds = self._chunk(f, chunk.index)
            items, _ = self._buffers(f, at(f, scratch, line, self._line_bytes), str(self._digits))
            start = self.data.line_start(f, line)
            source, target = (self.data.moved(f, bases, start) for bases in (operands, results))
            self._finish(f, items, source, target, bounds)
        return self._done(f)

    def _write_restoring(self) -> str:
        f = Function(f"{self.name}_restore", PHASE)
        operands, results, scratch = self.data.table(f)
        with f.loop("%begin", "%end") as line:
            memory = at(f, scratch, line.index, self._line_bytes)
            place = f.let(f"getelementptr i8, ptr {memory}, i64 {self._flags_at}")
            flags = f.let(f"load <{self._segments} x i8>, ptr {place}")
            some = f.let(f"call i8 @llvm.vector.reduce.or.v{self._segments}i8(<{self._segments} x i8> {flags})")
            with f.when(f.let(f"icmp ne i8 {some}, 0")):
                start = self.data.line_start(f, line.index)
                source, target = (self.data.moved(f, bases, start) for bases in (operands, results))
                self.data.restore(f, self.module, source, target)
        return self._done(f)

    def _chunk(self, f: Function, chunk: str) -> tuple[str, str, tuple[str, str]]:
        """(line, segment of it, the segment's bounds)."""
        line, segment = f.let(f"udiv i64 {chunk}, {self._segments}"), f.let(f"urem i64 {chunk}, {self._segments}")
        low = f.let(f"mul i64 {segment}, {self._segment}")
        return line, segment, (low, least(f, f.let(f"add i64 {low}, {self._segment}"), str(self.data.size)))

    def _segment_counts(self, f: Function, memory: str, segment: str) -> str:
        return at(f, f.let(f"getelementptr i8, ptr {memory}, i64 {self._counts_at}"), segment, 4 * self._values)

    def _current(self, f: Function, memory: str, digit: str) -> str:
        """Address of the number of the buffer in which the items lie before this digit is dealt."""
        return at(f, f.let(f"getelementptr i8, ptr {memory}, i64 {self._current_at}"), digit, 1)

    def _buffers(self, f: Function, memory: str, digit: str) -> tuple[str, str]:
        """(where the items lie, the other buffer)."""
        second = f.let(f"icmp ne i8 {f.let(f'load i8, ptr {self._current(f, memory, digit)}')}, 0")
        other = f.let(f"getelementptr i8, ptr {memory}, i64 {self._buffer_bytes}")
        return (
            f.let(f"select i1 {second}, ptr {other}, ptr {memory}"),
            f.let(f"select i1 {second}, ptr {memory}, ptr {other}"),
        )

    # -- parts

    @property
    def _has_special(self) -> bool:
        """Whether there may be elements that cannot be made from their keys."""
        key = self.data.only
        return key is not None and key.map.merges and not self._has_numbers

    def _make_items(
        self, f: Function, source: list[str], buffer: str, bounds: tuple[str, str], count: Callable[[str], None]
    ) -> tuple[str, str]:
        """Stores and counts the items of a line's elements.

        Gives whether some cannot be made from their keys ("": none), and the bits in which keys differ from the first.
        """
        type = f"i{self.data.bits}"
        own, _ = self.data.key(f, self.module, source, "0")
        with f.loop(*bounds, carries=[("i1", "false"), (type, "0")]) as loop:
            key, special = self.data.key(f, self.module, source, loop.index)
            item = key
            if not self._is_bare:
                item = f.let(f"zext {type} {key} to {self._item}")
                raised = f.let(f"shl {self._item} {self._along(f, source, loop.index)}, {self.data.bits}")
                item = f.let(f"or {self._item} {item}, {raised}")
            f.do(f"store {self._item} {item}, ptr {at(f, buffer, loop.index, self._item_bytes)}, align {self._align}")
            count(item)
            differs = f.let(f"or {type} {loop.carried[1]}, {f.let(f'xor {type} {key}, {own}')}")
            loop.next = [f.let(f"or i1 {loop.carried[0]}, {special}") if self._has_special else "false", differs]
        some, differences = loop.results
        wide = f.let(f"zext {type} {differences} to i64") if self.data.bits < 64 else differences
        return some if self._has_special else "", wide

    def _along(self, f: Function, source: list[str], place: str) -> str:
        """What goes along with the key, in the item's type."""
        carried = self._carried
        if carried is None:
            return place if self._item_bits == 64 else f.let(f"zext i64 {place} to {self._item}")
        element = self.data.elements[carried]
        value = element.load(f, self.data.addresses(f, source, place)[carried])
        return f.let(f"zext {element.moved} {value} to {self._item}")

    def _finish(self, f: Function, items: str, source: list[str], target: list[str], bounds: tuple[str, str]) -> None:
        """Writes the elements of items between the bounds to the results."""
        with f.loop(*bounds) as loop:
            item = f.let(f"load {self._item}, ptr {at(f, items, loop.index, self._item_bytes)}, align {self._align}")
            goal = self.data.addresses(f, target, loop.index)
            if self._has_numbers:
                number = f.let(f"lshr {self._item} {item}, {self.data.bits}")
                if self._item_bits > 64:
                    number = f.let(f"trunc {self._item} {number} to i64")
                self.data.copy(f, self.data.addresses(f, source, number), goal)
            else:
                self._store_made(f, item, goal)

    def _store_made(self, f: Function, item: str, goal: list[str]) -> None:
        """Writes the elements that an item itself holds."""
        key = self.data.only
        assert key is not None
        small = self._item_bits > key.map.bits
        mapped = f.let(f"trunc {self._item} {item} to i{key.map.bits}") if small else item
        self.data.elements[key.operand].store(f, key.map.write_back(f, mapped), goal[key.operand])
        if self._carried is not None:
            element = self.data.elements[self._carried]
            along = f.let(f"lshr {self._item} {item}, {self.data.bits}")
            small = element.size < self._item_bits // 8
            value = f.let(f"trunc {self._item} {along} to {element.moved}") if small else along
            element.store(f, value, goal[self._carried])

    def _deal(self, f: Function, source: str, target: str, places: str, shift: str, bounds: tuple[str, str]) -> None:
        """Moves items to where the place of their digit says, which then counts on."""
        with f.loop(*bounds) as loop:
            item = f.let(f"load {self._item}, ptr {at(f, source, loop.index, self._item_bytes)}, align {self._align}")
            place = at(f, places, self._digit(f, item, shift), 4)
            goal = f.let(f"load i32, ptr {place}")
            f.do(f"store i32 {f.let(f'add i32 {goal}, 1')}, ptr {place}")
            wide = f.let(f"zext i32 {goal} to i64")
            f.do(f"store {self._item} {item}, ptr {at(f, target, wide, self._item_bytes)}, align {self._align}")

    def _digit(self, f: Function, item: str, shift: str) -> str:
        """A digit, as an i64. Above the key's last one there are zeros, not what goes along."""
        bits = self.data.bits
        key = f.let(f"trunc {self._item} {item} to i{bits}") if self._item_bits > bits else item
        wide = f.let(f"zext i32 {key} to i64") if bits == 32 else key
        return f.let(f"and i64 {f.let(f'lshr i64 {wide}, {shift}')}, {self._values - 1}")

    def _count(self, f: Function, counts: str, digit: str) -> None:
        place = at(f, counts, digit, 4)
        before = f.let(f"load i32, ptr {place}")
        f.do(f"store i32 {f.let(f'add i32 {before}, 1')}, ptr {place}")

    def _clear(self, f: Function, counts: str, count: int) -> None:
        f.do(f"call void @llvm.memset.p0.i64(ptr align 64 {counts}, i8 0, i64 {4 * count}, i1 false)")

    def _done(self, f: Function) -> str:
        f.do("ret void")
        self.module.add(f)
        return f.name
