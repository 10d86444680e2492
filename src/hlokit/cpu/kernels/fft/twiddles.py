"""Twiddle factors, the roots of unity: tables of them, and those of long transforms, made from small tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hlokit.cpu.kernels.fft.memory import Columns, Work, complex_array, load_splat
from hlokit.cpu.llvm import I8, I64, Complex, Function, Global, Index, Pointer, Type, Value

Numbers: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def roots(numbers: Numbers, n: int) -> np.ndarray:  # type: ignore[type-arg]
    """exp(-2 pi i numbers / n), each part rounded once, by reduction to the first eighth of the circle."""
    eighths = (8 * (numbers % n)) // n
    turned = (numbers % n) * 8 - eighths * n  # eighths of 1 / n
    odd = eighths % 2 == 1
    turned = np.where(odd, n - turned, turned)
    angle = turned * (math.pi / 4 / n)
    c, s = np.cos(angle), np.sin(angle)
    c, s = np.where(odd, s, c), np.where(odd, c, s)  # within a quarter
    quarter = eighths // 2
    real = np.choose(quarter, [c, -s, -c, s])
    imag = np.choose(quarter, [-s, -c, s, c])
    return real + 1j * imag


def table(f: Function, name: str, scalar: Type, values: np.ndarray) -> Pointer:  # type: ignore[type-arg]
    """A constant array of complex numbers; as bytes, which LLVM reads ten times faster than numbers."""
    kind = np.complex64 if scalar.bits == 32 else np.complex128
    data = np.ascontiguousarray(values, kind).tobytes()
    symbol = Global(f"{name}_{scalar}", I8, len(data), initial=data, constant=True, align=64)
    return complex_array(f.address(symbol), scalar)


@dataclass(frozen=True)
class TwiddleFactors:
    """exp(-2 pi i k (j + l) / n) for all k < n1 and lanes l, as products of two from tables made for each j.

    Each factor is itself a product of two numbers: of the steps and the parts of steps of the circle.
    """

    f: Function
    vector: Type
    n: int
    n1: int

    @property
    def _low(self) -> int:
        """The bits of k below."""
        return (self.n1.bit_length()) // 2

    @property
    def _counts(self) -> tuple[int, int]:
        return 1 << self._low, -(-self.n1 // (1 << self._low))

    def tables(self) -> Work:
        """Stack memory for both tables, one after the other."""
        return Work.local(self.f, self.vector, sum(self._counts))

    def prepare(self, tables: Work, j: Index, limit: int, step: int) -> None:
        """Fills the tables. Lanes are `step` apart; those at `limit` or above are junk."""
        lanes, first = self.vector.lanes, self._counts[0]
        places = j.splat(lanes) + self.f.vector_constant([step * lane for lane in range(lanes)], I64)
        places = places.smin(limit - 1)
        with self.f.loop(0, sum(self._counts)) as loop:
            k = (loop.index < first).select(loop.index, (loop.index - first) << self._low)
            tables.store(loop.index, self.powers(places * k.splat(lanes)))

    def at(self, tables: Work, k: Index) -> Complex:
        low = tables.load(k & ((1 << self._low) - 1))
        return tables.load((k >> self._low) + self._counts[0]) * low

    def one(self, k: Index) -> Complex:
        """exp(-2 pi i k / n), for k up to n."""
        (low, high), bits = self._tables(), self._bits
        fine = load_splat(low[k & ((1 << bits) - 1)], 1)
        return load_splat(high[k >> bits], 1) * fine

    def next(self, k: Index) -> Complex:
        """exp(-2 pi i (k + l) / n) for lanes l, where k is a multiple of their count."""
        (low, high), bits = self._tables(), self._bits
        fine = Columns(low, k & ((1 << bits) - 1), 0, self.vector.lanes).load(0)
        return load_splat(high[k >> bits], self.vector.lanes) * fine

    @property
    def _bits(self) -> int:
        """The bits of exponents below, in the tables of roots."""
        return max(4, self.n.bit_length() // 2)

    def _tables(self) -> tuple[Pointer, Pointer]:
        """Roots at steps of 1, and of all the bits below."""
        fine, coarse = np.arange(1 << self._bits), np.arange(0, self.n + 1, 1 << self._bits)
        head, scalar = f"roots_{self.n}", self.vector.element
        low = table(self.f, f"{head}_fine", scalar, roots(fine, self.n))
        return low, table(self.f, f"{head}_coarse", scalar, roots(coarse, self.n))

    def powers(self, exponents: Value) -> Complex:
        """exp(-2 pi i e / n) for e below n."""
        low, high = self._tables()
        fine = _gathered(low, exponents & ((1 << self._bits) - 1))
        return fine * _gathered(high, exponents >> self._bits)


def _gathered(array: Pointer, places: Value) -> Complex:
    """Numbers of an array."""
    scalar = array.element.element
    parts = (array, complex_array(array.to(scalar)[1], scalar))
    return Complex(*(part.elements(places).gather(otherwise="poison") for part in parts))
