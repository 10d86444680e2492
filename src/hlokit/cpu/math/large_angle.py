"""Reduction of huge angles: the product with 1 / pi in integers wide enough for every finite argument."""

from __future__ import annotations

from functools import cache

from hlokit.cpu.math.lanes import MANTISSA, Lanes, Value

LIMIT = {32: 2.0**17, 64: 2.0**30}
"""Below these sizes the reduction in parts of pi is right."""

_WINDOW = {32: 128, 64: 192}


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


def _reduce(x: Value, shift: float) -> tuple[Value, Value]:
    """(r, k) as in functions._reduce_angle, of one lane x >= 2^16; NaN for infinity."""
    width, bits = _WINDOW[x.bits], MANTISSA[x.scalar]
    bias = (1 << (x.bits - 2 - bits)) - 1
    greatest = bias - bits
    # x = m 2^e; the window holds the bits of 2^e / pi from 2^0 down to 2^(1 - width)
    size = greatest + width
    wide = Lanes(x.lanes.fn, 1, x.lanes.target)
    magnitude = x.as_bits()
    m = (magnitude & ((1 << bits) - 1)) | (1 << bits)
    e = (magnitude >> bits) - (bias + bits)
    amount = (size - (width - 1)) - e
    total = wide.constant(0, f"i{size}") + _inverse_pi(size)
    window = (total >> amount.cast("zext", f"i{size}")).cast("trunc", f"i{width}")
    product = m.cast("zext", f"i{width}") * window
    if shift:
        product = product + (1 << (width - 2))
    parity = ((product + (1 << (width - 2))) >> (width - 1)).cast("trunc", f"i{x.bits}")
    signed = product << 1
    negative = signed.lt(0)
    distance = (0 - signed).where(negative, signed)
    zeros = x.lanes.fn.let(f"call i{width} @llvm.ctlz.i{width}(i{width} {distance.name}, i1 false)")
    lead = wide.value(zeros, f"i{width}")
    top = ((distance << lead) >> (width - 64)).cast("trunc", "i64")
    # 64 bits from the highest down: the value is top 2^(-64 - lead) of half turns
    high = (top >> 11).cast("uitofp", "double") * 2.0**-53
    low = (top & 0x7FF).cast("uitofp", "double") * 2.0**-64
    from hlokit.cpu.math.coefficients import PI_64

    first = high * PI_64[0]
    rest = high.fma(PI_64[0], -first) + high.fma(PI_64[1], low * PI_64[0])
    power = ((1023 - lead.cast("trunc", "i64")) << 52).as_float()
    angle = (first + rest) * power
    r = angle.cast("fptrunc", "float") if x.bits == 32 else angle
    flip = negative.cast("zext", f"i{x.bits}")
    r = (r.as_bits() ^ (flip << (x.bits - 1))).as_float()
    return r.where(x.compare("one", float("inf")), float("nan")), parity
