"""The transcendental primitives by name, in float and double: branch-free except for rare cases and remainders.

Each takes values of any number of lanes. Error bounds: bounds.py. Coefficients: coefficients.py, made by
tests/cpu/minimax.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hlokit.cpu.llvm import Repeat, Value, joined, type_of
from hlokit.cpu.math import coefficients
from hlokit.cpu.math.basics import (
    MANTISSA,
    clamp,
    exponent_and_mantissa,
    from_integer,
    horner,
    intrinsic_width,
    magic,
    reduce_exp,
    scale,
    scale_normal,
    table,
    to_integer,
)
from hlokit.cpu.math.large_angle import correct_large
from hlokit.cpu.math.pieces import has_pieces, odd_by_pieces
from hlokit.cpu.math.powers import power
from hlokit.cpu.target import Target

# -- exponentials


def exp(x: Value) -> Value:
    """0 below the least normal number (TYPE-11): with denormals, as of a masked softmax, all that follows would take
    the machine up to a hundred times longer."""
    least, most = (-87.33654022216797, 88.72283172607422) if x.bits == 32 else (-708.3964185322641, 709.782712893384)
    overflows = intrinsic_width(x) > 0  # to infinity, by AVX-512's instruction
    n, r = reduce_exp(x.value(most + 0.25).where(x > most + 0.25, x) if overflows else x)
    power = scale_normal(horner(r, (1.0, 1.0, *table("EXP", x))), n)
    if not overflows:
        power = power.where(x.compare("ole", most), x + math.inf)
    return power.where(x.compare("uge", least), 0.0)


def expm1(x: Value) -> Value:
    bounds = (-18.0, 89.0) if x.bits == 32 else (-38.0, 710.0)
    n, r = reduce_exp(clamp(x, *bounds))
    p = horner(r, table("EXP", x)).fma(r * r, r)
    # of half the power: the whole one may be infinite where the result is not
    half = scale_normal(x.value(0.5), n)
    result = p.fma(half, half - 0.5)
    result = result + result
    return x.where(x.abs() < 2.0 ** -(MANTISSA[x.scalar] + 2), result)


def tanh(x: Value) -> Value:
    """In pieces; else x + x^3 T(x^2) for small x, above 1 - 2 / (exp(2|x|) + 1)."""
    if has_pieces(x):
        return odd_by_pieces(x, coefficients.TANH_LIMIT32[0], coefficients.TANH_PIECES32)
    size = x.abs()
    limit = 10.0 if x.bits == 32 else 20.0
    size = x.value(limit).where(size > limit, size)
    away = x.value(2.0**-50).where(size < 2.0**-50, size)  # a square that is denormal takes a hundred times longer
    square = away * away
    near = (horner(square, table("TANH", x)) * square).fma(size, size)
    y = size * (2 * table("LOG2E_", x)[0])
    n = y.rounded()
    power = scale_normal(horner(y - n, table("EXP2_", x)), n)
    far = 1.0 - x.value(2.0) / (power + 1.0)
    return near.where(size.compare("ult", 0.87), far).copysign(x)


# -- logarithms


def _log_of_parts(e: Value, f: Value) -> Value:
    """e ln 2 + log(1 + f), for f in [-0.25, 0.5)."""
    high, low = table("LN2_", f)
    tail = horner(f, table("LOG", f)).fma(f * f, e * low)
    return e.fma(high, f + tail)


def log(x: Value) -> Value:
    e, m = exponent_and_mantissa(x)
    return _log_of_parts(e, m - 1.0)


def log1p(x: Value) -> Value:
    """1 + x gives the exponent e; x 2^-e + (2^-e - 1) the mantissa, rounded once. Of an x that 1 does not change 2^-e
    may be a denormal, which products take for zero."""
    total = x + 1.0
    e, m = exponent_and_mantissa(total)
    down = scale(x.value(1.0), -e)
    result = _log_of_parts(e, (m - 1.0).where(e > MANTISSA[x.scalar] + 2.0, x.fma(down, down - 1.0)))
    result = e.where(e.abs().compare("oeq", math.inf), result)
    return m.where(m.compare("uno", m), result).copysign(x)


# -- angles


def _sine_of_reduced(r: Value, flip: Value) -> Value:
    """sin(r) for |r| <= 1.6, its sign flipped where the integer `flip` has its highest bit."""
    square = r * r
    tail = horner(square, table("SIN", r))
    result = (tail * square).fma(r, r)
    if r.scalar == "double":  # the float's coefficients were chosen never to pass 1
        result = clamp(result, -1.0, 1.0)
    return (result.as_bits() ^ flip).as_float()


def _reduce_angle(x: Value, shift: float) -> tuple[Value, Value]:
    """(r, k) with x = r + (k - shift) pi, |r| <= pi / 2; k is the lowest bit of the integer."""
    inverse = table("INVERSE_PI_", x)[0]
    if shift:
        whole = x.fma(inverse, shift) + magic(x)
        n = (whole - magic(x)) - shift
    else:
        whole = x.fma(inverse, magic(x))
        n = whole - magic(x)
    r = x
    for part in table("PI_", x):
        r = n.fma(-part, r)
    return correct_large(x, r, whole.as_bits(), shift)


def sin(x: Value) -> Value:
    r, k = _reduce_angle(x.abs(), 0.0)
    sign = x.as_bits() & (-1 << (x.bits - 1))
    return _sine_of_reduced(r, (k << (x.bits - 1)) ^ sign)


def cos(x: Value) -> Value:
    r, k = _reduce_angle(x.abs(), 0.5)
    return _sine_of_reduced(r, k << (x.bits - 1))


def atan2(y: Value, x: Value) -> Value:
    tall, wide = y.abs(), x.abs()
    is_steep = tall > wide
    least, most = is_steep.select(wide, tall), is_steep.select(tall, wide)
    ratio = least / most
    ratio = x.value(0.0).where(most.eq(0.0), ratio)
    ratio = x.value(1.0).where(least.eq(math.inf), ratio)
    square = ratio * ratio
    tail = (horner(square, table("ATAN", x)) * square) * ratio
    high, low = table("HALF_PI_", x)
    # angle = base - (ratio + tail) or base + ..., the base a multiple of pi / 2 in two parts
    is_left = x.as_bits() < 0
    zero = x.value(0.0)
    base = x.value(high).where(is_steep, x.value(2 * high).where(is_left, zero))
    rest = x.value(low).where(is_steep, x.value(2 * low).where(is_left, zero))
    # steep and right, or flat and left: the base less the angle
    flip = is_steep ^ is_left
    signed_ratio, signed_tail = (flip.select(-v, v) for v in (ratio, tail))
    angle = base + (signed_ratio + (signed_tail + rest))
    angle = x.compare("uno", y).select(x + y, angle)
    return angle.copysign(y)


# -- roots


def has_short_rsqrt(target: Target) -> bool:
    """Whether rsqrt of floats takes less than a division."""
    return target.arch == "x86_64" and target.has("avx512f") and target.has("avx512vl")


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x); where the machine knows it to 14 bits, by one step of third order."""
    if x.bits == 64 or not has_short_rsqrt(x.fn.target):
        return 1.0 / x.sqrt()
    if x.lanes < 4:
        return rsqrt(x.padded(4)).first(x.lanes)
    width = intrinsic_width(x)
    kind, mask = x.type.of(width), x.fn.constant(-1, type_of(f"i{max(8, width)}"))
    name = f"llvm.x86.avx512.rsqrt14.ps.{32 * width}"
    y = joined([x.fn.call_for(kind, name, part, x.fn.zeros(kind), mask) for part in x.split(width)])
    error = (x * y).fma(-y, 1.0)
    better = (y * error).fma(error.fma(0.375, 0.5), y)
    return better.where(error.compare("ord", error), y)  # y is right for zeros, infinity and what has no root


