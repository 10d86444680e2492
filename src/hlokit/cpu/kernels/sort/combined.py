"""What sorting by keys reads and writes: the combined key of an element, and the elements in their new order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu.kernels.flow import at
from hlokit.cpu.kernels.sort.comparators import Key, KeyOrder
from hlokit.cpu.kernels.sort.lines import Lines
from hlokit.cpu.llvm import Function, Module, While


@dataclass(frozen=True)
class KeyedLines(Lines):
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
    def only(self) -> Key | None:
        """The key, if its operand's elements can be made from it, but for zeros and NaNs that have one key."""
        key = self.order.keys[0]
        whole = len(self.order.keys) == 1 and key.component is None and not key.map.is_table
        return key if whole and len(self.elements) <= 2 else None

    def addresses(self, f: Function, lines: list[str], place: str) -> list[str]:
        """Of the element at a place of the line that the pointers show the beginning of."""
        index = f.let(f"mul i64 {place}, {self.inner}") if self.inner > 1 else place
        return [at(f, line, index, e.size) for line, e in zip(lines, self.elements, strict=True)]

    def key(self, f: Function, module: Module, lines: list[str], place: str) -> tuple[str, str]:
        """(the combined key of the element at a place, whether it is a zero or NaN that the key is not of, or "")."""
        combined, special = "", ""
        addresses = self.addresses(f, lines, place)
        for key in self.order.keys:
            address = addresses[key.operand]
            if key.component:
                address = f.let(f"getelementptr i8, ptr {address}, i64 {key.map.bits // 8}")
            raw = f.let(f"load i{key.map.bits}, ptr {address}, align {key.map.bits // 8}")
            mapped = key.map.write(f, module, raw)
            wide = f.let(f"zext i{key.map.bits} {mapped} to i{self.bits}") if key.map.bits < self.bits else mapped
            if combined:
                raised = f.let(f"shl i{self.bits} {combined}, {key.map.bits}")
                combined = f.let(f"or i{self.bits} {raised}, {wide}")
            else:
                combined = wide
            if self.only is not None and key.map.merges:
                special = key.map.is_special(f, raw)
        return combined, special

    def restore(self, f: Function, module: Module, source: list[str], target: list[str]) -> None:
        """Writes zeros and NaNs of `only`'s operand to its sorted result anew, in their order."""
        key = self.only
        assert key is not None
        element = self.elements[key.operand]
        zero, nan = key.map.merged_keys
        with f.loop("0", "2", carries=[("i64", "0")] * 2) as which:
            first = f.let(f"icmp eq i64 {which.index}, 0")
            sought = f.let(f"select i1 {first}, i{self.bits} {zero}, i{self.bits} {nan}")
            which.next = [which.carried[1], self._lower_bound(f, module, target, sought)]
        starts = which.results
        nowhere = f.alloca(element.moved)
        with f.loop("0", str(self.size), carries=[("i64", s) for s in starts]) as loop:
            raw = element.load(f, self.addresses(f, source, loop.index)[key.operand])
            found = key.map.merged(f, raw)
            place = f.let(f"select i1 {found[0]}, i64 {loop.carried[0]}, i64 {loop.carried[1]}")
            address = self.addresses(f, target, place)[key.operand]
            some = f.let(f"or i1 {found[0]}, {found[1]}")
            element.store(f, raw, f.let(f"select i1 {some}, ptr {address}, ptr {nowhere}"))
            loop.next = [
                f.let(f"add i64 {place}, {f.let(f'zext i1 {is_kind} to i64')}")
                for place, is_kind in zip(loop.carried, found, strict=True)
            ]

    def _lower_bound(self, f: Function, module: Module, target: list[str], key: str) -> str:
        """The place of the first element of the sorted line whose key is not below."""
        search = While(f, [("i64", "0"), ("i64", str(self.size))])
        low, high = search.values
        search.test(f.let(f"icmp slt i64 {low}, {high}"))
        middle = f.let(f"lshr i64 {f.let(f'add i64 {low}, {high}')}, 1")
        below = f.let(f"icmp ult i{self.bits} {self.key(f, module, target, middle)[0]}, {key}")
        above = f.let(f"add i64 {middle}, 1")
        search.again(
            f.let(f"select i1 {below}, i64 {above}, i64 {low}"), f.let(f"select i1 {below}, i64 {high}, i64 {middle}")
        )
        return low
