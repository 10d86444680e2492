"""f32 numbers as sums of bf16 numbers, for machines that multiply bf16 matrices many times as fast as f32 ones (AMX).

x = p1 + p2 + p3 exactly: p1 is x rounded to bf16, p2 what that leaves cut to bf16, p3 the rest, whose bits fit. An
f16 is the sum of two parts. Of the products of parts those below 2^-24 of the whole are left out (PRODUCTS).

What a matrix register multiplies is *pairs*: 16 lanes of 32 bits, in each the bf16 of two steps of the inner axis, the
first in the lower half. The order of a sum is free, so steps i and i + 16 are a pair: splitting never moves lanes.

The matrix registers take denormals for zeros, in the parts and in the products of parts. So a block of packed pairs
has a *range* beside it: two i32, the greatest and the least exponent (biased by 127) of its numbers but 0. `fits` says
of two blocks whether the product of their parts is right; where not, it is to be made of the numbers themselves, which
`joined` gives back. Of blocks that have infinities, NaN or numbers below 2^-102 the bits are kept instead of parts
(`raw`, noted in the range), and they fit no other.

    bounds = no_range(fn)                             # carried through the loop over the block
    pairs = split(low, high)                          # three <16 x i32>
    bounds = widened(bounds, pairs[0])
    ...
    is_raw = store_range(bounds, address)             # i1: pack again with `raw`, if the block must be whole
    with fn.when(fits(lhs_range, rhs_range, depth)): ...
"""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.llvm import I16, I32, Function, IfElse, Pointer, Value

LANES = 16
PRODUCTS = {
    1: (((0, 0),),),
    2: (((1, 0), (1, 1), (0, 1)), ((0, 0),)),
    3: (((2, 0), (1, 0), (1, 1), (0, 1), (0, 2)), ((0, 0),)),
}
"""By the number of parts: which of lhs are multiplied with which of rhs, all small ones before the great ones, so that
those alone are rounded to the size of the sum. From one to the next one side stays, and in its register."""
BOUND = I16.of(32)
RANGE_BYTES = 8

_UPPER = -1 << 16
"""The bits of a float that a bf16 has."""
_LEAST_EXPONENT = 25
"""From 2^-102 on all parts are normal numbers."""
_LEAST_SUM = 254 - 100
"""Sum of two exponents: from 2^-100 on all products of parts are normal numbers."""
_GREATEST_SUM = 254 + 120
"""Sum of two exponents and the logarithm of the count: sums of so many products are finite."""
_RAW = 1024
"""Stands for the greatest exponent of a raw block."""


def split(low: Value, high: Value, parts: int = 3) -> list[Value]:
    """The parts of two vectors of 16 floats, greatest first, as pairs: <16 x i32> each."""
    return [_paired(a, b) for a, b in zip(_parts(low, parts), _parts(high, parts), strict=True)]


def raw(low: Value, high: Value, parts: int = 3) -> list[Value]:
    """In place of two or three parts: the bits of the floats themselves, zeros."""
    return [low.as_bits(), high.as_bits(), *[low.fn.constant(0, I32.of(low.lanes))] * (parts - 2)]


def joined(pairs: Sequence[Value], is_raw: Value) -> list[Value]:
    """The two vectors of floats that `split` or, if the i1 holds, `raw` made pairs of."""
    out: list[Value] = []
    for number, half in zip(pairs, ([pair << 16 for pair in pairs], [pair & _UPPER for pair in pairs]), strict=False):
        total = half[-1].as_float()  # from the least: each sum is exact
        for bits in half[-2::-1]:
            total = total + bits.as_float()
        out.append(is_raw.select(number.as_float(), total))
    return out


def packed(
    values: Sequence[Value], parts: int, bounds: Sequence[Value], is_raw: Value
) -> tuple[Sequence[Value], Sequence[Value]]:
    """Vectors of 16 elements that share lanes of 32 bits, as registers of each part; and the bounds with them.

    Of one part any elements, in the order of the vectors; of several two vectors of floats, `raw` if the i1 holds.
    """
    if parts == 1:
        total, *others = (value.zext(32) for value in values)
        for number, value in enumerate(others, 1):
            total = total | (value << (number * 32 // len(values)))
        return [total], []
    low, high = values
    choice = IfElse(low.fn, is_raw)
    choice.otherwise(*raw(low, high, parts), *bounds)
    pairs = split(low, high, parts)
    found = choice.end(*pairs, *widened(bounds, pairs[0]))
    return found[:parts], found[parts:]


def no_range(fn: Function) -> list[Value]:
    """The bounds of no numbers: greatest and least, each the bits of |p1| without sign, minus 1."""
    return [fn.constant(-1, BOUND)] * 2


def store_no_range(address: Pointer) -> None:
    """Stores the bounds of no numbers, one after the other."""
    address.fn.memset(address, -1, 2 * BOUND.bytes * BOUND.lanes)


def widened(bounds: Sequence[Value], pairs: Value) -> list[Value]:
    """The bounds with the numbers whose first parts these pairs are."""
    below = (pairs.bitcast(BOUND) & 0x7FFF) + -1  # 0 is the least with sign, the greatest without
    greatest, least = bounds
    return [greatest.smax(below), least.umin(below)]


def store_range(bounds: Sequence[Value], address: Pointer, *, has_least: bool = True) -> Value:
    """Stores a block's range; an i1: the block must be raw. `has_least`: parts can be too small, which f16's cannot."""
    greatest, least = bounds[0].reduce("smax").cast("sext", "i32"), bounds[1].reduce("umin").zext(32)
    greatest, least = (greatest + 1) >> 7, (least + 1) >> 7
    is_raw = greatest >= 255
    if has_least:
        is_raw = is_raw | (least < _LEAST_EXPONENT)
    place = address.to(I32)
    place.store(is_raw.select(greatest.value(_RAW), greatest))
    place[1].store(least)
    return is_raw


def has_raw(range: Pointer) -> Value:
    """Whether the block with this range is raw, as i1."""
    return range.to(I32).load() >= _RAW


def fits(lhs: Pointer, rhs: Pointer, depth: int) -> Value:
    """Whether parts of the blocks with these ranges can be multiplied and up to `depth` products summed, as i1."""
    greatest, least = (lhs.to(I32)[k].load() + rhs.to(I32)[k].load() for k in (0, 1))
    return (greatest <= _GREATEST_SUM - depth.bit_length()) & (least >= _LEAST_SUM)


def _parts(value: Value, parts: int) -> list[Value]:
    """Bits of floats whose lower halves are 0 and which sum to the value."""
    found: list[Value] = []
    for part in range(parts - 1):
        bits = value.as_bits()
        if part == 0:  # rounded, which leaves 15 bits and a sign; of these 8 and 7 may be cut
            bits = bits + 0x8000
        found.append(bits & _UPPER)
        value = value - found[-1].as_float()
    return [*found, value.as_bits()]


def _paired(low: Value, high: Value) -> Value:
    """The upper halves of the first in the lower halves; the second's lower halves must be 0."""
    return (low >> 16) | high
