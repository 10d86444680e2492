"""fft: every transform is passes along one dimension, many sequences at once; long ones are split in two or three.

A pass takes up to 1024 elements; two passes take the product of two
such lengths, three that of three. Rows that are a product of two go one by one (fft_rows.py). Other lengths, and few
sequences of those with a large prime factor, are convolutions (fft_chirp.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from hlokit.cpu.kernels.fft_axis import Axis, Place
from hlokit.cpu.kernels.fft_chirp import LONGEST, Chirp
from hlokit.cpu.kernels.fft_lanes import Complex, Lanes, factors, roots, swapped, table, work_size, write_core
from hlokit.cpu.kernels.fft_memory import (
    Columns,
    load_column,
    load_real_rows,
    load_rows,
    store_column,
    store_real_rows,
    store_rows,
)
from hlokit.cpu.kernels.fft_rows import split, write_rows
from hlokit.cpu.kernels.fft_weights import Weights
from hlokit.cpu.kernels.flow import least, unused_name
from hlokit.cpu.kernels.routine import KERNELS, Call, Phase, Routine
from hlokit.cpu.llvm import Function, Loop, Module

_PARAMETERS = [("ptr", "table"), ("i64", "begin"), ("i64", "end")]
_SPLIT = 64  # the shortest one that is worth splitting when there are few
_CHUNK = 1 << 13  # elements that make a chunk


def fft(call: Call, module: Module) -> Routine | None:
    """None: a length is not for it, or the order of additions is to be the reference's."""
    if call.strict:
        return None
    if not call.results[0].size:
        return Routine(())
    if not call.operands[0].size:
        return None
    op: Any = call.op
    kind: str = op.fft_type
    lengths: tuple[int, ...] = op.fft_length
    last = lengths[-1] if kind in ("FFT", "IFFT") else _packed(lengths[-1])
    if not all(map(_is_possible, (*lengths[:-1], last))):
        return None
    wide = call.results[0].dtype.real.bits == 64
    lanes = Lanes("double" if wide else "float", max(4, call.target.vector_bytes // (8 if wide else 4)))
    writer = _Fft(unused_name(module, "fft"), module, lanes, math.prod(lengths), kind in ("IFFT", "IRFFT"))
    return writer.write(kind, lengths, call.operands[0].dimensions, call.results[0].dimensions)


def _is_possible(n: int) -> bool:
    return work_size(n) is not None or _parts(n) is not None or n <= LONGEST


def _halves(n: int) -> tuple[int, int] | None:
    """(a, b) with a b = n, a >= b, near to each other, for each of which a work buffer is large enough."""
    for b in range(math.isqrt(n), 1, -1):
        if n % b == 0 and work_size(n // b) is not None and work_size(b) is not None:
            return n // b, b
    return None


def _parts(n: int) -> tuple[int, int, int] | None:
    """(a, b, c) with a b c = n, near to each other, for each of which a buffer is large enough; b = 1 if possible."""
    if halves := _halves(n):
        return halves[0], 1, halves[1]
    for c in range(round(n ** (1 / 3)), 1, -1):
        if n % c == 0 and work_size(c) is not None and (halves := _halves(n // c)):
            return *halves, c
    return None


def _packed(n: int) -> int:
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


_OPERAND, _RESULT = Place(0), Place(1)


@dataclass
class _Fft:
    name: str
    module: Module
    lanes: Lanes
    total: int
    inverse: bool
    phases: list[Phase] = field(default_factory=list[Phase])
    scratch: int = 0
    most: int = 0
    """Bytes of scratch that are taken at the same time."""

    @property
    def _complex(self) -> int:
        """Bytes of a complex number."""
        return 2 * self.lanes.scalar_bytes

    def write(self, kind: str, lengths: tuple[int, ...], operand: tuple[int, ...], result: tuple[int, ...]) -> Routine:
        """The passes, last dimension first; of real results it is the last one instead."""
        rank = len(lengths)
        outer = math.prod(operand[:-1])
        if kind == "RFFT":
            self._real_to_complex(outer, lengths[-1])
            self._axes(result, rank - 1, _RESULT, _RESULT, rank == 1)
        elif kind == "IRFFT":
            source = _OPERAND
            if rank > 1:
                source = self._taken(math.prod(operand))
                self._axes(operand, rank - 1, _OPERAND, source, False)
            self._complex_to_real(outer, lengths[-1], operand[-1], source)
        else:
            turned = (self.inverse, self.inverse)
            factor = 1 / self.total if self.inverse and rank == 1 else 1.0
            self._along(Axis(outer, lengths[-1], 1, _OPERAND, _RESULT, turned, factor))
            self._axes(result, rank - 1, _RESULT, _RESULT, True)
        return Routine(tuple(self.phases), self.most)

    def _axes(self, sizes: tuple[int, ...], count: int, source: Place, target: Place, scaled: bool) -> None:
        """The `count` dimensions before the last one."""
        for step in range(count):
            d = len(sizes) - 2 - step
            factor = 1 / self.total if self.inverse and scaled and step == count - 1 else 1.0
            outer, inner = math.prod(sizes[:d]), math.prod(sizes[d + 1 :])
            turned = (self.inverse, self.inverse)
            self._along(Axis(outer, sizes[d], inner, source, target, turned, factor))
            source = target

    def _taken(self, count: int) -> Place:
        """Scratch memory for complex numbers."""
        place = Place(2, self.scratch)
        self.scratch += -(-count * self._complex // 64) * 64
        self.most = max(self.most, self.scratch)
        return place

    # -- complex sequences

    def _along(self, axis: Axis) -> None:
        sizes = split(self.lanes, axis.outer, axis.n) if axis.inner == 1 else None
        if sizes is not None:
            self._rowwise(axis, sizes)
            return
        few = axis.inner == 1 and self._are_few(axis.outer, axis.n)
        fits = work_size(axis.n) is not None
        parts = _parts(axis.n) if few or not fits else None
        start = self.scratch
        if (few and fits and factors(axis.n) is None) or (not fits and parts is None):
            chirp = Chirp(self.name, self.module, self.lanes, self.phases, self._along, self._taken)
            chirp.write(axis)
        elif parts is None:
            self._direct(axis)
        else:
            self._in_parts(axis, *parts)
        self.scratch = start

    def _are_few(self, rows: int, n: int) -> bool:
        """Whether rows of n leave most lanes idle, and n is worth more phases."""
        return rows < self.lanes.count // 2 and n >= _SPLIT

    def _rowwise(self, axis: Axis, sizes: tuple[int, int]) -> None:
        f = Function(f"{self.name}_{len(self.phases)}", _PARAMETERS)
        write = write_rows(f, self.module, self.lanes, axis, sizes)
        vectors = axis.n // self.lanes.count
        with self._each(f, axis.outer, vectors) as row:
            write(row.index)
        self._end(f, axis.outer, vectors)

    def _direct(self, axis: Axis) -> None:
        f, work = self._begin(axis.n)
        lanes, n = self.lanes, axis.n
        core = write_core(self.module, lanes, n)
        source, target = axis.source.pointer(f), axis.target.pointer(f)
        groups = self._groups(axis.outer, axis.inner)
        with self._each(f, groups, n) as group:
            if axis.inner == 1:
                first = f.let(f"mul i64 {group.index}, {lanes.count}")
                rows = self._rows(f, source, first, axis.outer, n)
                load_rows(f, lanes, rows, n, work[0], axis.turned[0])
                done = self._transform(f, core, work)
                rows = self._rows(f, target, first, axis.outer, n)
                store_rows(f, lanes, rows, n, self._get_rows(f, done, axis.turned[1], axis.factor))
            else:
                outer, column, valid = self._column_group(f, group.index, axis.inner)
                base = f.let(f"add i64 {f.let(f'mul i64 {outer}, {n * axis.inner}')}, {column}")
                self._load_columns(f, Columns(source, base, axis.inner, valid), n, work[0], axis.turned[0])
                done = self._transform(f, core, work)
                get = self._get(f, done, axis.turned[1], axis.factor)
                self._store_columns(f, Columns(target, base, axis.inner, valid), n, get)
        self._end(f, groups, n)

    def _in_parts(self, axis: Axis, n1: int, n2: int, n3: int) -> None:
        """x as n1 x (n2 n3): along n1, times exp(-2 pi i k1 j / n), the same within each row, and along n3."""
        between = self._taken(axis.outer * axis.n * axis.inner)
        self._first_part(replace(axis, target=between), n1, n2 * n3)
        if n2 > 1:
            self._first_part(Axis(axis.outer * n1, n2 * n3, axis.inner, between, between), n2, n3)
        self._last_part(replace(axis, source=between), n1, n2, n3)

    def _first_part(self, axis: Axis, n1: int, n2: int) -> None:
        """Along n1 of n1 x n2, and the weights; source and target may be the same."""
        f, work = self._begin(n1)
        lanes, n = self.lanes, axis.n
        core = write_core(self.module, lanes, n1)
        source, target = axis.source.pointer(f), axis.target.pointer(f)
        weights = Weights(self.module, lanes, n, n1)
        memory = weights.memory(f)
        # with inner == 1 the lanes are neighbours along n2, else along inner
        outer_size, inner_size = (axis.outer, n2) if axis.inner == 1 else (axis.outer * n2, axis.inner)
        groups = self._groups(outer_size, inner_size, columns=True)
        with self._each(f, groups, n1) as group:
            outer, column, valid = self._column_group(f, group.index, inner_size)
            if axis.inner == 1:
                base = f.let(f"add i64 {f.let(f'mul i64 {outer}, {n}')}, {column}")
                weights.prepare(f, memory, column, n2, step=1)
            else:
                whole, j2 = f.let(f"udiv i64 {outer}, {n2}"), f.let(f"urem i64 {outer}, {n2}")
                row = f.let(f"add i64 {f.let(f'mul i64 {whole}, {n}')}, {j2}")
                base = f.let(f"add i64 {f.let(f'mul i64 {row}, {axis.inner}')}, {column}")
                weights.prepare(f, memory, j2, n2, step=0)
            stride = n2 * axis.inner
            self._load_columns(f, Columns(source, base, stride, valid), n1, work[0], axis.turned[0])
            done = self._transform(f, core, work)

            def get(k: str, done: str = done) -> Complex:
                return lanes.mul(f, lanes.load(f, done, k), weights.at(f, memory, k))

            self._store_columns(f, Columns(target, base, stride, valid), n1, get)
        self._end(f, groups, n1)

    def _last_part(self, axis: Axis, n1: int, n2: int, n3: int) -> None:
        """Along n3 of n1 x n2 x n3; the result is n3 x n2 x n1."""
        f, work = self._begin(n3)
        lanes, n = self.lanes, axis.n
        core = write_core(self.module, lanes, n3)
        source, target = axis.source.pointer(f), axis.target.pointer(f)
        outer_size, inner_size = (axis.outer * n2, n1) if axis.inner == 1 else (axis.outer * n1 * n2, axis.inner)
        groups = self._groups(outer_size, inner_size, columns=True)
        with self._each(f, groups, n3) as group:
            outer, column, valid = self._column_group(f, group.index, inner_size)
            if axis.inner == 1:
                whole, k2 = f.let(f"udiv i64 {outer}, {n2}"), f.let(f"urem i64 {outer}, {n2}")
                start = f.let(f"mul i64 {whole}, {n}")
                first = f.let(f"add i64 {start}, {f.let(f'mul i64 {k2}, {n3}')}")
                rows = self._rows(f, self._element(f, source, first), column, n1, n2 * n3)
                load_rows(f, lanes, rows, n3, work[0])
                row = f.let(f"add i64 {start}, {f.let(f'mul i64 {k2}, {n1}')}")
                base = f.let(f"add i64 {row}, {column}")
            else:
                whole, rest = f.let(f"udiv i64 {outer}, {n1 * n2}"), f.let(f"urem i64 {outer}, {n1 * n2}")
                k1, k2 = f.let(f"udiv i64 {rest}, {n2}"), f.let(f"urem i64 {rest}, {n2}")
                start = f.let(f"mul i64 {whole}, {n}")
                row = f.let(f"add i64 {start}, {f.let(f'mul i64 {rest}, {n3}')}")
                base = f.let(f"add i64 {f.let(f'mul i64 {row}, {axis.inner}')}, {column}")
                self._load_columns(f, Columns(source, base, axis.inner, valid), n3, work[0], False)
                row = f.let(f"add i64 {f.let(f'add i64 {start}, {k1}')}, {f.let(f'mul i64 {k2}, {n1}')}")
                base = f.let(f"add i64 {f.let(f'mul i64 {row}, {axis.inner}')}, {column}")
            done = self._transform(f, core, work)
            get = self._get(f, done, axis.turned[1], axis.factor)
            self._store_columns(f, Columns(target, base, n1 * n2 * axis.inner, valid), n3, get)
        self._end(f, groups, n3)

    # -- real sequences: of even length as half as many complex numbers

    def _real_to_complex(self, outer: int, n: int) -> None:
        half = _packed(n)
        if work_size(half) is None or self._are_few(outer, half):
            (self._real_to_complex_whole if n % 2 else self._real_to_complex_long)(outer, n)
            return
        f, work = self._begin(half)
        lanes, count = self.lanes, n // 2 + 1
        core = write_core(self.module, lanes, half)
        source, target = _OPERAND.pointer(f), _RESULT.pointer(f)
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
        half = _packed(n)
        if work_size(half) is None or self._are_few(outer, half):
            way = self._complex_to_real_whole if n % 2 else self._complex_to_real_long
            way(outer, n, given, source_place)
            return
        f, work = self._begin(half)
        lanes, factor = self.lanes, 1 / self.total
        core = write_core(self.module, lanes, half)
        source, target = source_place.pointer(f), _RESULT.pointer(f)
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
        self._along(Axis(outer, half, 1, _OPERAND, done))
        self._pairs(outer, half, (done, half), (_RESULT, half + 1), _unpacked)

    def _complex_to_real_long(self, outer: int, n: int, given: int, source: Place) -> None:
        half, packed = n // 2, self._taken(outer * (n // 2))
        self._pairs(outer, half, (source, given), (packed, half), _repacked)
        self._along(Axis(outer, half, 1, packed, _RESULT, (True, True), 1 / self.total))

    def _pairs(
        self, outer: int, half: int, source: tuple[Place, int], target: tuple[Place, int], combined: _Combined
    ) -> None:
        """A phase: combined(x[k], x[half - k], exp(-pi i k / half)) in each row. Source and target are a place and the
        length of its rows.

        A packed row has no element `half`: it is element 0. Of spectra both ends are real.
        """
        f = Function(f"{self.name}_{len(self.phases)}", _PARAMETERS)
        lanes, count, spectra = self.lanes, target[1], combined is _repacked
        width, per_row = lanes.count, -(-count // _CHUNK)
        arrays = source[0].pointer(f), target[0].pointer(f)
        weights = Weights(self.module, lanes, 2 * half, half)
        one = Lanes(lanes.scalar, 1)
        with f.loop("%begin", "%end") as chunk:
            row, part = f.let(f"udiv i64 {chunk.index}, {per_row}"), f.let(f"urem i64 {chunk.index}, {per_row}")
            given, taken = (
                self._element(f, array, f.let(f"mul i64 {row}, {length}"))
                for array, length in zip(arrays, (source[1], target[1]), strict=True)
            )
            low = f.let(f"mul i64 {part}, {_CHUNK}")
            high = least(f, f.let(f"add i64 {low}, {_CHUNK}"), str(count))
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
            place = f.let(f"getelementptr {scalar}, ptr {_OPERAND.pointer(f)}, i64 {index}")
            goal = self._element(f, wide.pointer(f), index)
            f.do(f"store {scalar} {f.let(f'load {scalar}, ptr {place}')}, ptr {goal}")
            f.do(f"store {scalar} 0.0, ptr {f.let(f'getelementptr {scalar}, ptr {goal}, i64 1')}")

        def cut(f: Function, index: str) -> None:
            line, k = f.let(f"udiv i64 {index}, {count}"), f.let(f"urem i64 {index}, {count}")
            place = f.let(f"add i64 {f.let(f'mul i64 {line}, {n}')}, {k}")
            bits = f"i{8 * self._complex}"
            value = f.let(f"load {bits}, ptr {self._element(f, done.pointer(f), place)}, align {self._complex // 2}")
            f.do(f"store {bits} {value}, ptr {self._element(f, _RESULT.pointer(f), index)}, align {self._complex // 2}")

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
            place = f.let(f"getelementptr {scalar}, ptr {_RESULT.pointer(f)}, i64 {index}")
            f.do(f"store {scalar} {value}, ptr {place}")

        self._map(outer * n, mirror)
        self._along(Axis(outer, n, 1, wide, done, (True, True), 1 / self.total))
        self._map(outer * n, narrow)

    # -- parts

    def _begin(self, n: int) -> tuple[Function, tuple[str, str]]:
        """A phase's function, and two work buffers for n elements and one more."""
        f = Function(f"{self.name}_{len(self.phases)}", _PARAMETERS)
        size = 2 * max(n + 1, work_size(n) or 0)
        return f, (f.alloca(self.lanes.type, size), f.alloca(self.lanes.type, size))

    def _groups(self, outer: int, inner: int, *, columns: bool = False) -> int:
        """Groups of lanes: along `inner` within each outer; along outer if there is no inner one."""
        if inner == 1 and not columns:
            return -(-outer // self.lanes.count)
        return outer * -(-inner // self.lanes.count)

    def _per_chunk(self, groups: int, elements: int) -> int:
        return max(1, -(-groups // 64), min(groups, _CHUNK // max(1, elements * self.lanes.count)))

    def _each(self, f: Function, groups: int, elements: int) -> AbstractContextManager[Loop]:
        """A loop over the groups of the chunks, each of so many elements a lane."""
        per_chunk = self._per_chunk(groups, elements)
        low = f.let(f"mul i64 %begin, {per_chunk}")
        return f.loop(low, least(f, f.let(f"mul i64 %end, {per_chunk}"), str(groups)))

    def _end(self, f: Function, groups: int, elements: int) -> None:
        f.do("ret void")
        self.module.add(f)
        self.phases.append(Phase(f.name, -(-groups // self._per_chunk(groups, elements))))

    def _map(self, count: int, body: Callable[[Function, str], None]) -> None:
        """A phase that does something for each of `count` elements."""
        f = Function(f"{self.name}_{len(self.phases)}", _PARAMETERS)
        low = f.let(f"mul i64 %begin, {_CHUNK}")
        with f.loop(low, least(f, f.let(f"mul i64 %end, {_CHUNK}"), str(count))) as loop:
            body(f, loop.index)
        f.do("ret void")
        self.module.add(f)
        self.phases.append(Phase(f.name, -(-count // _CHUNK)))

    def _column_group(self, f: Function, group: str, inner: int) -> tuple[str, str, str]:
        """(outer index, first lane's place along inner, how many lanes there are: "" for all)."""
        count = self.lanes.count
        per_outer = -(-inner // count)
        outer = f.let(f"udiv i64 {group}, {per_outer}")
        column = f.let(f"mul i64 {f.let(f'urem i64 {group}, {per_outer}')}, {count}")
        if inner % count == 0:
            return outer, column, ""
        return outer, column, least(f, str(count), f.let(f"sub i64 {inner}, {column}"))

    def _rows(self, f: Function, base: str, first: str, rows: int, length: int, *, scalars: int = 2) -> str:
        """Pointers in memory to the rows from `first` on, one a lane; beyond the last row it is that one again."""
        pointers = f.alloca("ptr", self.lanes.count)
        with f.loop("0", str(self.lanes.count)) as lane:
            row = least(f, f.let(f"add i64 {first}, {lane.index}"), str(rows - 1))
            place = f.let(f"mul i64 {row}, {length * scalars}")
            pointer = f.let(f"getelementptr {self.lanes.scalar}, ptr {base}, i64 {place}")
            f.do(f"store ptr {pointer}, ptr {f.let(f'getelementptr ptr, ptr {pointers}, i64 {lane.index}')}")
        return pointers

    def _element(self, f: Function, base: str, index: str) -> str:
        return f.let(f"getelementptr [2 x {self.lanes.scalar}], ptr {base}, i64 {index}")

    def _put(self, f: Function, buffer: str, turned: bool) -> Callable[[str, Complex], None]:
        return lambda k, value: self.lanes.store(f, swapped(value) if turned else value, buffer, k)

    def _get(self, f: Function, buffer: str, turned: bool, factor: float) -> Callable[[str], Complex]:
        def get(k: str) -> Complex:
            value = self.lanes.load(f, buffer, k)
            scaled = self.lanes.scale(f, value, factor) if factor != 1.0 else value
            return swapped(scaled) if turned else scaled

        return get

    def _get_rows(self, f: Function, buffer: str, turned: bool, factor: float) -> Callable[[Lanes, str, str], Complex]:
        def get(lanes: Lanes, first: str, k: str) -> Complex:
            base = f.let(f"getelementptr {lanes.scalar}, ptr {buffer}, i64 {first}")
            value = lanes.load(f, base, k)
            scaled = lanes.scale(f, value, factor) if factor != 1.0 else value
            return swapped(scaled) if turned else scaled

        return get

    def _load_columns(self, f: Function, columns: Columns, n: int, buffer: str, turned: bool) -> None:
        put = self._put(f, buffer, turned)
        with f.loop("0", str(n)) as loop:
            put(loop.index, load_column(f, self.lanes, columns, loop.index))

    def _store_columns(self, f: Function, columns: Columns, n: int, get: Callable[[str], Complex]) -> None:
        with f.loop("0", str(n)) as loop:
            store_column(f, self.lanes, columns, loop.index, get(loop.index))

    def _transform(self, f: Function, core: tuple[str, bool], work: tuple[str, str]) -> str:
        """Runs the passes on work buffer 0; gives the buffer of the result."""
        f.do(f"call void @{core[0]}(ptr {work[0]}, ptr {work[1]})")
        return work[1] if core[1] else work[0]


KERNELS["fft"] = fft
