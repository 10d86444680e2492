"""Reduction of huge angles: the product with 1 / pi in integers wide enough for every finite argument."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from hlokit.cpu.llvm import I8, I64, POINTER, Function, Pointer, Prototype, Value, type_of, unlikely
from hlokit.cpu.math.basics import MANTISSA
from hlokit.cpu.math.coefficients import PI_64

LIMIT = {32: 2.0**17, 64: 2.0**30}
"""Below these sizes the reduction in parts of pi is right."""

_WORDS = {32: 2, 64: 3}
"""Words of 64 bits that a product is taken in: the least distance from a multiple of pi keeps 2^-60 of itself."""


def correct_large(x: Value, r: Value, parity: Value, shift: float) -> tuple[Value, Value]:
    """(r, parity) with the lanes of large x reduced anew, one by one, in a branch that is taken if there are any.

    x is not negative.
    """
    fn = x.fn

    def reduced() -> list[Value]:
        size = x.lanes * x.bits // 8
        memory = fn.scratch(I8.array(3 * size))
        places = [(memory + k * size).to(type_of(v.scalar)) for k, v in enumerate((x, r, parity))]
        for place, value in zip(places, (x, r, parity), strict=True):
            place.store(value)
        fn.call(_large_angles(x.scalar, shift), *places, fn.constant(x.lanes, I64))
        return [place.load(x.lanes) for place in places[1:]]

    r, parity = unlikely(x > LIMIT[x.bits], [r, parity], reduced)
    return r, parity


@cache
def _large_angles(scalar: str, shift: float) -> Prototype[None]:
    """The function that replaces r and parity of the large ones of some x.

    It is called, not inlined: it is longer than all else of a sine.
    """
    parameters = {"x": POINTER, "r": POINTER, "parity": POINTER, "lanes": I64}
    prototype = Prototype(f"hlokit_large_angles_{scalar}{'_shifted' if shift else ''}", None, parameters)

    def write() -> Function:
        f = Function(
            prototype.name, [(t, n) for n, t in parameters.items()], attributes="noinline nounwind", shared="angles"
        )
        floating = type_of(scalar)
        integer = type_of(f"i{8 * floating.bytes}")
        x, r, parity = f.pointer("x", floating), f.pointer("r", floating), f.pointer("parity", integer)
        with f.loop(0, f.argument("lanes")) as loop:
            lane = x[loop.index].load()
            with f.when(lane > LIMIT[lane.bits]):
                for place, value in zip((r, parity), _reduce(lane, shift), strict=True):
                    place[loop.index].store(value)
        f.returns()
        return f

    return prototype.companion(write)


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
    fn = index.fn
    whole = _inverse_pi(64 * (count - 1))
    words = [whole >> (64 * k) & (2**64 - 1) for k in reversed(range(count))]
    table = Pointer(fn, fn.alloca(I64.array(count)), I64)
    table.store(fn.vector_constant(words, I64))
    return [table[index + k].load() for k in range(taken)]


def _reduce(x: Value, shift: float) -> tuple[Value, Value]:
    """(r, k) as in functions._reduce_angle, of one lane x > LIMIT; NaN for infinity."""
    words, bits = _WORDS[x.bits], MANTISSA[x.scalar]
    bias = (1 << (x.bits - 2 - bits)) - 1
    width = 64 * words
    # x = m 2^e; the window holds the bits of 2^e / pi from 2^0 down to 2^(1 - width)
    large = x.where(x > LIMIT[x.bits], LIMIT[x.bits])  # the other lanes' results are not taken
    m = (large.as_bits() & ((1 << bits) - 1)) | (1 << bits)
    e = ((large.as_bits() >> bits) - (bias + bits)).cast("sext" if x.bits == 32 else "bitcast", "i64")
    place = e + 63
    window = x.fn.constant(0, type_of(f"i{width}"))
    parts = _words_at(place >> 6, 1 + (bias - bits + 63) // 64 + words, words + 1)
    shift_left = place & 63
    for high, low in pairwise(parts):
        word = high.intrinsic("fshl", low, shift_left)
        window = (window << 64) | word.cast("zext", f"i{width}")
    product = m.cast("zext", f"i{width}") * window
    if shift:
        product = product + (1 << (width - 2))
    parity = ((product + (1 << (width - 2))) >> (width - 1)).cast("trunc", f"i{x.bits}")
    signed = product << 1
    negative = signed < 0
    distance = (0 - signed).where(negative, signed)
    high, low = (((distance >> (width - 64 * k)).cast("trunc", "i64")) for k in (1, 2))
    lead = high.intrinsic("ctlz", extra=", i1 false")
    # 64 bits from the highest down: the value is top 2^(-64 - lead) of half turns
    top = high.intrinsic("fshl", low, lead)
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
