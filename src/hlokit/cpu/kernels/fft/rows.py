"""Transforms of rows one by one, in the first-level cache: each is n1 x n2, along n1 and then along n2.

Lanes are neighbours along n2, then rows of what is between: no other sequence is needed to fill them.
"""

from __future__ import annotations

import math

import numpy as np

from hlokit.cpu import costs
from hlokit.cpu.kernels.fft.axis import TransformAxis
from hlokit.cpu.kernels.fft.memory import Columns, Work, complex_array, load_rows, row_pointers
from hlokit.cpu.kernels.fft.phases import Phases, load_columns, store_columns, stored
from hlokit.cpu.kernels.fft.stockham import factors, write_core
from hlokit.cpu.kernels.fft.twiddles import roots, table
from hlokit.cpu.kernels.routine import up
from hlokit.cpu.llvm import Function, Index, Pointer, Type

_FEW = 4
_FULL = 0.75
"""The share of lanes that have to be of use."""


def split(vector: Type, rows: int, n: int) -> tuple[int, int] | None:
    """(n1, n2) for rows of n; None if lanes stay idle, or they are too long."""
    if n < vector.lanes**2 or 2 * n * vector.bytes > costs.FFT_ROW_BYTES or (rows < _FEW and n > costs.FFT_ROW_ALONE):
        return None

    def full(size: int) -> float:
        return size / up(size, vector.lanes) if factors(size) is not None else 0.0

    pairs = [(n // b, b) for b in range(2, math.isqrt(n) + 1) if n % b == 0]
    best = max(pairs, key=lambda pair: (full(pair[0]) * full(pair[1]), pair[1]), default=None)
    return best if best is not None and full(best[0]) * full(best[1]) >= _FULL else None


def write_rows(phases: Phases, axis: TransformAxis, sizes: tuple[int, int]) -> None:
    """Adds the phase of transforms along an axis of inner size 1."""
    n1, n2 = sizes
    w, n, module, vector = phases.lanes, axis.n, phases.module, phases.vector
    groups1, groups2 = -(-n1 // w), -(-n2 // w)
    cores = write_core(module, vector, n1), write_core(module, vector, n2)
    per_chunk = phases.per_chunk(axis.outer, n // w)
    with phases.phase(-(-axis.outer // per_chunk)) as f:
        work = Work.local(f, vector, max(n1, n2)), Work.local(f, vector, max(n1, n2))
        between = complex_array(f.local(phases.scalar, 2 * n, 64), phases.scalar)
        lines = row_pointers(f, groups1 * w, lambda line: between[line.smin(n1 - 1) * n2])
        twiddles = _twiddles(f, vector, n1, n2)
        source, target = (phases.array(f, place) for place in (axis.source, axis.target))

        def columns(array: Pointer, base: Index, group: Index, stride: int) -> Columns:
            column = group * w
            return phases.columns(array, base + column, stride, phases.valid(column, stride))

        with phases.each(f, axis.outer, 1, per_chunk) as row:
            start = row.index * n
            with f.loop(0, groups2) as group:
                load_columns(columns(source, start, group.index, n2), n1, work[0], axis.loaded)
                done, own = cores[0].call(work), twiddles[group.index]
                kept = columns(between, f.index(0), group.index, n2)
                store_columns(kept, n1, lambda k: done.load(k) * own.load(k * groups2))
            with f.loop(0, groups1) as group:
                load_rows(lines[group.index * w], n2, work[0])
                done = cores[1].call(work)
                store_columns(columns(target, start, group.index, n1), n2, stored(axis, done))


def _twiddles(f: Function, vector: Type, n1: int, n2: int) -> Work:
    """exp(-2 pi i k j / (n1 n2)) for k < n1 and j < n2, by vectors along j."""
    w = vector.lanes
    values = np.ones((n1, up(n2, w)), np.complex128)
    values[:, :n2] = roots(np.outer(np.arange(n1), np.arange(n2)), n1 * n2)
    vectors = values.reshape(n1, -1, w)
    parts = np.stack([vectors.real, vectors.imag], axis=2).reshape(-1, 2)
    return Work.at(table(f, f"roots_{n1}x{n2}_by{w}", vector.element, parts[:, 0] + 1j * parts[:, 1]), vector)
