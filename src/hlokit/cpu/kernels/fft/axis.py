"""The axis of a transform: sizes, arrays that are read and written, and the inverse by swapping parts."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.llvm import Complex, Function, Pointer


@dataclass(frozen=True)
class Place:
    """An array: its number in the table, and the byte at which it begins."""

    number: int
    offset: int = 0

    def pointer(self, f: Function) -> Pointer:
        return f.table(self.number) + self.offset


@dataclass(frozen=True)
class TransformAxis:
    """Transforms along the middle of outer x n x inner complex numbers.

    swapped    whether real and imaginary parts are swapped in loading, and in storing: what makes the inverse of the
               forward transform
    factor     by which results are multiplied
    """

    outer: int
    n: int
    inner: int
    source: Place
    target: Place
    swapped: tuple[bool, bool] = (False, False)
    factor: float = 1.0

    def loaded(self, value: Complex) -> Complex:
        """An element as the forward transform takes it."""
        return value.swapped() if self.swapped[0] else value

    def stored(self, value: Complex) -> Complex:
        """A result as it is stored."""
        scaled = value.scaled(self.factor) if self.factor != 1.0 else value
        return scaled.swapped() if self.swapped[1] else scaled
