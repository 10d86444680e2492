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

    bounds = [(BOUND, g), (BOUND, l)] of `NO_RANGE`   # carried through the loop over the block
    pairs = split(fn, low, high)                      # three <16 x i32>
    bounds = widened(fn, bounds, pairs[0])
    ...
    is_raw = store_range(fn, bounds, address)         # i1: pack again with `raw`, if the block must be whole
    with fn.when(fits(fn, lhs_range, rhs_range, depth)): ...
"""

from __future__ import annotations

from hlokit.cpu.kernels.contraction.elements import pointer
from hlokit.cpu.llvm import Function, splat

LANES = 16
PRODUCTS = {
    1: (((0, 0),),),
    2: (((1, 0), (1, 1), (0, 1)), ((0, 0),)),
    3: (((2, 0), (1, 0), (1, 1), (0, 1), (0, 2)), ((0, 0),)),
}
"""By the number of parts: which of lhs are multiplied with which of rhs, all small ones before the great ones, so that
those alone are rounded to the size of the sum. From one to the next one side stays, and in its register."""
BOUND = "<32 x i16>"
NO_RANGE = (splat("-1", "i16", 32), splat("-1", "i16", 32))
"""The bounds of no numbers: greatest and least, each the bits of |p1| without sign, minus 1."""
RANGE_BYTES = 8

_FLOAT, _I32 = f"<{LANES} x float>", f"<{LANES} x i32>"
_LEAST_EXPONENT = 25
"""From 2^-102 on all parts are normal numbers."""
_LEAST_SUM = 254 - 100
"""Of two exponents: from 2^-100 on all products of parts are normal numbers."""
_GREATEST_SUM = 254 + 120
"""Of two exponents and the logarithm of the count: sums of so many products are finite."""
_RAW = 1024
"""Stands for the greatest exponent of a raw block."""


def split(fn: Function, low: str, high: str, parts: int = 3) -> list[str]:
    """The parts of two vectors of 16 floats (register values), greatest first, as pairs: <16 x i32> each."""
    pieces = [_parts(fn, value, parts) for value in (low, high)]
    return [_paired(fn, a, b) for a, b in zip(*pieces, strict=True)]


def raw(fn: Function, low: str, high: str, parts: int = 3) -> list[str]:
    """In place of two or three parts: the upper halves of the floats' bits, the lower halves, zeros."""
    a, b = (_bits(fn, value) for value in (low, high))
    upper = _paired(fn, a, fn.let(f"and {_I32} {b}, {splat('-65536', 'i32', LANES)}"))
    lower = fn.let(f"and {_I32} {a}, {splat('65535', 'i32', LANES)}")
    shifted = fn.let(f"shl {_I32} {b}, {splat('16', 'i32', LANES)}")
    rest = ["zeroinitializer"] * (parts - 2)
    return [upper, fn.let(f"or {_I32} {lower}, {shifted}"), *rest]


def joined(fn: Function, pairs: list[str], is_raw: str) -> tuple[str, str]:
    """The two vectors of floats that `split` or, if the i1 holds, `raw` made pairs of."""
    halves = [
        [fn.let(f"shl {_I32} {p}, {splat('16', 'i32', LANES)}") for p in pairs],
        [fn.let(f"and {_I32} {p}, {splat('-65536', 'i32', LANES)}") for p in pairs],
    ]
    out: list[str] = []
    for own, half in enumerate(halves):
        total = _float(fn, half[-1])  # from the least: each sum is exact
        for bits in half[-2::-1]:
            total = fn.let(f"fadd {_FLOAT} {total}, {_float(fn, bits)}")
        if len(pairs) > 1:
            below = fn.let(f"lshr {_I32} {halves[own][1]}, {splat('16', 'i32', LANES)}")
            whole = _float(fn, fn.let(f"or {_I32} {half[0]}, {below}"))
            total = fn.let(f"select i1 {is_raw}, {_FLOAT} {whole}, {_FLOAT} {total}")
        out.append(total)
    return out[0], out[1]


