"""Squares of vectors in registers, transposed."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.llvm import Function, vector


def transposed(f: Function, rows: Sequence[str], scalar: str) -> list[str]:
    """A square of lanes x lanes, its rows become columns: log2(lanes) rounds of exchanges."""
    lanes, values = len(rows), list(rows)
    type = vector(scalar, lanes)
    if lanes == 16:
        return _transposed_16(f, values, type)
    half = lanes // 2
    while half:
        low = [j if j & half == 0 else j - half + lanes for j in range(lanes)]
        high = [j + half if j & half == 0 else j + lanes for j in range(lanes)]
        for i in range(lanes):
            if i & half == 0:
                pair = [values[i], values[i + half]]
                values[i], values[i + half] = (shuffled(f, type, pair, order) for order in (low, high))
        half //= 2
    return values


def _transposed_16(f: Function, rows: Sequence[str], type: str) -> list[str]:
    """By shuffles that AVX-512 has as instructions: within quarters twice, then whole quarters twice."""
    quarters = range(0, 16, 4)
    lows, highs = ([q + i + 16 * j for q in quarters for i in part for j in (0, 1)] for part in ((0, 1), (2, 3)))
    low_pairs, high_pairs = ([q + i + k for q in quarters for k in (0, 16) for i in part] for part in ((0, 1), (2, 3)))
    even, odd = ([q * 4 + i + k for k in (0, 16) for q in part for i in range(4)] for part in ((0, 2), (1, 3)))
    values = list(rows)
    for i in range(0, 16, 4):
        a, b, c, d = values[i : i + 4]
        low, high = ([shuffled(f, type, pair, order) for pair in ((a, b), (c, d))] for order in (lows, highs))
        values[i : i + 4] = [shuffled(f, type, pair, o) for pair in (low, high) for o in (low_pairs, high_pairs)]
    columns = [""] * 16
    for j in range(4):
        a, b, c, d = values[j::4]
        for first, order in ((0, even), (1, odd)):
            pair = [shuffled(f, type, two, order) for two in ((a, b), (c, d))]
            columns[4 * first + j] = shuffled(f, type, pair, even)
            columns[4 * (first + 2) + j] = shuffled(f, type, pair, odd)
    return columns


def shuffled(f: Function, type: str, pair: Sequence[str], order: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {i}" for i in order)
    return f.let(f"shufflevector {type} {pair[0]}, {type} {pair[1]}, <{len(order)} x i32> <{mask}>")
