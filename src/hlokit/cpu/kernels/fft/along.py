"""Transforms of complex sequences along an axis: by a pass or two within rows, in two or three parts, or a chirp."""

from __future__ import annotations

import math
from dataclasses import replace

from hlokit.cpu.kernels.fft.axis import Axis
from hlokit.cpu.kernels.fft.chirp import LONGEST, Chirp
from hlokit.cpu.kernels.fft.lanes import Complex, factors, work_size, write_core
from hlokit.cpu.kernels.fft.memory import Columns, load_rows, store_rows
from hlokit.cpu.kernels.fft.phases import Phases
from hlokit.cpu.kernels.fft.rows import split, write_rows
from hlokit.cpu.kernels.fft.weights import Weights
from hlokit.cpu.kernels.routine import PHASE
from hlokit.cpu.llvm import Function

_SPLIT = 64
"""The shortest one that is worth splitting when there are few."""


def is_possible(n: int) -> bool:
    """Whether there is a way for complex sequences of length n."""
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


class Along(Phases):
    """Adds the phases of transforms of complex sequences."""

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
        f = Function(f"{self.name}_{len(self.phases)}", PHASE)
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
