"""Squares of vectors in registers, transposed."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.llvm import Function, vector

_BYTES = {"float": 4, "i32": 4, "double": 8}


def transposed(f: Function, rows: Sequence[str], scalar: str, unit: int = 1) -> list[str]:
    """A square whose rows become columns, of `unit` scalars that stay together.

    By shuffles that machines have as instructions, of as few elements as can be: LLVM takes its time with others.
    Neighbours are interleaved within blocks of 16 bytes, then whole blocks change sides.
    """
    count, lanes = len(rows), len(rows) * unit
    size = unit * _BYTES.get(scalar, 0)
    blocks = count * size // 16
    if size not in (4, 8, 16) or blocks not in (1, 2, 4):
        return _exchanged(f, rows, scalar, unit)
    given, pairs = vector(scalar, lanes), vector("double", 2 * blocks)
    values = list(rows)
    if size == 4:
        values = _interleaved(f, values, 1, given, lanes, 4)
    if given != pairs:
        values = [f.let(f"bitcast {given} {value} to {pairs}") for value in values]
    if size == 4:
        values = _interleaved(f, values, 2, pairs, 2 * blocks, 2)
        values = [values[i + j] for i in range(0, count, 4) for j in (0, 2, 1, 3)]
    elif size == 8:
        values = _interleaved(f, values, 1, pairs, 2 * blocks, 2)
    each = count // blocks
    lines = [_turned(f, values[i::each], pairs) for i in range(each)]
    values = [line[block] for block in range(blocks) for line in lines]
    return [f.let(f"bitcast {pairs} {value} to {given}") for value in values] if given != pairs else values


def _interleaved(f: Function, rows: Sequence[str], distance: int, type: str, lanes: int, each: int) -> list[str]:
    """Each two rows of that distance interleaved: the first halves of each block of `each` elements, and the others."""
    values, half = list(rows), each // 2
    orders = [
        [place + k for block in range(side, lanes, each) for place in range(block, block + half) for k in (0, lanes)]
        for side in (0, half)
    ]
    for i in range(len(values)):
        if not i & distance:
            pair = [values[i], values[i + distance]]
            values[i], values[i + distance] = (shuffled(f, type, pair, order) for order in orders)
    return values


def _turned(f: Function, rows: Sequence[str], type: str) -> list[str]:
    """1, 2 or 4 rows of as many blocks of two elements, transposed by whole blocks."""
    if len(rows) == 1:
        return list(rows)
    count = len(rows)
    even, odd = (
        [2 * (block + row * count) + i for row in (0, 1) for block in range(side, count, 2) for i in (0, 1)]
        for side in (0, 1)
    )
    columns = [""] * count
    for side, order in ((0, even), (1, odd)):
        halves = [shuffled(f, type, rows[i : i + 2], order) for i in range(0, count, 2)]
        if count == 2:
            columns[side] = halves[0]
        else:
            columns[side], columns[side + 2] = (shuffled(f, type, halves, o) for o in (even, odd))
    return columns


def _exchanged(f: Function, rows: Sequence[str], scalar: str, unit: int) -> list[str]:
    """By log2(rows) rounds of exchanges, of whatever size."""
    count, values = len(rows), list(rows)
    lanes = count * unit
    type, half = vector(scalar, lanes), count // 2
    while half:
        apart = half * unit
        low = [j if j & apart == 0 else j - apart + lanes for j in range(lanes)]
        high = [j + apart if j & apart == 0 else j + lanes for j in range(lanes)]
        for i in range(count):
            if i & half == 0:
                pair = [values[i], values[i + half]]
                values[i], values[i + half] = (shuffled(f, type, pair, order) for order in (low, high))
        half //= 2
    return values


def shuffled(f: Function, type: str, pair: Sequence[str], order: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {i}" for i in order)
    return f.let(f"shufflevector {type} {pair[0]}, {type} {pair[1]}, <{len(order)} x i32> <{mask}>")
