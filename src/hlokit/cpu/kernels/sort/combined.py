"""Lines that are sorted by keys: the combined key of an element, and zeros and NaNs in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu.kernels.sort.comparators import KeyOrder, SortKey
from hlokit.cpu.kernels.sort.lines import SortedLines
from hlokit.cpu.llvm import Function, Index, Pointer, Type, Value, While, type_of


@dataclass(frozen=True)
class KeyedLines(SortedLines):
    """Lines that are sorted by keys: those of an element make one unsigned integer of `bits` bits, 32 or 64."""

    order: KeyOrder

    @cached_property
    def key_bits(self) -> int:
        """Bits of the combined key that say something."""
        return sum(k.map.bits for k in self.order.keys)

    @property
    def bits(self) -> int:
        return 32 if self.key_bits <= 32 else 64

    @property
    def key_type(self) -> Type:
        """The type of combined keys."""
        return type_of(f"i{self.bits}")

    @cached_property
    def only(self) -> SortKey | None:
        """The key, if its operand's elements can be made from it, but for zeros and NaNs that have one key."""
        key = self.order.keys[0]
        whole = len(self.order.keys) == 1 and key.component is None and not key.map.is_table
        return key if whole and len(self.elements) <= 2 else None

    def key(self, line: Sequence[Pointer], place: Index | int) -> tuple[Value, Value | None]:
        """(the combined key of the element at a place, whether it is a zero or NaN that the key is not of, or None)."""
        combined, raw = self.combined(self.elements_at(line, place), self.bits)
        if self.only is None or not self.only.map.merges:
            return combined, None
        return combined, self.only.map.is_special(raw[self.only])

    def combined(
        self, elements: Sequence[Pointer], bits: int, inside: Value | None = None
    ) -> tuple[Value, dict[SortKey, Value]]:
        """(the combined keys as integers of `bits` bits, the parts of elements that each key is of).

        elements   an element of each operand; with a mask so many from there on
        """
        total: Value | None = None
        parts: dict[SortKey, Value] = {}
        for key in self.order.keys:
            first = elements[key.operand] + (key.component or 0) * (key.map.bits // 8)
            parts[key] = load_lanes(first.to(type_of(f"i{key.map.bits}")), inside)
            wide = key.map.key(parts[key]).zext(bits)
            total = wide if total is None else (total << key.map.bits) | wide
        assert total is not None
        return total, parts

    def restore(self, f: Function, source: Sequence[Pointer], target: Sequence[Pointer]) -> None:
        """Writes zeros and NaNs of `only`'s operand to its sorted result anew, in their order."""
        key = self.only
        assert key is not None
        zero, nan = (f.constant(number, self.key_type) for number in key.map.merged_keys)
        with f.loop(0, 2, carries=[f.index(0)] * 2) as which:
            sought = zero.where(which.index.eq(0), nan)
            which.next = [which.carried[1], self._lower_bound(f, target, sought)]
        nowhere = f.local(self.elements[key.operand].moved)
        with f.loop(0, self.size, carries=which.results) as loop:
            raw = self.elements_at(source, loop.index)[key.operand].load()
            is_zero, is_nan = key.map.merged(raw)
            zeros: Index = loop.carried[0]
            nans: Index = loop.carried[1]
            goal = self.elements_at(target, is_zero.select(zeros, nans))[key.operand]
            (is_zero | is_nan).select(goal, nowhere).store(raw)
            loop.next = [zeros + is_zero.zext(64), nans + is_nan.zext(64)]

    def _lower_bound(self, f: Function, line: Sequence[Pointer], key: Value) -> Index:
        """The place of the first element of the sorted line whose key is not below."""
        search = While(f, [f.index(0), f.index(self.size)])
        low, high = search.values
        search.test(low < high)
        middle: Index = (low + high) >> 1
        below = self.key(line, middle)[0].compare("ult", key)
        search.again((middle + 1).where(below, low), high.where(below, middle))
        return low


def load_lanes(first: Pointer, inside: Value | None) -> Value:
    """As many elements as the mask has lanes, where it is set; one without a mask."""
    return first.load(1 if inside is None else inside.lanes, inside)
