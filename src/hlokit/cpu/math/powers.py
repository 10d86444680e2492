"""x to the power of y: the logarithm and its product with y, with more digits than the type has."""

from __future__ import annotations

import math

from hlokit.cpu.llvm import Value, unlikely
from hlokit.cpu.math import coefficients
from hlokit.cpu.math.basics import clamp, exponent_and_mantissa, horner, magic, masked, reduce_exp, scale, table
from hlokit.cpu.math.pieces import WIDTH, chosen, has_pieces


def power(x: Value, y: Value) -> Value:
    """In a branch that is seldom taken, bases that are not positive and what is not finite are corrected."""
    if has_pieces(x):
        return _power32_in_pairs(x, y)
    size = x.abs()
    result = _power64(size, y) if x.bits == 64 else _power32(size, y)
    plain = (x > 0.0) & (x < math.inf) & (y.abs() < math.inf)
    return unlikely(plain ^ True, [result], lambda: [_corrected(x, y, result)])[0]


def _corrected(x: Value, y: Value, result: Value) -> Value:
    """x to the y for any x and y, by the power of |x|."""
    # odd y: integral, but its half is not
    half = y * 0.5
    is_whole = y.rounded().compare("oeq", y)
    is_odd = is_whole & half.rounded().compare("one", half)
    sign = (x.as_bits() & (-1 << (x.bits - 1))).where(is_odd, 0)
    result = (result.as_bits() | sign).as_float()
    finite_negative = (x < 0.0) & (x > -math.inf)
    result = x.value(math.nan).where(finite_negative & (is_whole ^ True), result)
    ones = y.eq(0.0) | x.eq(1.0) | (x.eq(-1.0) & y.abs().eq(math.inf))
    return ones.select(x.value(1.0), result)


def _power32_in_pairs(x: Value, y: Value) -> Value:
    """exp(y log|x|), the logarithm and the product as sums of two floats."""
    product, rest = _log_times(x, y)

    def corrected() -> Value:
        bounded = clamp(product, -104.5, 97.0)
        n, power = _exp_of_pair(bounded, rest.where(product.eq(bounded), 0.0))
        return _corrected(x, y, _scale_kept(power, n, product.compare("uge", -104.5)))

    # all at once: x negative, or the product too large, or no number since x is zero or one of them not finite
    sign = -1 << 31
    both = (product.as_bits() & ~sign) | (x.as_bits() & sign)
    n, power = _exp_of_pair(product, rest)
    is_rare = both.compare("uge", product.value(87.0).as_bits())
    return unlikely(is_rare, [scale(power, n)], lambda: [corrected()])[0]


def _scale_kept(power: Value, n: Value, is_kept: Value) -> Value:
    """power * 2^n, which takes long where it vanishes; 0 where it is not kept."""
    return scale(power, n.where(is_kept, 0.0)).where(is_kept, 0.0)


def _log_times(x: Value, y: Value) -> tuple[Value, Value]:
    """y log|x| as a float and its rest, to 2^-34 of it: log|x| = (e ln 2 - log c) + log(1 + f).

    c, near 1 / m, is one of 32, and f = m c - 1 is exact: coefficients.LOG_PIECES32.
    """
    if x.lanes < WIDTH:
        product, rest = _log_times(x.padded(WIDTH), y.padded(WIDTH))
        return product.first(x.lanes), rest.first(x.lanes)
    e, m = masked("getexp", x, [x]), masked("getmant", x, [x], 3 | 1 << 2)  # m in [0.75, 1.5), of |x|
    place = m.as_bits() >> 18
    c, start, start_rest = (chosen(place, column) for column in coefficients.LOG_PIECES32)
    ln2, ln2_rest = coefficients.LOG_LN2_32
    f = m.fma(c, -1.0)
    square = f * f
    base = e.fma(ln2, start)
    first = base + f
    high = square.fma(-0.5, first)
    low = ((base - first) + f) + square.fma(-0.5, first - high)
    low = f.fma(f, -square).fma(-0.5, low)
    low = horner(f, coefficients.LOG_TAIL32).fma(square * f, low) + e.fma(ln2_rest, start_rest)
    product = y * high
    return product, y.fma(low, y.fma(high, -product))


def _exp_of_pair(x: Value, rest: Value) -> tuple[Value, Value]:
    """(n, power) with exp(x + rest) = 2^n power, where the rest is small."""
    ln2, ln2_rest = coefficients.LOG_LN2_32
    n = x.fma(coefficients.LOG2E_32[0], magic(x)) - magic(x)
    r = n.fma(-ln2, x) + n.fma(-ln2_rest, rest)
    return n, horner(r, (1.0, 1.0, *coefficients.EXP_PAIR32))


def _power32(size: Value, y: Value) -> Value:
    """2^(y log2|x|), the logarithm and the product in double."""
    e, m = exponent_and_mantissa(size)
    f = (m - 1.0).cast("fpext", "double")
    logarithm = horner(f, coefficients.LOG2_COARSE64).fma(f, e.cast("fpext", "double"))
    product = y.cast("fpext", "double") * logarithm
    exponent = clamp(product, -160.0, 140.0)
    n = exponent.rounded()
    fraction = (exponent - n).cast("fptrunc", "float")
    power = horner(fraction, coefficients.EXP2_FINE32)
    return _scale_kept(power, n.cast("fptrunc", "float"), product.compare("uge", -151.0))


def _power64(size: Value, y: Value) -> Value:
    """exp(y log|x|), the logarithm and the product as sums of two doubles."""
    high, low = _log_in_two(size)
    product = y * high
    rest = y.fma(high, -product) + y * low
    rest = rest.where(product.abs() < 1000.0, 0.0)
    is_kept = product.compare("uge", -746.0)
    n, r = reduce_exp(clamp(product, -1000.0, 1000.0))
    return _scale_kept(horner(r + rest, (1.0, 1.0, *table("EXP", size))), n, is_kept)


def _log_in_two(x: Value) -> tuple[Value, Value]:
    """log(x) as a sum of two doubles, to 2^-64 of it: 2 atanh(s), s = f / (2 + f)."""
    e, m = exponent_and_mantissa(x)
    f = m - 1.0
    d = f + 2.0
    d_rest = f - (d - 2.0)
    s = f / d
    s_rest = s.fma(-d_rest, s.fma(-d, f)) / d
    t = s * s
    t_rest = s.fma(s, -t) + (s + s) * s_rest
    # atanh(s) / s = 1 + t v, v = 1/3 + t u
    third, third_rest = coefficients.THIRD64
    u = horner(t, coefficients.ATANH64)
    product = t * u
    product_rest = t.fma(u, -product) + t_rest * u
    v = product + third
    v_rest = (third - v) + product + (product_rest + third_rest)
    w = t * v
    w_rest = t.fma(v, -w) + (t * v_rest + t_rest * v)
    z = s * w
    z_rest = s.fma(w, -z) + (s * w_rest + s_rest * w)
    high = s + z
    low = (s - high) + z + (z_rest + s_rest)
    high, low = high + high, low + low
    ln2, ln2_rest = table("LN2_", x)
    whole = e * ln2
    total = whole + high
    return total, (whole - total) + high + e.fma(ln2_rest, low)
