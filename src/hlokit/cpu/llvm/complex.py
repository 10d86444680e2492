"""Complex numbers in registers: a pair of values with operators."""

from __future__ import annotations

from hlokit.cpu.llvm.values import Value


class Complex:
    """real + i imag, in each lane."""

    __slots__ = ("imag", "real")

    def __init__(self, real: Value, imag: Value) -> None:
        self.real, self.imag = real, imag

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: Complex) -> Complex:
        """By its formula, infinities and NaN included."""
        real = self.real * other.real - self.imag * other.imag
        return Complex(real, self.real * other.imag + self.imag * other.real)

    def scaled(self, factor: Value | float) -> Complex:
        """Times a real number."""
        return Complex(self.real * factor, self.imag * factor)

    def plus_i(self, other: Complex) -> Complex:
        """self + i other."""
        return Complex(self.real - other.imag, self.imag + other.real)

    def minus_i(self, other: Complex) -> Complex:
        """self - i other."""
        return Complex(self.real + other.imag, self.imag - other.real)

    def conjugate(self) -> Complex:
        return Complex(self.real, -self.imag)

    def swapped(self) -> Complex:
        """imag + i real: i times the conjugate."""
        return Complex(self.imag, self.real)

    def reversed(self) -> Complex:
        """The last lane first."""
        return Complex(self.real.reversed(), self.imag.reversed())
