"""Transforms of rows one by one, in the first-level cache: each is n1 x n2, along n1 and then along n2.

Lanes are neighbours along n2, then rows of what is between: no other sequence is needed to fill them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hlokit.cpu.kernels.fft.axis import Axis
from hlokit.cpu.kernels.fft.lanes import Complex, Lanes, factors, roots, swapped, table, write_core
from hlokit.cpu.kernels.fft.memory import Columns, load_column, load_rows, store_column
from hlokit.cpu.kernels.flow import least
from hlokit.cpu.llvm import Function, Module

_LARGEST = 1 << 18
"""Bytes of a row, which is on the stack between the two parts."""
_ALONE = 1 << 12
"""Elements of the longest row of few: the parts of longer ones are for several threads."""
_FEW = 4
_FULL = 0.75
"""The share of lanes that have to be of use."""


def split(lanes: Lanes, rows: int, n: int) -> tuple[int, int] | None:
    """(n1, n2) for rows of n; None if lanes stay idle, or they are too long."""
    if n < lanes.count**2 or 2 * n * lanes.scalar_bytes > _LARGEST or (rows < _FEW and n > _ALONE):
        return None

    def full(size: int) -> float:
        return size / (-(-size // lanes.count) * lanes.count) if factors(size) is not None else 0.0

    pairs = [(n // b, b) for b in range(2, math.isqrt(n) + 1) if n % b == 0]
    best = max(pairs, key=lambda pair: (full(pair[0]) * full(pair[1]), pair[1]), default=None)
    return best if best is not None and full(best[0]) * full(best[1]) >= _FULL else None


def write_rows(f: Function, module: Module, lanes: Lanes, axis: Axis, sizes: tuple[int, int]) -> Callable[[str], None]:
    """Prepares a function for transforms along an axis of inner size 1; gives what writes that of the row (i64)."""
    n1, n2 = sizes
    w, n = lanes.count, axis.n
    groups1, groups2 = -(-n1 // w), -(-n2 // w)
    work = tuple(f.alloca(lanes.type, 2 * max(n1, n2)) for _ in (0, 1))
    between = f.alloca(lanes.scalar, 2 * n)
    lines = f.alloca("ptr", groups1 * w)
    with f.loop("0", str(groups1 * w)) as loop:
        place = f.let(f"mul i64 {least(f, loop.index, str(n1 - 1))}, {2 * n2}")
        line = f.let(f"getelementptr {lanes.scalar}, ptr {between}, i64 {place}")
        f.do(f"store ptr {line}, ptr {f.let(f'getelementptr ptr, ptr {lines}, i64 {loop.index}')}")
    weights = _weights(module, lanes, n1, n2)
    source, target = axis.source.pointer(f), axis.target.pointer(f)

    def transformed(size: int) -> str:
        name, in_other = write_core(module, lanes, size)
        f.do(f"call void @{name}(ptr {work[0]}, ptr {work[1]})")
        return work[in_other]

    def columns(array: str, base: str, group: str, stride: int) -> Columns:
        column = f.let(f"mul i64 {group}, {w}")
        valid = "" if stride % w == 0 else least(f, str(w), f.let(f"sub i64 {stride}, {column}"))
        return Columns(array, f.let(f"add i64 {base}, {column}"), stride, valid)

    def finished(value: Complex) -> Complex:
        scaled = lanes.scale(f, value, axis.factor) if axis.factor != 1.0 else value
        return swapped(scaled) if axis.turned[1] else scaled

    def write(row: str) -> None:
        start = f.let(f"mul i64 {row}, {n}")
        with f.loop("0", str(groups2)) as group:
            given, kept = (columns(*place, group.index, n2) for place in ((source, start), (between, "0")))
            with f.loop("0", str(n1)) as loop:
                value = load_column(f, lanes, given, loop.index)
                lanes.store(f, swapped(value) if axis.turned[0] else value, work[0], loop.index)
            done = transformed(n1)
            with f.loop("0", str(n1)) as loop:
                number = f.let(f"add i64 {f.let(f'mul i64 {loop.index}, {groups2}')}, {group.index}")
                value = lanes.mul(f, lanes.load(f, done, loop.index), lanes.load(f, weights, number))
                store_column(f, lanes, kept, loop.index, value)
        with f.loop("0", str(groups1)) as group:
            first = f.let(f"mul i64 {group.index}, {w}")
            load_rows(f, lanes, f.let(f"getelementptr ptr, ptr {lines}, i64 {first}"), n2, work[0])
            done = transformed(n2)
            taken = columns(target, start, group.index, n1)
            with f.loop("0", str(n2)) as loop:
                store_column(f, lanes, taken, loop.index, finished(lanes.load(f, done, loop.index)))

    return write


def _weights(module: Module, lanes: Lanes, n1: int, n2: int) -> str:
    """exp(-2 pi i k j / (n1 n2)) for k < n1 and j < n2, by vectors along j: all real parts, then all imaginary ones."""
    w = lanes.count
    values = np.ones((n1, -(-n2 // w) * w), np.complex128)
    values[:, :n2] = roots(np.outer(np.arange(n1), np.arange(n2)), n1 * n2)
    vectors = values.reshape(n1, -1, w)
    parts = np.stack([vectors.real, vectors.imag], axis=2).reshape(-1, 2)
    return table(module, f"roots_{lanes.scalar}{w}_{n1}x{n2}", lanes.scalar, parts[:, 0] + 1j * parts[:, 1])