def cbrt(x: Value) -> Value:
    """Halley's iteration from a third of the bits, as an integer; then a step of Newton's."""
    bits = MANTISSA[x.scalar]
    size = x.abs()
    bias = (1 << (x.bits - 2 - bits)) - 1
    is_small = size < 2.0 ** (1 - bias)
    lift = 3 * (bits // 3 + 1)
    size = (size * 2.0**lift).where(is_small, size)
    low = bits - 13  # bits of the mantissa that do not count
    third = to_integer(from_integer(size.as_bits() >> low) * (1 / 3)) << low
    offset = int((bias - bias / 3 - 0.0425) * 2.0**bits)
    y = (third + offset).as_float()
    for _ in range(2 if x.bits == 32 else 3):
        quotient = size / (y * y)
        y = y * ((y + quotient + quotient) / (y + y + quotient))
    # the last step in y's own residual: size - y^3 exact enough by two products in parts
    square = y * y
    square_rest = y.fma(y, -square)
    residual = square.fma(-y, size)
    residual = square_rest.fma(-y, residual)
    y = (residual / (square * 3.0)) + y
    y = (y * 2.0 ** -(lift // 3)).where(is_small, y)
    y = y.copysign(x)
    special = x.compare("oeq", 0.0).binary("or", x.abs().compare("ueq", math.inf))
    return x.where(special, y)


# -- error function


def erf(x: Value) -> Value:
    if has_pieces(x):
        return odd_by_pieces(x, coefficients.ERF_LIMIT32[0], coefficients.ERF_PIECES32)
    return _erf32(x) if x.bits == 32 else _erf64(x)


def _erf32(x: Value) -> Value:
    """x + x S(x^2) for small x, else 1 - 2^q(|x|)."""
    size = x.abs()
    size = x.value(3.93).where(size > 3.93, size)
    square = size * size
    near = horner(square, coefficients.ERF_SMALL32).fma(size, size)
    q = horner(size, coefficients.ERFC_LOG2_32)
    n = q.rounded()
    far = 1.0 - scale_normal(horner(q - n, coefficients.EXP2_32), n)
    return near.where(size.compare("ult", 0.92), far).copysign(x)


def _erf64(x: Value) -> Value:
    """A polynomial below 1, else 1 - exp(-x^2) P(|x|) / Q(|x|)."""
    size = x.abs()
    size = x.value(6.0).where(size > 6.0, size)
    square = size * size
    near = size * horner(square, coefficients.ERF_SMALL64)
    tail = exp(-square) * (horner(size, coefficients.ERFC_P64) / horner(size, coefficients.ERFC_Q64))
    return near.where(size < 1.0, 1.0 - tail).copysign(x)


# -- remainders


def remainder(x: Value, y: Value) -> Value:
    """x - trunc(x / y) y, exact: quotients of 53 bits at a time until what is left is less than y."""
    if x.bits == 32:
        wide = [v.cast("fpext", "double") for v in (x, y)]
        return _remainder(wide[0], wide[1], 1.0).cast("fptrunc", "float").copysign(x)
    return _remainder(x, y, 2.0**1000).copysign(x)


def _remainder(x: Value, y: Value, step: float) -> Value:
    """`step`: where a quotient could overflow, y times it, or its square, is subtracted first."""
    divisor = y.abs()
    loop = Repeat(x.fn, [x])
    (rest,) = loop.values
    by = divisor
    if step != 1.0:
        part = rest.abs() * (1 / step)
        by = (divisor * step).where(part > divisor, divisor)
        by = (by * step).where(part > by, by)
    quotient = (rest / by).rounded()
    following = (-quotient).fma(by, rest)
    loop.while_((following.abs() >= divisor).any(), following)
    # the nearest multiple was subtracted: one less where that left the other sign
    wrong = ((following.as_bits() ^ x.as_bits()) < 0) & following.compare("one", 0.0)
    result = (following + divisor.copysign(x)).where(wrong, following)
    return x.where(x.abs() < divisor, result)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "erf": erf,
    "pow": power,
    "rem": remainder,
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
    "atan2": atan2,
    "cbrt": cbrt,
    "rsqrt": rsqrt,
}
