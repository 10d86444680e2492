"""Roots of unity between the two halves of a long transform, made in machine code from small tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlokit.cpu.kernels.fft.lanes import Complex, Lanes, roots, table
from hlokit.cpu.kernels.fft.memory import Columns, load_column
from hlokit.cpu.llvm import Function, Module, vector


@dataclass(frozen=True)
class Weights:
    """exp(-2 pi i k (j + l) / n) for all k < n1 and lanes l, as products of two from tables made for each j.

    Each factor is itself a product of two numbers: of the steps and the parts of steps of the circle.
    """

    module: Module
    lanes: Lanes
    n: int
    n1: int

    @property
    def _low(self) -> int:
        """The bits of k below."""
        return (self.n1.bit_length()) // 2

    @property
    def _counts(self) -> tuple[int, int]:
        return 1 << self._low, -(-self.n1 // (1 << self._low))

    def memory(self, f: Function) -> str:
        """Stack memory for both tables, one after the other."""
        return f.alloca(self.lanes.type, 2 * sum(self._counts))

    def prepare(self, f: Function, memory: str, j: str, limit: int, step: int) -> None:
        """Fills the tables. Lanes are `step` apart; those at `limit` or above are junk."""
        type = vector("i64", self.lanes.count)
        numbers = ", ".join(f"i64 {step * i}" for i in range(self.lanes.count))
        one = f.let(f"insertelement {type} poison, i64 {j}, i64 0")
        every = f.let(f"shufflevector {type} {one}, {type} poison, <{self.lanes.count} x i32> zeroinitializer")
        places = f.let(f"add {type} {every}, <{numbers}>")
        last = f"splat (i64 {limit - 1})"
        places = f.let(f"call {type} @llvm.smin.v{self.lanes.count}i64({type} {places}, {type} {last})")
        first = self._counts[0]
        with f.loop("0", str(sum(self._counts))) as loop:
            is_first = f.let(f"icmp slt i64 {loop.index}, {first}")
            high = f.let(f"shl i64 {f.let(f'sub i64 {loop.index}, {first}')}, {self._low}")
            k = f.let(f"select i1 {is_first}, i64 {loop.index}, i64 {high}")
            one = f.let(f"insertelement {type} poison, i64 {k}, i64 0")
            all_k = f.let(f"shufflevector {type} {one}, {type} poison, <{self.lanes.count} x i32> zeroinitializer")
            self.lanes.store(f, self.powers(f, f.let(f"mul {type} {places}, {all_k}")), memory, loop.index)

    def at(self, f: Function, memory: str, k: str) -> Complex:
        low = self.lanes.load(f, memory, f.let(f"and i64 {k}, {(1 << self._low) - 1}"))
        place = f.let(f"add i64 {f.let(f'lshr i64 {k}, {self._low}')}, {self._counts[0]}")
        return self.lanes.mul(f, self.lanes.load(f, memory, place), low)

    def one(self, f: Function, k: str) -> Complex:
        """exp(-2 pi i k / n), for k (i64) up to n."""
        low, high, bits = *self._tables(), self._bits
        one = Lanes(self.lanes.scalar, 1)
        fine = one.load(f, low, f.let(f"and i64 {k}, {(1 << bits) - 1}"))
        return one.mul(f, one.load(f, high, f.let(f"lshr i64 {k}, {bits}")), fine)

    def next(self, f: Function, k: str) -> Complex:
        """exp(-2 pi i (k + l) / n) for lanes l, where k is a multiple of their count."""
        low, high, bits = *self._tables(), self._bits
        fine = load_column(f, self.lanes, Columns(low, f.let(f"and i64 {k}, {(1 << bits) - 1}"), 0), "0")
        place = f.let(f"shl i64 {f.let(f'lshr i64 {k}, {bits}')}, 1")
        coarse = self.lanes.spread(f, high, place), self.lanes.spread(f, high, f.let(f"add i64 {place}, 1"))
        return self.lanes.mul(f, coarse, fine)

    @property
    def _bits(self) -> int:
        """Of exponents below, in the tables of roots."""
        return max(4, self.n.bit_length() // 2)

    def _tables(self) -> tuple[str, str]:
        """Roots at steps of 1, and of all the bits below."""
        fine, coarse = np.arange(1 << self._bits), np.arange(0, self.n + 1, 1 << self._bits)
        head, scalar = f"roots_{self.lanes.scalar}_{self.n}", self.lanes.scalar
        low = table(self.module, f"{head}_fine", scalar, roots(fine, self.n))
        return low, table(self.module, f"{head}_coarse", scalar, roots(coarse, self.n))

    def powers(self, f: Function, exponents: str) -> Complex:
        """exp(-2 pi i e / n) for e below n."""
        type = vector("i64", self.lanes.count)
        bits, tables = self._bits, self._tables()
        low = f.let(f"and {type} {exponents}, splat (i64 {(1 << bits) - 1})")
        high = f.let(f"lshr {type} {exponents}, splat (i64 {bits})")
        first = self._gathered(f, tables[0], low)
        second = self._gathered(f, tables[1], high)
        return self.lanes.mul(f, first, second)

    def _gathered(self, f: Function, base: str, places: str) -> Complex:
        lanes = self.lanes
        type, pointers = vector("i64", lanes.count), vector("ptr", lanes.count)
        address = f.let(f"getelementptr [2 x {lanes.scalar}], ptr {base}, {type} {places}")
        second = f.let(f"getelementptr {lanes.scalar}, {pointers} {address}, i64 1")
        name = f"llvm.masked.gather.v{lanes.count}f{8 * lanes.scalar_bytes}.v{lanes.count}p0"
        rest = f"{vector('i1', lanes.count)} splat (i1 true), {lanes.type} poison"
        real, imag = (
            f.let(f"call {lanes.type} @{name}({pointers} align {lanes.scalar_bytes} {a}, {rest})")
            for a in (address, second)
        )
        return real, imag
