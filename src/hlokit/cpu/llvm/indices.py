"""Integers that count: their sums and products never overflow, and adding 0 or multiplying by 1 writes no code."""

from __future__ import annotations

from hlokit.cpu.llvm.references import MARK
from hlokit.cpu.llvm.types import I64
from hlokit.cpu.llvm.values import Value, variable


class Index(Value):
    """An i64 that counts elements or bytes and never overflows. Sums with 0 and products with 0 or 1 cost nothing.

    Or a vector of integers of which the same holds.
    """

    __slots__ = ()

    def named(self, text: str) -> Index:
        return Index(self.fn, self.type, text)

    def chosen(self, name: str, otherwise: Value | float | None) -> Value:
        return self.named(name) if isinstance(otherwise, (Index, int)) else super().chosen(name, otherwise)

    def _made(self, instruction: str, other: Value | float) -> Index:
        fn, type = self.fn, self.type
        if type is I64:
            first = self.text if self.number is None else variable(self)
            second = variable(other) if isinstance(other, Value) else f"{MARK}{int(other)}{MARK}"
        else:
            first, second = self.text, self.operand(other)
        fn.count = count = fn.count + 1
        name = f"%v{count}"
        fn.lines.append(f"  {name} = {instruction} nsw {type.text} {first}, {second}")
        return Index(fn, type, name)

    def wrapping(self) -> Value:
        """The number as data, whose arithmetic is modulo 2^n."""
        return Value(self.fn, self.type, self.text, self.number)

    def __add__(self, other: Value | float) -> Index:
        if is_number(other, 0):
            return self
        return self.fn.index(other) if self.number == 0 else self._made("add", other)

    def __sub__(self, other: Value | float) -> Index:
        return self if is_number(other, 0) else self._made("sub", other)

    def __mul__(self, other: Value | float) -> Index:
        if self.number == 0 or is_number(other, 1):
            return self
        return self.fn.index(0) if is_number(other, 0) else self._made("mul", other)

    def __radd__(self, other: float) -> Index:
        return self.fn.index(other) + self

    def __rsub__(self, other: float) -> Index:
        return self.fn.index(other) - self

    def __rmul__(self, other: float) -> Index:
        return self.fn.index(other) * self

    def first_lanes(self, lanes: int, bits: int = 32) -> Value:
        """The mask of the first so many of `lanes` lanes, numbered in integers of so many bits."""
        count = self.trunc(bits).splat(lanes)
        return self.fn.lane_numbers(count.type) < count

    def least(self, other: Index | int) -> Index:
        """The less of both, by a select: LLVM's code generation at level 0 is slow at smin."""
        other = self.fn.index(other)
        if self.number is not None and other.number is not None:
            return self if self.number <= other.number else other
        return self.fn.index((self < other).select(self, other))

    def greatest(self, other: Index | int) -> Index:
        """The greater of both, as `least`."""
        other = self.fn.index(other)
        if self.number is not None and other.number is not None:
            return self if self.number >= other.number else other
        return self.fn.index((self > other).select(self, other))

    def smin(self, other: Value | int) -> Index:
        return self.fn.index(super().smin(other))

    def smax(self, other: Value | int) -> Index:
        return self.fn.index(super().smax(other))

    def __and__(self, other: Value | int) -> Index:
        return self.fn.index(super().__and__(other))

    def __or__(self, other: Value | int) -> Index:
        return self.fn.index(super().__or__(other))

    def __lshift__(self, other: Value | int) -> Index:
        return self.fn.index(super().__lshift__(other))

    def __rshift__(self, other: Value | int) -> Index:
        return self.fn.index(super().__rshift__(other))

    def __floordiv__(self, other: Value | int) -> Index:
        return self if is_number(other, 1) else self.fn.index(super().__floordiv__(other))

    def __mod__(self, other: Value | int) -> Index:
        return self.fn.index(0) if is_number(other, 1) else self.fn.index(super().__mod__(other))


def is_number(value: Value | float, number: int) -> bool:
    """Whether it is this constant."""
    return (value.number if isinstance(value, Value) else value) == number
