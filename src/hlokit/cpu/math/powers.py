"""x to the y: the logarithm and its product with y with more digits than the type has."""

from __future__ import annotations

import math

from hlokit.cpu.math import coefficients
from hlokit.cpu.math.basics import clamp, exponent_and_mantissa, horner, reduce_exp, scale, table
from hlokit.cpu.math.lanes import Lanes, Value
from hlokit.cpu.math.pieces import WIDTH, chosen, has_pieces


def power(x: Value, y: Value) -> Value:
    """In a branch that is seldom taken, bases that are not positive and what is not finite are corrected."""
    lanes, fn, size = x.lanes, x.lanes.fn, x.abs()
    if x.bits == 64:
        result = _power64(size, y)
    else:
        result = _power32_in_pairs(size, y) if has_pieces(x) else _power32(size, y)
    plain = x.gt(0.0) & x.lt(math.inf) & y.abs().lt(math.inf)
    rare, after = fn.new_block("rare"), fn.new_block("power")
    is_rare, before = lanes.any(plain ^ True), fn.block
    fn.branch(is_rare, rare, after)
    fn.start(rare)
    corrected, last = _corrected(x, y, result), fn.block
    fn.jump(after)
    fn.start(after)
    phi = f"phi {x.type} [ {result.name}, %{before} ], [ {corrected.name}, %{last} ]"
    return lanes.let(phi, x.scalar)


def _corrected(x: Value, y: Value, result: Value) -> Value:
    """x to the y for any x and y, by the power of |x|."""
    # odd y: integral, but its half is not
    half = y * 0.5
    is_whole = y.rounded().compare("oeq", y)
    is_odd = is_whole & half.rounded().compare("one", half)
    sign = (x.as_bits() & (-1 << (x.bits - 1))).where(is_odd, 0)
    result = (result.as_bits() | sign).as_float()
    finite_negative = x.lt(0.0) & x.gt(-math.inf)
    result = x.operand(math.nan).where(finite_negative & (is_whole ^ True), result)
    ones = y.eq(0.0) | x.eq(1.0) | (x.eq(-1.0) & y.abs().eq(math.inf))
    return x.lanes.select(ones, x.operand(1.0), result)


def _power32_in_pairs(size: Value, y: Value) -> Value:
    """2^(y log2|x|), the logarithm and the product as sums of two floats.

    log2|x| = e - log2 c + log2(1 + f), f = m c - 1, with c near 1 / m from a table of 32. A float and its rest: g and
    g_rest for m c, and so on.
    """
    if size.lanes.lanes < WIDTH:
        wide = Lanes(size.lanes.fn, WIDTH, size.lanes.target)
        return size.lanes.first(_power32_in_pairs(wide.padded(size), wide.padded(y)))
    e, m = exponent_and_mantissa(size)
    place = m.as_bits() >> 18
    c, start, start_rest = (chosen(place, column) for column in coefficients.LOG2_PIECES32)
    (slope, slope_rest), (bend, bend_rest) = coefficients.LOG2_SLOPE32, coefficients.LOG2_BEND32
    g = m * c
    f = g - 1.0
    square = f * f
    f_rest = m.fma(c, -g)
    f_rest = (square - f).fma(f_rest, f_rest)  # times 1 / (1 + f)
    linear = f * slope
    rest = f_rest.fma(slope, f.fma(slope_rest, f.fma(slope, -linear)))
    curve = square * bend
    rest = rest + f.fma(f, -square).fma(bend, square.fma(bend_rest, square.fma(bend, -curve)))
    rest = horner(f, coefficients.LOG2_TAIL32).fma(square * f, rest) + start_rest
    base = e + start
    first = base + linear
    high = first + curve
    low = ((first - high) + curve) + ((base - first) + linear) + rest
    product = y * high
    product_rest = y.fma(low, y.fma(high, -product))
    bounded = clamp(product, -160.0, 140.0)
    product_rest = product_rest.where(product.eq(bounded), 0.0)
    n = (bounded + product_rest).rounded()
    return scale(horner((bounded - n) + product_rest, coefficients.EXP2_FINE32), n)


def _power32(size: Value, y: Value) -> Value:
    """2^(y log2|x|), the logarithm and the product in double."""
    e, m = exponent_and_mantissa(size)
    f = (m - 1.0).cast("fpext", "double")
    logarithm = horner(f, coefficients.LOG2_COARSE64).fma(f, e.cast("fpext", "double"))
    exponent = clamp(y.cast("fpext", "double") * logarithm, -160.0, 140.0)
    n = exponent.rounded()
    fraction = (exponent - n).cast("fptrunc", "float")
    return scale(horner(fraction, coefficients.EXP2_FINE32), n.cast("fptrunc", "float"))


def _power64(size: Value, y: Value) -> Value:
    """exp(y log|x|), the logarithm and the product as sums of two doubles."""
    high, low = _log_in_two(size)
    product = y * high
    rest = y.fma(high, -product) + y * low
    rest = rest.where(product.abs().lt(1000.0), 0.0)
    product = clamp(product, -1000.0, 1000.0)
    n, r = reduce_exp(product)
    return scale(horner(r + rest, (1.0, 1.0, *table("EXP", size))), n)


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
