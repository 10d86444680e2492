"""Items that are sorted in vectors: integers of 32 or 64 bits made from elements, and elements made from them.

An item is the key, and below it, if keys are not all there is, the element's number in the line. No two items with
numbers are equal, so the order of equal elements is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu.kernels.sort.combined import KeyedLines, load_lanes
from hlokit.cpu.kernels.sort.comparators import SortKey
from hlokit.cpu.kernels.sort.vector import VectorSort
from hlokit.cpu.llvm import I64, POINTER, Function, IfElse, Index, Module, Pointer, Type, Value, type_of

_SPECIAL = 0  # the flag of a line in which some keyed elements cannot be made from items; those of `_counted` follow
_FLAGS = 60


def number_bits(data: KeyedLines) -> int:
    """Bits of an element's number in the line."""
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
        """Bits of an item."""
        return 32 if self.data.key_bits + self._number_bits <= 32 else 64

    @property
    def _item(self) -> Type:
        return type_of(f"i{self._bits}")

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

    def _end(self, items: Pointer, count: Index | int) -> None:
        """Puts the greatest items after the last one."""
        items.fn.memset(items[count], -1, self._sorter.overrun * self._item.bytes)

    # -- items from elements

    @cached_property
    def _keys_of(self) -> dict[int, tuple[SortKey, int]]:
        """The key of each operand that can be made from items, and the bits of the item below it."""
        below, found = self._number_bits, dict[int, tuple[SortKey, int]]()
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

    def _make_items(self, source: Sequence[Pointer], items: Pointer, low: Index, high: Index) -> Value:
        """Stores the items of elements low to high of a line; gives the flags, an i64."""
        f, lanes = items.fn, self._lanes
        with f.loop(low, high, lanes, carries=self._no_flags(f, lanes)) as loop:
            inside = self._inside(high - loop.index, lanes)
            numbers = self._numbers(loop.index, lanes) if self.numbered else None
            item, flags = self._make(self.data.elements_at(source, loop.index), numbers, inside)
            items[loop.index].store(item, inside)
            loop.next = self._flagged(loop.carried, flags, inside)
        return self._flag_bits(f, loop.results)

    def _no_flags(self, f: Function, lanes: int) -> list[Value]:
        """The initial flags of a loop that makes items: each a bit for each lane."""
        merging = any(key.map.merges for key, _ in self._keys_of.values())
        return [f.constant(0, type_of(f"i{lanes}"))] * (merging + len(self._counted))

    def _flagged(self, before: Sequence[Value], flags: Sequence[Value], inside: Value | None) -> list[Value]:
        if inside is not None:
            flags = [(flag & inside).bitcast(type_of(f"i{inside.lanes}")) for flag in flags]
        return [a | b for a, b in zip(before, flags, strict=True)]

    def _flag_bits(self, f: Function, flags: Sequence[Value]) -> Value:
        """All flags as an i64."""
        found, first = f.constant(0, I64), _SPECIAL + 1 + len(self._counted) - len(flags)
        for bit, lanes_set in enumerate(flags, first):
            found = found | (lanes_set.ne(0).zext(64) << bit)
        return found

    def _is_special(self, flags: Value) -> Value:
        """Whether some keyed elements cannot be made from items."""
        return _flag(flags, _SPECIAL)

    def _make(
        self, elements: Sequence[Pointer], numbers: Value | None, inside: Value | None
    ) -> tuple[Value, list[Value]]:
        """(the items of the elements that lie there, flags of them)."""
        combined, parts = self.data.combined(elements, self._bits, inside)
        special: Value | None = None
        for key, raw in parts.items():
            if key.map.merges and key.operand in self._keys_of:
                own = key.map.is_special(raw)
                special = own if special is None else special | own
        flags = [special] if special is not None else []
        if numbers is None:
            return combined, flags
        for k in self._counted:
            flags.append(load_lanes(elements[k], inside).ne(numbers.zext_or_trunc(self.data.elements[k].dtype.bits)))
        return (combined << self._number_bits) | numbers, flags

    def _numbers(self, place: Index, lanes: int) -> Value:
        """The numbers of elements from a place on."""
        narrow = place.trunc(self._bits).splat(lanes)
        return narrow + place.fn.lane_numbers(self._sorter.items) if lanes > 1 else narrow

    # -- elements from items

    def _finish(
        self, items: Pointer, count: Index, source: Sequence[Pointer], target: Sequence[Pointer], flags: Value
    ) -> None:
        """Writes the elements of so many items to the results from `target` on."""
        for k in range(len(self.data.elements)):
            self._fetch_or_make(
                k,
                flags,
                lambda k=k: self._fetch(items, count, source[k], target[k]),
                lambda k=k: self._make_elements(items, count, k, target[k]),
            )

    def _fetch_or_make(self, operand: int, flags: Value, fetch: Callable[[], None], make: Callable[[], None]) -> None:
        """Writes the code that fetches an operand's elements by numbers, or that makes them: both if flags tell."""
        bit: int | None = None
        if operand in self._keys_of:
            if self.numbered and self._keys_of[operand][0].map.merges:
                bit = _SPECIAL
        elif operand in self._counted:
            bit = _SPECIAL + 1 + self._counted.index(operand)
        if bit is None:
            (make if operand in self._keys_of else fetch)()
            return
        choice = IfElse(flags.fn, _flag(flags, bit))
        fetch()
        choice.otherwise()
        make()
        choice.end()

    def _fetch(self, items: Pointer, count: Index, source: Pointer, target: Pointer) -> None:
        """Copies the elements that have the items' numbers."""
        f, inner = items.fn, self.data.inner
        with f.loop(0, count) as loop:
            number = f.index(self._number(items[loop.index].load()).zext(64))
            target[loop.index * inner].store(source[number * inner].load())

    def _make_elements(self, items: Pointer, count: Index, operand: int, target: Pointer) -> None:
        """Makes an operand's elements from the items."""
        lanes = self._sorter.lanes if self.data.inner == 1 else 1
        with items.fn.loop(0, count, lanes) as loop:
            inside = self._inside(count - loop.index, lanes)
            item = load_lanes(items[loop.index], inside)
            target[loop.index * self.data.inner].store(self._element(item, operand), inside)

    def _element(self, item: Value, operand: int) -> Value:
        """An operand's elements of items."""
        if operand not in self._keys_of:
            return self._number(item).zext_or_trunc(self.data.elements[operand].dtype.bits)
        key, below = self._keys_of[operand]
        return key.map.element((item >> below if below else item).trunc(key.map.bits))

    def _number(self, item: Value) -> Value:
        return item & ((1 << self._number_bits) - 1)

    def _inside(self, count: Index, lanes: int) -> Value | None:
        """Mask of the first `count` lanes; None for one lane."""
        return self._sorter.inside(count) if lanes > 1 else None

    # -- functions

    def _items(self, memory: Pointer, offset: int = 0) -> Pointer:
        """Items from a byte of a memory on."""
        return (memory + offset).to(self._item)

    def _write_make(self) -> None:
        """`_make_items` as a function."""
        names = [f"from{k}" for k in range(len(self.data.elements))]
        parameters = [*((POINTER, n) for n in [*names, "items"]), (I64, "low"), (I64, "high")]
        with self.module.function(f"{self.name}_make", parameters, I64, "noinline", shared="sort") as f:
            source = self.data.arrays([f.pointer(name) for name in names])
            bounds = f.index_argument("low"), f.index_argument("high")
            f.returns(self._make_items(source, f.pointer("items", self._item), *bounds))

    def _call_make(self, source: Sequence[Pointer], items: Pointer, low: Index, high: Index) -> Value:
        return items.fn.call_for(I64, f"{self.name}_make", *source, items, low, high)


def _flag(flags: Value, bit: int) -> Value:
    return (flags & (1 << bit)).ne(0)
