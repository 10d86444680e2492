"""Complex numbers in registers: a pair of values with operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlokit.cpu.llvm.values import Value


@dataclass(frozen=True, slots=True)
class Complex:
    """real + i imag, in each lane."""

    real: Value
    imag: Value

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

    def map(self, function: Callable[[Value], Value]) -> Complex:
        """The function of both parts."""
        return Complex(function(self.real), function(self.imag))