def widened(fn: Function, bounds: list[str], pairs: str) -> list[str]:
    """The bounds with the numbers whose first parts these pairs are."""
    halves = fn.let(f"bitcast {_I32} {pairs} to {BOUND}")
    size = fn.let(f"and {BOUND} {halves}, {splat('32767', 'i16', 32)}")
    below = fn.let(f"add {BOUND} {size}, {splat('-1', 'i16', 32)}")  # 0 is the least with sign, the greatest without
    return [
        fn.let(f"call {BOUND} @llvm.{name}.v32i16({BOUND} {bound}, {BOUND} {below})")
        for name, bound in zip(("smax", "umin"), bounds, strict=True)
    ]


def no_range(fn: Function, address: str) -> None:
    """Stores NO_RANGE, one after the other."""
    fn.do(f"call void @llvm.memset.p0.i64(ptr {address}, i8 -1, i64 128, i1 false)")


def store_range(fn: Function, bounds: list[str], address: str, *, has_least: bool = True) -> str:
    """Stores a block's range; an i1: the block must be raw. `has_least`: parts can be too small, which f16's cannot."""
    exponents: list[str] = []
    for name, bound, extension in zip(("smax", "umin"), bounds, ("sext", "zext"), strict=True):
        one = fn.let(f"call i16 @llvm.vector.reduce.{name}.v32i16({BOUND} {bound})")
        whole = fn.let(f"add i32 {fn.let(f'{extension} i16 {one} to i32')}, 1")
        exponents.append(fn.let(f"lshr i32 {whole}, 7"))
    greatest, least = exponents
    is_raw = fn.let(f"icmp sge i32 {greatest}, 255")
    if has_least:
        is_raw = fn.let(f"or i1 {is_raw}, {fn.let(f'icmp slt i32 {least}, {_LEAST_EXPONENT}')}")
    shown = fn.let(f"select i1 {is_raw}, i32 {_RAW}, i32 {greatest}")
    fn.do(f"store i32 {shown}, ptr {address}, align 4")
    fn.do(f"store i32 {least}, ptr {pointer(fn, address, '4', 1)}, align 4")
    return is_raw


def has_raw(fn: Function, address: str) -> str:
    """Whether the block with this range is raw, as i1."""
    greatest = fn.let(f"load i32, ptr {address}, align 4")
    return fn.let(f"icmp sge i32 {greatest}, {_RAW}")


def fits(fn: Function, lhs: str, rhs: str, depth: int) -> str:
    """Whether parts of the blocks with these ranges can be multiplied and up to `depth` products summed, as i1."""
    sums: list[str] = []
    for offset in ("0", "4"):
        both = [fn.let(f"load i32, ptr {pointer(fn, side, offset, 1)}, align 4") for side in (lhs, rhs)]
        sums.append(fn.let(f"add i32 {both[0]}, {both[1]}"))
    is_finite = fn.let(f"icmp sle i32 {sums[0]}, {_GREATEST_SUM - depth.bit_length()}")
    return fn.let(f"and i1 {is_finite}, {fn.let(f'icmp sge i32 {sums[1]}, {_LEAST_SUM}')}")


def _parts(fn: Function, value: str, parts: int) -> list[str]:
    """Bits of floats whose lower halves are 0 and which sum to the value."""
    found: list[str] = []
    for part in range(parts - 1):
        bits = _bits(fn, value)
        if part == 0:  # rounded, which leaves 15 bits and a sign; of these 8 and 7 may be cut
            bits = fn.let(f"add {_I32} {bits}, {splat('32768', 'i32', LANES)}")
        found.append(fn.let(f"and {_I32} {bits}, {splat('-65536', 'i32', LANES)}"))
        value = fn.let(f"fsub {_FLOAT} {value}, {_float(fn, found[-1])}")
    return [*found, _bits(fn, value)]


def _paired(fn: Function, low: str, high: str) -> str:
    """The upper halves of the first in the lower halves; the second's lower halves must be 0."""
    down = fn.let(f"lshr {_I32} {low}, {splat('16', 'i32', LANES)}")
    return fn.let(f"or {_I32} {down}, {high}")


def _bits(fn: Function, value: str) -> str:
    return fn.let(f"bitcast {_FLOAT} {value} to {_I32}")


def _float(fn: Function, bits: str) -> str:
    return fn.let(f"bitcast {_I32} {bits} to {_FLOAT}")
