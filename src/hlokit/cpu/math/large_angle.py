"""Reduction of huge angles: the product with 1 / pi in integers wide enough for every finite argument."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from hlokit.cpu.math.coefficients import PI_64
from hlokit.cpu.math.lanes import MANTISSA, Lanes, Value

LIMIT = {32: 2.0**17, 64: 2.0**30}
"""Below these sizes the reduction in parts of pi is right."""

_WORDS = {32: 2, 64: 3}
"""Words of 64 bits that a product is taken in: the least distance from a multiple of pi keeps 2^-60 of itself."""


def correct_large(x: Value, r: Value, parity: Value, shift: float) -> tuple[Value, Value]:
    """(r, parity) with the lanes of large x reduced anew, one by one, in a branch that is taken if there are any.

    x is not negative.
    """
    lanes, fn = x.lanes, x.lanes.fn
    large = x.compare("ogt", LIMIT[x.bits])
    any_large = lanes.any(large)
    before, slow, after = fn.block, fn.new_block("large"), fn.new_block("reduced")
    fn.do(f'br i1 {any_large}, label %{slow}, label %{after}, !prof !{{!"branch_weights", i32 1, i32 100000}}')
    fn.start(slow)
    if lanes.lanes == 1:
        new_r, new_parity = _reduce(x, shift)
        results = [new_r.name, new_parity.name]
    else:
        carries = [(r.type, r.name), (parity.type, parity.name)]
        with fn.loop("0", str(lanes.lanes), 1, carries) as loop:
            one = Lanes(fn, 1, lanes.target)
            lane = one.let(f"extractelement {x.type} {x.name}, i64 {loop.index}", x.scalar)
            old_r = one.let(f"extractelement {r.type} {r.name}, i64 {loop.index}", r.scalar)
            old_parity = one.let(f"extractelement {parity.type} {parity.name}, i64 {loop.index}", parity.scalar)
            is_large = lane.compare("ogt", LIMIT[x.bits])
            new_r, new_parity = _reduce(lane, shift)
            new_r, new_parity = new_r.where(is_large, old_r), new_parity.where(is_large, old_parity)
            for carried, new in zip(loop.carried, (new_r, new_parity), strict=True):
                kind = lanes.type(new.scalar)
                loop.next.append(fn.let(f"insertelement {kind} {carried}, {new.scalar} {new.name}, i64 {loop.index}"))
        results = loop.results
    last = fn.block
    fn.jump(after)
    fn.start(after)
    merged = [
        lanes.let(f"phi {v.type} [ {v.name}, %{before} ], [ {new}, %{last} ]", v.scalar)
        for v, new in zip((r, parity), results, strict=True)
    ]
    return merged[0], merged[1]


@cache
def _inverse_pi(bits: int) -> int:
    """floor(2^bits / pi), by Machin's formula in integers."""
    guard = bits + 64

    def arctan_of_inverse(n: int) -> int:
        total, power, k = 0, (1 << guard) // n, 0
        while power:
            total += (-1) ** k * (power // (2 * k + 1))
            power, k = power // (n * n), k + 1
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (1 << (bits + guard)) // pi


def _words_at(index: Value, count: int, taken: int) -> list[Value]:
    """`taken` words of 64 bits from `index` on, of a zero word followed by the first count - 1 of 1 / pi."""
    lanes, fn = index.lanes, index.lanes.fn
    whole = _inverse_pi(64 * (count - 1))
    words = [whole >> (64 * k) & (2**64 - 1) for k in reversed(range(count))]
    table = fn.alloca(f"[{count} x i64]")
    fn.do(f"store <{count} x i64> <{', '.join(f'i64 {w}' for w in words)}>, ptr {table}")
    found: list[Value] = []
    for k in range(taken):
        place = fn.let(f"getelementptr i64, ptr {table}, i64 {(index + k).name}")
        found.append(lanes.let(f"load i64, ptr {place}", "i64"))
    return found


def _reduce(x: Value, shift: float) -> tuple[Value, Value]:
    """(r, k) as in functions._reduce_angle, of one lane x > LIMIT; NaN for infinity."""
    lanes, fn, words, bits = x.lanes, x.lanes.fn, _WORDS[x.bits], MANTISSA[x.scalar]
    bias = (1 << (x.bits - 2 - bits)) - 1
    width = 64 * words
    # x = m 2^e; the window holds the bits of 2^e / pi from 2^0 down to 2^(1 - width)
    large = x.where(x.gt(LIMIT[x.bits]), LIMIT[x.bits])  # the other lanes' results are not taken
    m = (large.as_bits() & ((1 << bits) - 1)) | (1 << bits)
    e = ((large.as_bits() >> bits) - (bias + bits)).cast("sext" if x.bits == 32 else "bitcast", "i64")
    place = e + 63
    window = lanes.constant(0, f"i{width}")
    parts = _words_at(place >> 6, 1 + (bias - bits + 63) // 64 + words, words + 1)
    shift_left = place & 63
    for high, low in pairwise(parts):
        word = lanes.call("fshl", "i64", high, low, shift_left)
        window = (window << 64) | word.cast("zext", f"i{width}")
    product = m.cast("zext", f"i{width}") * window
    if shift:
        product = product + (1 << (width - 2))
    parity = ((product + (1 << (width - 2))) >> (width - 1)).cast("trunc", f"i{x.bits}")
    signed = product << 1
    negative = signed.lt(0)
    distance = (0 - signed).where(negative, signed)
    high, low = (((distance >> (width - 64 * k)).cast("trunc", "i64")) for k in (1, 2))
    lead = lanes.value(fn.let(f"call i64 @llvm.ctlz.i64(i64 {high.name}, i1 false)"), "i64")
    # 64 bits from the highest down: the value is top 2^(-64 - lead) of half turns
    top = lanes.call("fshl", "i64", high, low, lead)
    high = (top >> 11).cast("uitofp", "double") * 2.0**-53
    low = (top & 0x7FF).cast("uitofp", "double") * 2.0**-64
    first = high * PI_64[0]
    rest = high.fma(PI_64[0], -first) + high.fma(PI_64[1], low * PI_64[0])
    power = ((1023 - lead) << 52).as_float()
    angle = (first + rest) * power
    r = angle.cast("fptrunc", "float") if x.bits == 32 else angle
    flip = negative.cast("zext", f"i{x.bits}")
    r = (r.as_bits() ^ (flip << (x.bits - 1))).as_float()
    return r.where(x.compare("one", float("inf")), float("nan")), parity
