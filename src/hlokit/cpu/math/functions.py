"""The transcendental primitives by name, in float and double: branch-free but for huge arguments of sin and cos.

Each takes values of any number of lanes. Error bounds: bounds.py. Coefficients: coefficients.py, made by
tests/cpu/minimax.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hlokit.cpu.math import coefficients
from hlokit.cpu.math.lanes import MANTISSA, Lanes, Value


def _table(name: str, x: Value) -> Sequence[float]:
    return getattr(coefficients, f"{name}{x.bits}")


def horner(x: Value, terms: Sequence[float]) -> Value:
    """terms[0] + terms[1] x + terms[2] x^2 + ..."""
    total = x.operand(terms[-1])
    for term in reversed(terms[:-1]):
        total = total.fma(x, term)
    return total


# -- powers of two


def _intrinsic_width(x: Value) -> int:
    """Lanes that AVX-512's instructions for exponents take at a time, of 16, 32 or 64 bytes; 0 without them."""
    target, size = x.lanes.target, x.bits // 8
    if "x86" not in target.triple or not target.has("avx512f") or not target.has("avx512vl"):
        return 0
    widest = min(x.lanes.lanes, 64 // size)
    return widest if widest * size >= 16 else 0


def _masked(name: str, x: Value, operands: Sequence[Value], immediate: str = "") -> Value:
    """An AVX-512 intrinsic `name` over all lanes, in pieces of its own width."""
    width = _intrinsic_width(x)
    suffix = f"{'ps' if x.scalar == 'float' else 'pd'}.{width * x.bits}"
    mask = f"i{max(8, width)} -1"
    # those of 512 bits take a rounding mode: 4 is the current one
    mode = ", i32 4" if width * x.bits == 512 else ""
    pieces: list[Value] = []
    for parts in zip(*(x.lanes.split(v, width) for v in operands), strict=True):
        kind = parts[0].type
        listed = ", ".join(f"{kind} {v.name}" for v in parts)
        call = f"call {kind} @llvm.x86.avx512.mask.{name}.{suffix}({listed}{immediate}, {kind} zeroinitializer, {mask}{mode})"
        pieces.append(parts[0].lanes.let(call, x.scalar))
    return x.lanes.join(pieces)


def scale(x: Value, n: Value) -> Value:
    """x * 2^n rounded once, for integral n of a few thousands at most, x's size near 1."""
    if _intrinsic_width(x):
        return _masked("scalef", x, [x, n])
    half = n.cast("fptosi", f"i{x.bits}")
    first = half.sar(1)
    return x * power_of_two(first, x.scalar) * power_of_two(half - first, x.scalar)


def power_of_two(n: Value, scalar: str) -> Value:
    """2^n as a float, for integers n of normal powers."""
    mantissa = MANTISSA[scalar]
    bias = (1 << (n.bits - 2 - mantissa)) - 1
    return ((n + bias) << mantissa).as_float()


def exponent_and_mantissa(x: Value) -> tuple[Value, Value]:
    """(e, m) with x = m * 2^e, m in [0.75, 1.5). Infinite e for zero and infinity; m is NaN for negative x and NaN."""
    if _intrinsic_width(x):
        mantissa = _masked("getmant", x, [x], f", i32 {3 | 2 << 2}")
        return _masked("getexp", x, [x]) - _masked("getexp", x, [mantissa]), mantissa
    lanes, bits = x.lanes, MANTISSA[x.scalar]
    bias = (1 << (x.bits - 2 - bits)) - 1
    least = 2.0 ** (1 - bias)
    is_small = x.lt(least)
    scaled = (x * 2.0**bits).where(is_small, x)
    whole = scaled.as_bits()
    start = lanes.constant(0.75, x.scalar).as_bits()
    moved = whole - start
    exponent = moved.sar(bits)
    mantissa = (whole - (exponent << bits)).as_float()
    e = exponent.cast("sitofp", x.scalar) - x.operand(float(bits)).where(is_small, 0.0)
    e = e.where(x.gt(0.0), -math.inf)
    infinite = x.compare("oeq", math.inf)
    e = x.where(infinite, e)
    mantissa = x.operand(1.0).where(infinite, mantissa)
    mantissa = mantissa.where(x.compare("oge", 0.0), math.nan)
    return e, mantissa.where(x.compare("une", 0.0), 1.0)


# -- exponentials


def _clamp(x: Value, low: float, high: float) -> Value:
    """x within bounds; NaN stays."""
    x = x.operand(high).where(x.gt(high), x)
    return x.operand(low).where(x.lt(low), x)


def _reduce_exp(x: Value) -> tuple[Value, Value]:
    """(n, r) with x = n ln 2 + r, n integral, |r| <= ln 2 / 2."""
    n = (x * _table("LOG2E_", x)[0]).rounded()
    high, low = _table("LN2_", x)
    return n, n.fma(-low, n.fma(-high, x))


def exp(x: Value) -> Value:
    bounds = (-104.0, 89.0) if x.bits == 32 else (-746.0, 710.0)
    n, r = _reduce_exp(_clamp(x, *bounds))
    power = horner(r, (1.0, 1.0, *_table("EXP", x)))
    return scale(power, n)


def expm1(x: Value) -> Value:
    bounds = (-18.0, 89.0) if x.bits == 32 else (-38.0, 710.0)
    n, r = _reduce_exp(_clamp(x, *bounds))
    p = horner(r, _table("EXP", x)).fma(r * r, r)
    # of half the power: the whole one may be infinite where the result is not
    half = scale(x.operand(0.5), n)
    result = p.fma(half, half - 0.5)
    result = result + result
    return x.where(x.abs().lt(2.0 ** -(MANTISSA[x.scalar] + 2)), result)


def tanh(x: Value) -> Value:
    """t / (t + 2) of t = exp(2|x|) - 1."""
    size = x.abs()
    limit = 10.0 if x.bits == 32 else 20.0
    doubled = size + size
    clamped = x.operand(2 * limit).where(doubled.gt(2 * limit), doubled)
    n, r = _reduce_exp(clamped)
    p = horner(r, _table("EXP", x)).fma(r * r, r)
    power = scale(x.operand(1.0), n)
    t = p.fma(power, power - 1.0)
    return (t / (t + 2.0)).copysign(x)


# -- logarithms


def _log_of_parts(e: Value, f: Value) -> Value:
    """e ln 2 + log(1 + f), for f in [-0.25, 0.5)."""
    high, low = _table("LN2_", f)
    tail = horner(f, _table("LOG", f)).fma(f * f, e * low)
    return e.fma(high, f + tail)


def log(x: Value) -> Value:
    e, m = exponent_and_mantissa(x)
    return _log_of_parts(e, m - 1.0)


def log1p(x: Value) -> Value:
    """1 + x gives the exponent e; x 2^-e + (2^-e - 1) the mantissa, rounded once."""
    total = x + 1.0
    e, _ = exponent_and_mantissa(total)
    down = scale(x.operand(1.0), -e)
    result = _log_of_parts(e, x.fma(down, down - 1.0))
    result = result.where(total.gt(0.0), x.operand(-math.inf).where(total.eq(0.0), math.nan))
    result = x.where(x.compare("oeq", math.inf), result)
    return x.where(x.abs().lt(2.0 ** -(MANTISSA[x.scalar] + 2)), result)


# -- angles


def _sine_of_reduced(r: Value, parity: Value) -> Value:
    """(-1)^parity sin(r), |r| <= 1.6; the parity is the lowest bit of an integer."""
    square = r * r
    tail = horner(square, _table("SIN", r))
    result = (tail * square).fma(r, r)
    return (result.as_bits() ^ (parity << (r.bits - 1))).as_float()


def _reduce_angle(x: Value, shift: float) -> tuple[Value, Value]:
    """(r, k) with x = r + (k - shift) pi, |r| <= pi / 2; k is the lowest bit of the integer."""
    magic = 1.5 * 2.0 ** MANTISSA[x.scalar]
    inverse = _table("INVERSE_PI_", x)[0]
    if shift:
        k = x.fma(inverse, shift).rounded()
        n = k - shift
        whole = k + magic
    else:
        whole = x.fma(inverse, magic)
        n = whole - magic
    r = x
    for part in _table("PI_", x):
        r = n.fma(-part, r)
    return r, whole.as_bits()


def sin(x: Value) -> Value:
    r, parity = _with_large(x, 0.0)
    result = _sine_of_reduced(r, parity)
    return x.where(x.compare("oeq", 0.0), result)


def cos(x: Value) -> Value:
    r, parity = _with_large(x, 0.5)
    return _sine_of_reduced(r, parity)


def _with_large(x: Value, shift: float) -> tuple[Value, Value]:
    from hlokit.cpu.math.large_angle import correct_large

    r, parity = _reduce_angle(x, shift)
    return correct_large(x, r, parity, shift)


def atan2(y: Value, x: Value) -> Value:
    lanes = x.lanes
    tall, wide = y.abs(), x.abs()
    is_steep = tall.gt(wide)
    least, most = lanes.select(is_steep, wide, tall), lanes.select(is_steep, tall, wide)
    ratio = least / most
    ratio = x.operand(0.0).where(most.eq(0.0), ratio)
    ratio = x.operand(1.0).where(least.eq(math.inf), ratio)
    square = ratio * ratio
    tail = (horner(square, _table("ATAN", x)) * square) * ratio
    high, low = _table("HALF_PI_", x)
    # angle = base - (ratio + tail) or base + ..., the base a multiple of pi / 2 in two parts
    is_left = x.as_bits().lt(0)
    zero = x.operand(0.0)
    base = x.operand(high).where(is_steep, x.operand(2 * high).where(is_left, zero))
    rest = x.operand(low).where(is_steep, x.operand(2 * low).where(is_left, zero))
    # steep and right, or flat and left: the base less the angle
    flip = is_steep ^ is_left
    signed_ratio, signed_tail = (lanes.select(flip, -v, v) for v in (ratio, tail))
    angle = base + (signed_ratio + (signed_tail + rest))
    angle = lanes.select(x.compare("uno", y), x + y, angle)
    return angle.copysign(y)


# -- roots


def cbrt(x: Value) -> Value:
    """Newton's iteration from a third of the bits, twice Halley's."""
    bits = MANTISSA[x.scalar]
    size = x.abs()
    bias = (1 << (x.bits - 2 - bits)) - 1
    is_small = size.lt(2.0 ** (1 - bias))
    lift = 3 * (bits // 3 + 1)
    size = (size * 2.0**lift).where(is_small, size)
    whole = size.as_bits()
    third = (whole.cast("sitofp", x.scalar) * (1 / 3)).cast("fptosi", f"i{x.bits}")
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
    return x.lanes.select(special, x, y)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
    "atan2": atan2,
    "cbrt": cbrt,
}
