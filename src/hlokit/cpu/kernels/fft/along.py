"""Transforms of complex sequences along an axis: one or two passes within rows, two or three parts, or a chirp."""

from __future__ import annotations

import math
from dataclasses import replace

from hlokit.cpu.kernels.fft.axis import TransformAxis
from hlokit.cpu.kernels.fft.bluestein import LONGEST, write_bluestein
from hlokit.cpu.kernels.fft.memory import load_rows, store_rows
from hlokit.cpu.kernels.fft.phases import Phases, load_columns, store_columns, stored
from hlokit.cpu.kernels.fft.rows import split, write_rows
from hlokit.cpu.kernels.fft.stockham import factors, work_size, write_core
from hlokit.cpu.kernels.fft.twiddles import TwiddleFactors


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


def transform(phases: Phases, axis: TransformAxis) -> None:
    """Adds the phases of transforms along an axis."""
    sizes = split(phases.vector, axis.outer, axis.n) if axis.inner == 1 else None
    if sizes is not None:
        write_rows(phases, axis, sizes)
        return
    few = axis.inner == 1 and phases.are_few(axis.outer, axis.n)
    fits = work_size(axis.n) is not None
    parts = _parts(axis.n) if few or not fits else None
    start = phases.scratch
    if (few and fits and factors(axis.n) is None) or (not fits and parts is None):
        write_bluestein(phases, axis, transform)
    elif parts is None:
        _direct(phases, axis)
    else:
        _in_parts(phases, axis, *parts)
    phases.scratch = start


def _direct(phases: Phases, axis: TransformAxis) -> None:
    """Each lane a sequence: neighbours along inner, or whole rows."""
    n, lanes = axis.n, phases.lanes
    core = write_core(phases.module, phases.vector, n)
    with phases.map_groups(phases.groups(axis.outer, axis.inner), n) as (f, group):
        work = phases.work(f, n)
        source, target = (phases.array(f, place) for place in (axis.source, axis.target))
        if axis.inner == 1:
            first = group * lanes
            load_rows(phases.rows(source, first, axis.outer, n), n, work[0], axis.loaded)
            done = core.call(work)
            rows = phases.rows(target, first, axis.outer, n)
            store_rows(rows, n, done, lambda part, k: axis.stored(part.load(k)))
        else:
            outer, column, valid = phases.column_group(group, axis.inner)
            base = outer * (n * axis.inner) + column
            load_columns(phases.columns(source, base, axis.inner, valid), n, work[0], axis.loaded)
            done = core.call(work)
            store_columns(phases.columns(target, base, axis.inner, valid), n, stored(axis, done))


def _in_parts(phases: Phases, axis: TransformAxis, n1: int, n2: int, n3: int) -> None:
    """x as n1 x (n2 n3): along n1, times exp(-2 pi i k1 j / n), the same within each row, and along n3."""
    between = phases.take(axis.outer * axis.n * axis.inner)
    _first_part(phases, replace(axis, target=between), n1, n2 * n3)
    if n2 > 1:
        _first_part(phases, TransformAxis(axis.outer * n1, n2 * n3, axis.inner, between, between), n2, n3)
    _last_part(phases, replace(axis, source=between, swapped=(False, axis.swapped[1])), n1, n2, n3)


def _first_part(phases: Phases, axis: TransformAxis, n1: int, n2: int) -> None:
    """Along n1 of n1 x n2, and the twiddle factors; source and target may be the same."""
    core = write_core(phases.module, phases.vector, n1)
    # with inner == 1 the lanes are neighbours along n2, else along inner
    outer_size, inner_size = (axis.outer, n2) if axis.inner == 1 else (axis.outer * n2, axis.inner)
    stride = n2 * axis.inner
    with phases.map_groups(phases.groups(outer_size, inner_size, columns=True), n1) as (f, group):
        work = phases.work(f, n1)
        source, target = (phases.array(f, place) for place in (axis.source, axis.target))
        twiddles = TwiddleFactors(f, phases.vector, axis.n, n1)
        tables = twiddles.tables()
        outer, column, valid = phases.column_group(group, inner_size)
        if axis.inner == 1:
            base = outer * axis.n + column
            twiddles.prepare(tables, column, n2, step=1)
        else:
            j2 = outer % n2
            base = (outer // n2 * axis.n + j2) * axis.inner + column
            twiddles.prepare(tables, j2, n2, step=0)
        load_columns(phases.columns(source, base, stride, valid), n1, work[0], axis.loaded)
        done = core.call(work)
        columns = phases.columns(target, base, stride, valid)
        store_columns(columns, n1, lambda k: done.load(k) * twiddles.at(tables, k))


def _last_part(phases: Phases, axis: TransformAxis, n1: int, n2: int, n3: int) -> None:
    """Along n3 of n1 x n2 x n3; the result is n3 x n2 x n1."""
    n, inner = axis.n, axis.inner
    core = write_core(phases.module, phases.vector, n3)
    outer_size, inner_size = (axis.outer * n2, n1) if inner == 1 else (axis.outer * n1 * n2, inner)
    with phases.map_groups(phases.groups(outer_size, inner_size, columns=True), n3) as (f, group):
        work = phases.work(f, n3)
        source, target = (phases.array(f, place) for place in (axis.source, axis.target))
        outer, column, valid = phases.column_group(group, inner_size)
        if inner == 1:
            start, k2 = outer // n2 * n, outer % n2
            load_rows(phases.rows(source[start + k2 * n3], column, n1, n2 * n3), n3, work[0], axis.loaded)
            base = start + k2 * n1 + column
        else:
            start, rest = outer // (n1 * n2) * n, outer % (n1 * n2)
            k1, k2 = rest // n2, rest % n2
            base = (start + rest * n3) * inner + column
            load_columns(phases.columns(source, base, inner, valid), n3, work[0], axis.loaded)
            base = (start + k1 + k2 * n1) * inner + column
        done = core.call(work)
        store_columns(phases.columns(target, base, n1 * n2 * inner, valid), n3, stored(axis, done))
