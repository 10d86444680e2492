"""What vectors sort: items of 32 or 64 bits made from elements, and elements made from items.

An item is the key, and below it, if keys are not all there is, the element's number in the line. No two items with
numbers are equal, so the order of equal elements is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu.kernels.flow import Element, at
from hlokit.cpu.kernels.sort.combined import KeyedLines
from hlokit.cpu.kernels.sort.comparators import Key
from hlokit.cpu.kernels.sort.vector import VectorSort
from hlokit.cpu.llvm import I64, Function, Index, Module, Value, splat, vector

_SPECIAL = 0  # the flag of a line in which some keyed elements cannot be made from items; those of `_counted` follow
_FLAGS = 60


def number_bits(data: KeyedLines) -> int:
    """Of an element's number in the line."""
    return (data.size - 1).bit_length()


@dataclass(frozen=True)
class LineItems:
    """Code that makes items, and elements from them; whoever sorts or selects items builds on it.

    numbered  whether items have numbers; else the keys are all there is
    """

    name: str
    data: KeyedLines
    module: Module
    numbered: bool

    @property
    def _number_bits(self) -> int:
        return number_bits(self.data) if self.numbered else 0

    @property
    def _bits(self) -> int:
        """Of an item."""
        return 32 if self.data.key_bits + self._number_bits <= 32 else 64

    @property
    def _item(self) -> str:
        return f"i{self._bits}"

    @property
    def _longest(self) -> int:
        """The most items that are sorted at once."""
        return self.data.size

    @cached_property
    def _sorter(self) -> VectorSort:
        return VectorSort(f"{self.name}_items", self._bits, self._longest)

    @property
    def _lanes(self) -> int:
        """Elements that are made to items at once: in strided lines one."""
        return self._sorter.lanes if self.data.inner == 1 and self._is_plain else 1

    @property
    def _is_plain(self) -> bool:
        """Whether keys are elements as they lie in memory."""
        return all(key.component is None for key in self.data.order.keys)

    def _bytes(self, items: int) -> int:
        return -(-items * self._bits // 512) * 64

    def _end(self, f: Function, items: str, count: str) -> None:
        """Puts the greatest items after the last one."""
        place = at(f, items, count, self._bits // 8)
        size = self._sorter.overrun * self._bits // 8
        f.do(f"call void @llvm.memset.p0.i64(ptr align {self._bits // 8} {place}, i8 -1, i64 {size}, i1 false)")

    # -- items from elements

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
        if not self.numbered:
            return []
        return [
            k
            for k, e in enumerate(self.data.elements[:_FLAGS])
            if k not in self._keys_of and e.dtype.is_integral and e.dtype.bits in (32, 64)
        ]

    @property
    def _has_special(self) -> bool:
        """Whether there may be zeros or NaNs that cannot be made from bare keys."""
        return not self.numbered and self.data.order.keys[0].map.merges

    def _make_items(self, f: Function, source: list[str], items: str, bounds: tuple[str, str]) -> str:
        """Stores the items of a line's elements within the bounds; gives the flags, an i64."""
        lanes = self._lanes
        with f.loop(*bounds, lanes, carries=self._no_flags(lanes)) as loop:
            inside = self._inside(f, f.let(f"sub i64 {bounds[1]}, {loop.index}"), lanes)
            numbers = "" if not self.numbered else self._numbers(f, loop.index, lanes)
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

    def _is_special(self, f: Function, flags: str) -> str:
        """Whether some keyed elements cannot be made from items."""
        return self._flag(f, flags, _SPECIAL)

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
        return f.let(f"add {vector(self._item, lanes)} {self._spread(f, narrow)}, {f.lane_numbers(self._sorter.items)}")

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
            if not self.numbered or not self._keys_of[operand][0].map.merges:
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
        return str(self._sorter.inside(Index(f, I64, count))) if lanes > 1 else ""

    def _spread(self, f: Function, value: str) -> str:
        return str(Value(f, self._sorter.item, value).splat(self._sorter.lanes))

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

    def _write_make(self) -> None:
        """`_make_items` as a function."""
        names = [f"from{k}" for k in range(len(self.data.elements))]
        parameters = [*(("ptr", n) for n in names), ("ptr", "items"), ("i64", "low"), ("i64", "high")]
        f = Function(f"{self.name}_make", parameters, "i64", "noinline", shared="sort")
        f.do(f"ret i64 {self._make_items(f, [f'%{n}' for n in names], '%items', ('%low', '%high'))}")
        self.module.add(f)

    def _call_make(self, f: Function, source: list[str], items: str, bounds: tuple[str, str]) -> str:
        pointers = "".join(f"ptr {p}, " for p in (*source, items))
        return f.let(f"call i64 @{self.name}_make({pointers}i64 {bounds[0]}, i64 {bounds[1]})")

    def _memory(self, f: Function, base: str, offset: int) -> str:
        return f.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _done(self, f: Function) -> str:
        f.do("ret void")
        self.module.add(f)
        return f.name
