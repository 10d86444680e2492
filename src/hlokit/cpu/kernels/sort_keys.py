"""What sorting by keys reads and writes: the combined key of an element, and the elements in their new order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hlokit.cpu.kernels.comparators import Key, KeyOrder
from hlokit.cpu.kernels.flow import Element, at
from hlokit.cpu.llvm import Function, Module


@dataclass(frozen=True)
class KeyedLines:
    """`outer` x `size` x `inner` elements to be sorted along the middle, of all operands alike, by keys.

    All keys of an element make one unsigned integer of `bits` bits, 32 or 64.
    """

    order: KeyOrder
    elements: tuple[Element, ...]
    outer: int
    size: int
    inner: int

    @property
    def lines(self) -> int:
        return self.outer * self.inner

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

    def line_start(self, f: Function, line: str) -> str:
        """The number of a line's first element."""
        if self.inner == 1:
            return f.let(f"mul i64 {line}, {self.size}")
        whole, rest = f.let(f"sdiv i64 {line}, {self.inner}"), f.let(f"srem i64 {line}, {self.inner}")
        return f.let(f"add i64 {f.let(f'mul i64 {whole}, {self.size * self.inner}')}, {rest}")

    def addresses(self, f: Function, lines: list[str], place: str) -> list[str]:
        """Of the element at a place of the line that the pointers show the beginning of."""
        index = f.let(f"mul i64 {place}, {self.inner}") if self.inner > 1 else place
        return [at(f, line, index, e.size) for line, e in zip(lines, self.elements, strict=True)]

    def moved(self, f: Function, bases: list[str], start: str) -> list[str]:
        """Pointers to element number `start` of each operand."""
        return [at(f, base, start, e.size) for base, e in zip(bases, self.elements, strict=True)]

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
                nan = key.map.merged(f, raw)[1]
                negative_zero = f.let(f"icmp eq i{key.map.bits} {raw}, {1 << (key.map.bits - 1)}")
                special = f.let(f"or i1 {nan}, {negative_zero}")
        return combined, special

    def copy(self, f: Function, source: list[str], target: list[str]) -> None:
        """Moves an element of every operand from address to address."""
        for element, a, b in zip(self.elements, source, target, strict=True):
            element.store(f, element.load(f, a), b)
