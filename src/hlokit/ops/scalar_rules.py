"""Scalar rules of the elementwise ops that are not primitives. One function per op.

Operands are of types that compute; complex ones have their own rules (complex_rules). A rule gives every result that
the op's reference pins (NaN, signed zeros, division by zero). Elsewhere it says by how many units of the last place
its own steps may be off, were its primitives exact.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from hlokit.forms.affine import Affine
from hlokit.forms.emitter import Emitter, Value
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

Rule: TypeAlias = Callable[..., Value]


def rule_of(real: str | Rule, *, pred: str = "", complex: Rule | None = None) -> Rule:
    """The rule that takes `real` (a primitive's name, or a rule) for integers and floats; others where they differ."""

    def rule(emit: Emitter, *values: Value) -> Value:
        kind = values[0].dtype.kind
        if kind == "complex" and complex is not None:
            return complex(emit, *values)
        if kind == "pred" and pred:
            return emit.apply(pred, *values)
        return emit.apply(real, *values) if isinstance(real, str) else real(emit, *values)

    return rule


# -- sign, rounding, order


def sign(emit: Emitter, x: Value) -> Value:
    if x.dtype.is_floating:
        is_number = emit.gt(emit.abs(x), 0.0)  # zeros and NaN are themselves
        return emit.select(is_number, emit.copysign(emit.constant(1.0, x.dtype), x), x)
    positive = emit.select(emit.gt(x, 0), emit.constant(1, x.dtype), x)
    return emit.select(emit.lt(x, 0), emit.constant(-1, x.dtype), positive)


def round_away(emit: Emitter, x: Value) -> Value:
    whole = emit.trunc(x)
    step = emit.ge(emit.abs(emit.sub(x, whole)), 0.5)  # exact: |x - trunc(x)| < 1
    size = emit.abs(whole)
    return emit.copysign(emit.select(step, emit.add(size, 1.0), size), x)


def is_finite(emit: Emitter, x: Value) -> Value:
    return emit.lt(emit.abs(x), math.inf)


def clamp(emit: Emitter, low: Value, x: Value, high: Value) -> Value:
    """minimum(maximum(low, x), high)."""
    return MINIMUM(emit, MAXIMUM(emit, low, x), high)


# -- integers


def divide(emit: Emitter, x: Value, y: Value) -> Value:
    """The quotient; by zero all ones, and INT_MIN / -1 wraps (DIV-3, DIV-4)."""
    if x.dtype.is_floating:
        return emit.div(x, y)
    by_zero = emit.eq(y, 0)
    quotient = emit.div(x, _plain_divisor(emit, y, by_zero))
    if x.dtype.is_signed:
        quotient = emit.select(emit.eq(y, -1), emit.neg(x), quotient)
    return emit.select(by_zero, _all_ones(emit, x.dtype), quotient)


def remainder(emit: Emitter, x: Value, y: Value) -> Value:
    """x rem 0 = x, INT_MIN rem -1 = 0 (REM-3, REM-4)."""
    if x.dtype.is_floating:
        return emit.rem(x, y)
    by_zero = emit.eq(y, 0)
    return emit.select(by_zero, x, emit.rem(x, _plain_divisor(emit, y, by_zero)))


def _plain_divisor(emit: Emitter, y: Value, by_zero: Value) -> Value:
    """`y`, or 1 where dividing by it is not defined."""
    special = emit.or_(by_zero, emit.eq(y, -1)) if y.dtype.is_signed else by_zero
    return emit.select(special, emit.constant(1, y.dtype), y)


def _all_ones(emit: Emitter, dtype: DType) -> Value:
    return emit.not_(emit.constant(0, dtype))


def power(emit: Emitter, x: Value, y: Value) -> Value:
    """The power of integers, by repeated squaring; of negative exponents only those of 1 and -1 are not 0 (BEY-9)."""
    if x.dtype.is_floating:
        return emit.pow(x, y)
    one, zero = emit.constant(1, x.dtype), emit.constant(0, x.dtype)
    result, base = one, x
    bits = x.dtype.bits - x.dtype.is_signed
    for k in range(bits):
        is_set = emit.ne(emit.and_(y, 1 << k), 0)
        result = emit.select(is_set, emit.mul(result, base), result)
        base = emit.mul(base, base) if k + 1 < bits else base
    if not x.dtype.is_signed:
        return result
    of_minus_one = emit.select(emit.eq(emit.and_(y, 1), 0), one, x)
    of_negative = emit.select(emit.eq(x, -1), of_minus_one, emit.select(emit.eq(x, 1), one, zero))
    return emit.select(emit.lt(y, 0), of_negative, result)


def high_product(emit: Emitter, x: Value, y: Value) -> Value:
    """Takes every integer type: the product at twice the width needs no more than 64 bits but for 64-bit operands."""
    if x.dtype.bits == 64:
        return emit.mul_high(x, y)
    wide = dtypes.s64 if x.dtype.is_signed else dtypes.u64
    product = emit.mul(emit.convert(x, wide), emit.convert(y, wide))
    return emit.convert(emit.sar(product, x.dtype.bits), x.dtype)


# -- bits: these take every integer type as it is


def population_count(emit: Emitter, x: Value) -> Value:
    return emit.convert(emit.popcnt(emit.to_bits(x)), x.dtype)


def leading_zeros(emit: Emitter, x: Value) -> Value:
    bits = emit.to_bits(x)
    return emit.convert(emit.sub(emit.clz(bits), bits.dtype.bits - x.dtype.bits), x.dtype)


def shift_left(emit: Emitter, x: Value, y: Value) -> Value:
    return _logical_shift(emit, "shl", x, y)


def shift_right_logical(emit: Emitter, x: Value, y: Value) -> Value:
    return _logical_shift(emit, "shr", x, y)


def _logical_shift(emit: Emitter, name: str, x: Value, y: Value) -> Value:
    """0 from the width up; y's bits are an unsigned number (BEY-13)."""
    bits, amount = emit.to_bits(x), emit.to_bits(y)
    inside = emit.lt(amount, x.dtype.bits)
    zero = emit.constant(0, bits.dtype)
    moved = emit.apply(name, bits, emit.select(inside, amount, zero))
    return emit.from_bits(emit.select(inside, moved, zero), x.dtype)


def shift_right_arithmetic(emit: Emitter, x: Value, y: Value) -> Value:
    signed = signed_bits(emit, x)
    amount = emit.min(emit.to_bits(y), x.dtype.bits - 1)
    return emit.from_bits(emit.to_bits(emit.sar(signed, emit.convert(amount, signed.dtype))), x.dtype)


def signed_bits(emit: Emitter, x: Value) -> Value:
    """The bits as a signed integer of the element's width, of a byte at least."""
    bits = emit.to_bits(x)
    signed = dtypes.signed_of(bits.dtype.bits)
    assert signed is not None
    value = emit.convert(bits, signed)
    spare = signed.bits - x.dtype.bits
    return emit.sar(emit.shl(value, spare), spare) if spare else value


def joined(emit: Emitter, parts: Sequence[Value], dtype: DType) -> Value:
    """The value of `dtype` whose bits are those of the parts, least significant first."""
    wide = dtypes.unsigned_of(max(8, dtype.bits))
    assert wide is not None
    total = emit.constant(0, wide)
    for number, part in enumerate(parts):
        bits = emit.convert(emit.to_bits(part), wide)
        total = emit.or_(total, emit.shl(bits, number * part.dtype.bits))
    return emit.from_bits(total, dtype)


def part_of(emit: Emitter, value: Value, number: Affine, dtype: DType) -> Value:
    """The part of `dtype` with this number of a wider value's bits, counted from the least significant."""
    bits = emit.to_bits(value)
    amount = emit.convert(emit.number(number * dtype.bits), bits.dtype)
    part = dtypes.unsigned_of(max(8, dtype.bits))
    assert part is not None
    return emit.from_bits(emit.convert(emit.shr(bits, amount), part), dtype)


def reduce_precision(
    emit: Emitter, x: Value, least_exponent: int, mantissa_bits: int | None, bias: int | None
) -> Value:
    """x on a coarser grid; None leaves mantissa or exponent alone.

    The grid's step is 2^-mantissa_bits of x's own power of two, and never finer than for 2^least_exponent (RPREC-5).
    From 2^(bias + 1) on infinity, below 2^(1 - bias) zero (RPREC-6).
    """
    size = rounded = emit.abs(x)
    if mantissa_bits is not None:
        exponent = _EXPONENT_BITS[x.dtype.name]
        power = emit.from_bits(emit.and_(emit.to_bits(size), exponent), x.dtype)
        unit = emit.max(power, 2.0**least_exponent)  # the step itself may be a denormal, which products take for zero
        steps = emit.round_even(emit.mul(emit.div(size, unit), 2.0**mantissa_bits))
        rounded = emit.mul(emit.mul(steps, 2.0**-mantissa_bits), unit)
    if bias is not None:
        vanished = emit.select(emit.lt(rounded, 2.0 ** (1 - bias)), emit.constant(0.0, x.dtype), rounded)
        rounded = emit.select(emit.ge(rounded, 2.0 ** (bias + 1)), emit.constant(math.inf, x.dtype), vanished)
    return emit.select(is_finite(emit, x), emit.copysign(rounded, x), x)


_EXPONENT_BITS = {"f32": 0x7F800000, "f64": 0x7FF0000000000000}


def stochastic_convert(emit: Emitter, x: Value, random: Value, target: DType) -> Value:
    """In f64, as every type but 64-bit integers fits there: away from zero where random / 2^bits < lost fraction."""
    value = emit.convert(x, dtypes.f64)
    size = emit.abs(value)
    if target.is_integral:
        lower = emit.floor(size)
        upper = emit.add(lower, 1.0)
    else:
        nearest = emit.convert(size, target)
        bits = emit.to_bits(nearest)
        is_above = emit.gt(emit.convert(nearest, dtypes.f64), size)
        below = emit.select(is_above, emit.sub(bits, 1), bits)
        lower = emit.convert(emit.from_bits(below, target), dtypes.f64)
        upper = emit.convert(emit.from_bits(emit.add(below, 1), target), dtypes.f64)
    lost = emit.div(emit.sub(size, lower), emit.sub(upper, lower))
    fraction = emit.select(emit.gt(upper, lower), lost, emit.constant(0.0, dtypes.f64))
    threshold = emit.mul(emit.convert(emit.to_bits(random), dtypes.f64), 2.0**-x.dtype.bits)
    chosen = emit.select(emit.lt(threshold, fraction), upper, lower)
    return emit.convert(emit.copysign(emit.select(is_finite(emit, size), chosen, size), value), target)


# -- exponentials, logarithms, hyperbolic and inverse functions: floats


def power_of_two(emit: Emitter, x: Value) -> Value:
    return emit.apply("pow", emit.constant(2.0, x.dtype), x)


def logarithm_to_two(emit: Emitter, x: Value) -> Value:
    """log(x) / log(2); of the powers of 2 the exact exponents. 3 ULP."""
    value = emit.mul(emit.apply("log", x), math.log2(math.e))
    nearest = emit.apply("round_even", value)
    return emit.select(emit.eq(power_of_two(emit, nearest), x), nearest, value)


def logistic(emit: Emitter, x: Value) -> Value:
    """1 / (1 + exp(-x)), of negative x exp(x) / (1 + exp(x)): no overflow on either side. 2 ULP."""
    small = emit.exp(emit.neg(emit.abs(x)))
    one = emit.constant(1.0, x.dtype)
    return emit.div(emit.select(emit.lt(x, 0.0), small, one), emit.add(small, 1.0))


def hypot(emit: Emitter, x: Value, y: Value) -> Value:
    """sqrt(x^2 + y^2) without undue overflow; infinity if either is. 2 ULP."""
    x, y = emit.abs(x), emit.abs(y)
    high, low = emit.max(x, y), emit.min(x, y)
    ratio = emit.div(low, high)
    length = emit.mul(high, emit.sqrt(emit.add(emit.mul(ratio, ratio), 1.0)))
    is_infinite = emit.or_(emit.eq(x, math.inf), emit.eq(y, math.inf))
    infinity = emit.constant(math.inf, x.dtype)
    return emit.select(is_infinite, infinity, emit.select(emit.eq(high, 0.0), high, length))


def rsqrt(emit: Emitter, x: Value) -> Value:
    """1.5 ULP."""
    return emit.div(emit.constant(1.0, x.dtype), emit.sqrt(x))


def tan(emit: Emitter, x: Value) -> Value:
    """2 ULP."""
    return emit.div(emit.sin(x), emit.cos(x))


def acos(emit: Emitter, x: Value) -> Value:
    """2 atan2(sqrt(1 - x), sqrt(1 + x)): both differences are exact where they are small. 2 ULP."""
    one = emit.constant(1.0, x.dtype)
    return emit.mul(emit.atan2(emit.sqrt(emit.sub(one, x)), emit.sqrt(emit.add(one, x))), 2.0)


def asin(emit: Emitter, x: Value) -> Value:
    """atan2(x, sqrt((1 - x)(1 + x))). 2 ULP."""
    one = emit.constant(1.0, x.dtype)
    return emit.atan2(x, emit.sqrt(emit.mul(emit.sub(one, x), emit.add(one, x))))


def atan(emit: Emitter, x: Value) -> Value:
    return emit.atan2(x, 1.0)


def sinh(emit: Emitter, x: Value) -> Value:
    """e = expm1(|x|): (e + e / (e + 1)) / 2; from 1 up (exp(|x| / 2) / 2) exp(|x| / 2), which does not overflow early.

    3 ULP.
    """
    size = emit.abs(x)
    e = emit.expm1(size)
    small = emit.mul(emit.add(e, emit.div(e, emit.add(e, 1.0))), 0.5)
    half = emit.exp(emit.mul(size, 0.5))
    large = emit.mul(emit.mul(half, 0.5), half)
    return emit.copysign(emit.select(emit.lt(size, 20.0), small, large), x)


def cosh(emit: Emitter, x: Value) -> Value:
    """h = exp(|x| / 2): (h / 2) h + (1 / 2 / h) / h. 3 ULP."""
    half = emit.exp(emit.mul(emit.abs(x), 0.5))
    inverse = emit.div(emit.constant(1.0, x.dtype), half)
    return emit.add(emit.mul(emit.mul(half, 0.5), half), emit.mul(emit.mul(inverse, 0.5), inverse))


def asinh(emit: Emitter, x: Value) -> Value:
    """log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))); log(2 |x|) where the square would swallow the 1. 3 ULP."""
    size = emit.abs(x)
    is_large = emit.ge(size, LARGE[x.dtype.name])
    plain = emit.select(is_large, emit.constant(1.0, x.dtype), size)
    square = emit.mul(plain, plain)
    fraction = emit.div(square, emit.add(emit.sqrt(emit.add(square, 1.0)), 1.0))
    small = emit.log1p(emit.add(plain, fraction))
    large = emit.add(emit.log(size), math.log(2.0))
    return emit.copysign(emit.select(is_large, large, small), x)


def acosh(emit: Emitter, x: Value) -> Value:
    """t = x - 1: log1p(t + sqrt(t) sqrt(t + 2)); log(2 x) where the square would swallow the rest. 3 ULP."""
    is_large = emit.ge(x, LARGE[x.dtype.name])
    t = emit.sub(emit.select(is_large, emit.constant(1.0, x.dtype), x), 1.0)
    root = emit.mul(emit.sqrt(t), emit.sqrt(emit.add(t, 2.0)))  # one root of the product would be real below -1
    small = emit.log1p(emit.add(t, root))
    return emit.select(is_large, emit.add(emit.log(x), math.log(2.0)), small)


def atanh(emit: Emitter, x: Value) -> Value:
    """log1p(2 |x| / (1 - |x|)) / 2. 3 ULP."""
    size = emit.abs(x)
    ratio = emit.div(emit.mul(size, 2.0), emit.sub(emit.constant(1.0, x.dtype), size))
    return emit.copysign(emit.mul(emit.log1p(ratio), 0.5), x)


LARGE = {"f32": 1e8, "f64": 1e17}
"""From here on x^2 + 1 and x^2 - 1 are x^2 in the type."""

MAXIMUM, MINIMUM = rule_of("max", pred="or"), rule_of("min", pred="and")
