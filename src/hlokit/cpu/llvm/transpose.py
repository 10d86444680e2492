"""Squares of vectors in registers, transposed."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.llvm.types import type_of
from hlokit.cpu.llvm.values import Value


def transposed(rows: Sequence[Value], unit: int = 1) -> list[Value]:
    """A square whose rows become columns, of `unit` scalars that stay together.

    By shuffles that machines have as instructions, of as few elements as can be: LLVM takes its time with others.
    Neighbours are interleaved within blocks of 16 bytes, then whole blocks change sides.
    """
    count, given = len(rows), rows[0].type
    size = unit * given.bytes
    blocks = count * size // 16
    if given.scalar not in ("float", "i32", "double") or size not in (4, 8, 16) or blocks not in (1, 2, 4):
        return _exchanged(rows, unit)
    pairs = type_of("double", 2 * blocks)
    values = list(rows)
    if size == 4:
        values = _interleaved(values, 1, 4)
    values = [value.bitcast(pairs) for value in values]
    if size == 4:
        values = _interleaved(values, 2, 2)
        values = [values[i + j] for i in range(0, count, 4) for j in (0, 2, 1, 3)]
    elif size == 8:
        values = _interleaved(values, 1, 2)
    each = count // blocks
    lines = [_turned(values[i::each]) for i in range(each)]
    return [line[block].bitcast(given) for block in range(blocks) for line in lines]


def _interleaved(rows: Sequence[Value], distance: int, each: int) -> list[Value]:
    """Each two rows of that distance interleaved: the first halves of each block of `each` elements, and the others."""
    values, half, lanes = list(rows), each // 2, rows[0].lanes
    orders = [
        [place + k for block in range(side, lanes, each) for place in range(block, block + half) for k in (0, lanes)]
        for side in (0, half)
    ]
    for i in range(len(values)):
        if not i & distance:
            first, second = values[i], values[i + distance]
            values[i], values[i + distance] = (first.shuffled(order, second) for order in orders)
    return values


def _turned(rows: Sequence[Value]) -> list[Value]:
    """1, 2 or 4 rows of as many blocks of two elements, transposed by whole blocks."""
    if len(rows) == 1:
        return list(rows)
    count = len(rows)
    even, odd = (
        [2 * (block + row * count) + i for row in (0, 1) for block in range(side, count, 2) for i in (0, 1)]
        for side in (0, 1)
    )
    columns: list[Value] = []
    for order in (even, odd):
        halves = [rows[i].shuffled(order, rows[i + 1]) for i in range(0, count, 2)]
        columns += halves if count == 2 else [halves[0].shuffled(o, halves[1]) for o in (even, odd)]
    return columns if count == 2 else [columns[k] for k in (0, 2, 1, 3)]


def _exchanged(rows: Sequence[Value], unit: int) -> list[Value]:
    """By log2(rows) rounds of exchanges, of whatever size."""
    count, values = len(rows), list(rows)
    lanes, half = count * unit, count // 2
    while half:
        apart = half * unit
        low = [j if j & apart == 0 else j - apart + lanes for j in range(lanes)]
        high = [j + apart if j & apart == 0 else j + lanes for j in range(lanes)]
        for i in range(count):
            if i & half == 0:
                first, second = values[i], values[i + half]
                values[i], values[i + half] = first.shuffled(low, second), first.shuffled(high, second)
        half //= 2
    return values
