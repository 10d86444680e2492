"""Transforms from and to real sequences: those of even length are half as many complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from hlokit.cpu.kernels.fft.along import Along
from hlokit.cpu.kernels.fft.axis import Axis, Place
from hlokit.cpu.kernels.fft.lanes import Complex, Lanes, roots, swapped, table, work_size, write_core
from hlokit.cpu.kernels.fft.memory import (
    Columns,
    load_column,
    load_real_rows,
    load_rows,
    store_column,
    store_real_rows,
    store_rows,
)
from hlokit.cpu.kernels.fft.phases import CHUNK
from hlokit.cpu.kernels.fft.weights import Weights
from hlokit.cpu.kernels.flow import least
from hlokit.cpu.kernels.routine import PHASE, Phase
from hlokit.cpu.llvm import Function

OPERAND, RESULT = Place(0), Place(1)


def packed(n: int) -> int:
    """Elements of the complex sequence for a real one of n."""
    return n // 2 if n % 2 == 0 else n


def _unpacked(f: Function, lanes: Lanes, z: Complex, y: Complex, root: Complex) -> Complex:
    """X_k = E_k + w^k O_k, for elements k and half - k of the transform of E + i O: of even and odd places."""
    even = lanes.do(f, "fadd", z[0], y[0]), lanes.do(f, "fsub", z[1], y[1])
    odd = lanes.do(f, "fadd", z[1], y[1]), lanes.do(f, "fsub", y[0], z[0])
    return lanes.scale(f, lanes.add(f, even, lanes.mul(f, odd, root)), 0.5)


def _repacked(f: Function, lanes: Lanes, z: Complex, y: Complex, root: Complex) -> Complex:
    """Twice E + i O from X: what `_unpacked` undoes."""
    even = lanes.do(f, "fadd", z[0], y[0]), lanes.do(f, "fsub", z[1], y[1])
    odd = lanes.do(f, "fsub", z[0], y[0]), lanes.do(f, "fadd", z[1], y[1])
    turned = lanes.mul(f, odd, (root[0], f.let(f"fneg {lanes.type} {root[1]}")))
    return lanes.do(f, "fsub", even[0], turned[1]), lanes.do(f, "fadd", even[1], turned[0])


_Combined: TypeAlias = Callable[[Function, Lanes, Complex, Complex, Complex], Complex]


class Real(Along):
    """Adds the phases of transforms of real sequences."""

    def _real_to_complex(self, outer: int, n: int) -> None:
        half = packed(n)
        if work_size(half) is None or self._are_few(outer, half):
            (self._real_to_complex_whole if n % 2 else self._real_to_complex_long)(outer, n)
            return
        f, work = self._begin(half)
        lanes, count = self.lanes, n // 2 + 1
        core = write_core(self.module, lanes, half)
        source, target = OPERAND.pointer(f), RESULT.pointer(f)
        groups = self._groups(outer, 1)
        with self._each(f, groups, n) as group:
            first = f.let(f"mul i64 {group.index}, {lanes.count}")
            rows = self._rows(f, source, first, outer, n, scalars=1)
            if n % 2:
                zero = lanes.constant(0.0)
                load_real_rows(f, lanes, rows, n, lambda k, value: lanes.store(f, (value, zero), work[0], k))
            else:
                load_rows(f, lanes, rows, half, work[0])
            done = self._transform(f, core, work)
            rows = self._rows(f, target, first, outer, count)
            get = self._get_rows(f, done, False, 1.0) if n % 2 else self._unpacked(f, done, n)
            store_rows(f, lanes, rows, count, get)
        self._end(f, groups, n)

    def _unpacked(self, f: Function, done: str, n: int) -> Callable[[Lanes, str, str], Complex]:
        """Element k of the real sequences' transforms from those in buffer `done`."""
        half = n // 2
        self.lanes.store(f, self.lanes.load(f, done, "0"), done, str(half))
        weights = self._unpacking_roots(n)

        def get(lanes: Lanes, first: str, k: str) -> Complex:
            base = f.let(f"getelementptr {lanes.scalar}, ptr {done}, i64 {first}")
            z, y = lanes.load(f, base, k), lanes.load(f, base, f.let(f"sub i64 {half}, {k}"))
            return _unpacked(f, lanes, z, y, self._root(f, lanes, weights, k))

        return get

    def _complex_to_real(self, outer: int, n: int, given: int, source_place: Place) -> None:
        half = packed(n)
        if work_size(half) is None or self._are_few(outer, half):
            way = self._complex_to_real_whole if n % 2 else self._complex_to_real_long
            way(outer, n, given, source_place)
            return
        f, work = self._begin(half)
        lanes, factor = self.lanes, 1 / self.total
        core = write_core(self.module, lanes, half)
        source, target = source_place.pointer(f), RESULT.pointer(f)
        groups = self._groups(outer, 1)
        with self._each(f, groups, n) as group:
            first = f.let(f"mul i64 {group.index}, {lanes.count}")
            rows = self._rows(f, source, first, outer, given)
            load_rows(f, lanes, rows, n // 2 + 1, work[1])
            self._without_imaginary(f, work[1], "0")
            if n % 2:
                self._mirror(f, work, n)
            else:
                self._without_imaginary(f, work[1], str(half))
                self._pack(f, work, n)
            done = self._transform(f, core, work)
            rows = self._rows(f, target, first, outer, n, scalars=1)
            if n % 2:
                store_real_rows(f, lanes, rows, n, lambda k: self._get(f, done, True, factor)(k)[0])
            else:
                store_rows(f, lanes, rows, half, self._get_rows(f, done, True, factor))
        self._end(f, groups, n)

    def _without_imaginary(self, f: Function, buffer: str, k: str) -> None:
        real, _ = self.lanes.load(f, buffer, k)
        self.lanes.store(f, (real, self.lanes.constant(0.0)), buffer, k)

    def _mirror(self, f: Function, work: tuple[str, str], n: int) -> None:
        """The whole sequence from its first half, parts swapped."""
        lanes = self.lanes
        real, imag = lanes.load(f, work[1], "0")
        lanes.store(f, (imag, real), work[0], "0")
        with f.loop("1", str(n // 2 + 1)) as loop:
            real, imag = lanes.load(f, work[1], loop.index)
            lanes.store(f, (imag, real), work[0], loop.index)
            flipped = f.let(f"fneg {lanes.type} {imag}")
            lanes.store(f, (flipped, real), work[0], f.let(f"sub i64 {n}, {loop.index}"))

    def _pack(self, f: Function, work: tuple[str, str], n: int) -> None:
        """Twice E + i O from X, parts swapped: what `_unpacked` undoes."""
        lanes, half = self.lanes, n // 2
        weights = self._unpacking_roots(n)
        with f.loop("0", str(half)) as loop:
            z = lanes.load(f, work[1], loop.index)
            y = lanes.load(f, work[1], f.let(f"sub i64 {half}, {loop.index}"))
            own = _repacked(f, lanes, z, y, self._root(f, lanes, weights, loop.index))
            lanes.store(f, swapped(own), work[0], loop.index)

    def _unpacking_roots(self, n: int) -> str:
        name = f"roots_{self.lanes.scalar}_real_{n}"
        return table(self.module, name, self.lanes.scalar, roots(np.arange(n // 2 + 1), n))

    def _root(self, f: Function, lanes: Lanes, weights: str, k: str) -> Complex:
        place = f.let(f"shl i64 {k}, 1")
        return lanes.spread(f, weights, place), lanes.spread(f, weights, f.let(f"add i64 {place}, 1"))

    def _real_to_complex_long(self, outer: int, n: int) -> None:
        half, done = n // 2, self._taken(outer * (n // 2))
        self._along(Axis(outer, half, 1, OPERAND, done))
        self._pairs(outer, half, (done, half), (RESULT, half + 1), _unpacked)

    def _complex_to_real_long(self, outer: int, n: int, given: int, source: Place) -> None:
        half, packed = n // 2, self._taken(outer * (n // 2))
        self._pairs(outer, half, (source, given), (packed, half), _repacked)
        self._along(Axis(outer, half, 1, packed, RESULT, (True, True), 1 / self.total))

    def _pairs(
        self, outer: int, half: int, source: tuple[Place, int], target: tuple[Place, int], combined: _Combined
    ) -> None:
        """A phase: combined(x[k], x[half - k], exp(-pi i k / half)) in each row. Source and target are a place and the
        length of its rows.

        A packed row has no element `half`: it is element 0. Of spectra both ends are real.
        """
        f = Function(f"{self.name}_{len(self.phases)}", PHASE)
        lanes, count, spectra = self.lanes, target[1], combined is _repacked
        width, per_row = lanes.count, -(-count // CHUNK)
        arrays = source[0].pointer(f), target[0].pointer(f)
        weights = Weights(self.module, lanes, 2 * half, half)
        one = Lanes(lanes.scalar, 1)
        with f.loop("%begin", "%end") as chunk:
            row, part = f.let(f"udiv i64 {chunk.index}, {per_row}"), f.let(f"urem i64 {chunk.index}, {per_row}")
            given, taken = (
                self._element(f, array, f.let(f"mul i64 {row}, {length}"))
                for array, length in zip(arrays, (source[1], target[1]), strict=True)
            )
            low = f.let(f"mul i64 {part}, {CHUNK}")
            high = least(f, f.let(f"add i64 {low}, {CHUNK}"), str(count))
            # all lanes of a vector, and what goes with them, lie inside of the row
            inner = f.let(f"call i64 @llvm.smax.i64(i64 {low}, i64 {width})")
            last = f.let(f"call i64 @llvm.smax.i64(i64 {inner}, i64 {least(f, high, str(half - half % width))})")

            def single(k: str) -> None:
                z = one.load(f, given, k if spectra else f.let(f"urem i64 {k}, {half}"))
                back = f.let(f"sub i64 {half}, {k}")
                y = one.load(f, given, back if spectra else f.let(f"urem i64 {back}, {half}"))
                if spectra:
                    at_end = f.let(f"icmp eq i64 {f.let(f'urem i64 {k}, {half}')}, 0")
                    z, y = (
                        (real, f.let(f"select i1 {at_end}, {lanes.scalar} 0.0, {lanes.scalar} {imag}"))
                        for real, imag in (z, y)
                    )
                one.store(f, combined(f, one, z, y, weights.one(f, k)), taken, k)

            with f.loop(low, least(f, inner, high)) as loop:
                single(loop.index)
            with f.loop(inner, last, width) as loop:
                k = loop.index
                back = f.let(f"sub i64 {half - width + 1}, {k}")
                z = load_column(f, lanes, Columns(given, k, 0), "0")
                y = lanes.reverse(f, load_column(f, lanes, Columns(given, back, 0), "0"))
                value = combined(f, lanes, z, y, weights.next(f, k))
                store_column(f, lanes, Columns(taken, k, 0), "0", value)
            with f.loop(last, high) as loop:
                single(loop.index)
        f.do("ret void")
        self.module.add(f)
        self.phases.append(Phase(f.name, outer * per_row))

    def _real_to_complex_whole(self, outer: int, n: int) -> None:
        """By way of complex numbers."""
        wide, done = self._taken(outer * n), self._taken(outer * n)
        scalar, count = self.lanes.scalar, n // 2 + 1

        def widen(f: Function, index: str) -> None:
            place = f.let(f"getelementptr {scalar}, ptr {OPERAND.pointer(f)}, i64 {index}")
            goal = self._element(f, wide.pointer(f), index)
            f.do(f"store {scalar} {f.let(f'load {scalar}, ptr {place}')}, ptr {goal}")
            f.do(f"store {scalar} 0.0, ptr {f.let(f'getelementptr {scalar}, ptr {goal}, i64 1')}")

        def cut(f: Function, index: str) -> None:
            line, k = f.let(f"udiv i64 {index}, {count}"), f.let(f"urem i64 {index}, {count}")
            place = f.let(f"add i64 {f.let(f'mul i64 {line}, {n}')}, {k}")
            bits = f"i{8 * self._complex}"
            value = f.let(f"load {bits}, ptr {self._element(f, done.pointer(f), place)}, align {self._complex // 2}")
            f.do(f"store {bits} {value}, ptr {self._element(f, RESULT.pointer(f), index)}, align {self._complex // 2}")

        self._map(outer * n, widen)
        self._along(Axis(outer, n, 1, wide, done))
        self._map(outer * count, cut)

    def _complex_to_real_whole(self, outer: int, n: int, given: int, source: Place) -> None:
        """By way of the whole complex sequence, whose second half are the conjugates of the first."""
        wide, done = self._taken(outer * n), self._taken(outer * n)
        scalar = self.lanes.scalar

        def mirror(f: Function, index: str) -> None:
            line, k = f.let(f"udiv i64 {index}, {n}"), f.let(f"urem i64 {index}, {n}")
            back = f.let(f"sub i64 {n}, {k}")
            in_first = f.let(f"icmp slt i64 {k}, {n // 2 + 1}")
            taken = f.let(f"select i1 {in_first}, i64 {k}, i64 {back}")
            place = self._element(f, source.pointer(f), f.let(f"add i64 {f.let(f'mul i64 {line}, {given}')}, {taken}"))
            real = f.let(f"load {scalar}, ptr {place}")
            imag = f.let(f"load {scalar}, ptr {f.let(f'getelementptr {scalar}, ptr {place}, i64 1')}")
            flipped = f.let(f"fneg {scalar} {imag}")
            imag = f.let(f"select i1 {in_first}, {scalar} {imag}, {scalar} {flipped}")
            alone = f.let(f"icmp eq i64 {k}, {f.let(f'urem i64 {back}, {n}')}")
            imag = f.let(f"select i1 {alone}, {scalar} 0.0, {scalar} {imag}")
            goal = self._element(f, wide.pointer(f), index)
            f.do(f"store {scalar} {real}, ptr {goal}")
            f.do(f"store {scalar} {imag}, ptr {f.let(f'getelementptr {scalar}, ptr {goal}, i64 1')}")

        def narrow(f: Function, index: str) -> None:
            value = f.let(f"load {scalar}, ptr {self._element(f, done.pointer(f), index)}")
            place = f.let(f"getelementptr {scalar}, ptr {RESULT.pointer(f)}, i64 {index}")
            f.do(f"store {scalar} {value}, ptr {place}")

        self._map(outer * n, mirror)
        self._along(Axis(outer, n, 1, wide, done, (True, True), 1 / self.total))
        self._map(outer * n, narrow)
