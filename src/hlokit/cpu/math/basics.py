"""Building blocks of the functions: polynomials, powers of two, exponents and mantissas, reduced arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlokit.cpu.llvm import I32, Value, joined, type_of
from hlokit.cpu.math import coefficients

MANTISSA = {"float": 23, "double": 52}
"""Bits of the mantissa, by LLVM's type."""


def table(name: str, x: Value) -> Sequence[float]:
    return getattr(coefficients, f"{name}{x.bits}")


def horner(x: Value, terms: Sequence[float]) -> Value:
    """terms[0] + terms[1] x + terms[2] x^2 + ..."""
    total = x.value(terms[-1])
    for term in reversed(terms[:-1]):
        total = total.fma(x, term)
    return total


# -- powers of two


def intrinsic_width(x: Value) -> int:
    """Lanes that AVX-512's instructions for exponents take at a time, of 16, 32 or 64 bytes; 0 without them."""
    target, size = x.fn.target, x.bits // 8
    if target.arch != "x86_64" or not target.has("avx512f") or not target.has("avx512vl"):
        return 0
    widest = min(x.lanes, 64 // size)
    return widest if widest * size >= 16 else 0


def masked(name: str, x: Value, operands: Sequence[Value], immediate: int | None = None) -> Value:
    """An AVX-512 intrinsic `name` over all lanes, in pieces of its own width."""
    fn, width = x.fn, intrinsic_width(x)
    suffix = f"{'ps' if x.scalar == 'float' else 'pd'}.{width * x.bits}"
    mask = fn.constant(-1, type_of(f"i{max(8, width)}"))
    # those of 512 bits take a rounding mode: 4 is the current one
    mode = [fn.constant(4, I32)] if width * x.bits == 512 else []
    number = [] if immediate is None else [fn.constant(immediate, I32)]
    pieces: list[Value] = []
    for parts in zip(*(v.split(width) for v in operands), strict=True):
        kind = parts[0].type
        listed = (*parts, *number, fn.zeros(kind), mask, *mode)
        pieces.append(fn.call_for(kind, f"llvm.x86.avx512.mask.{name}.{suffix}", *listed))
    return joined(pieces)


def scale(x: Value, n: Value) -> Value:
    """x * 2^n rounded once, for integral n of a few thousands at most, x's size near 1."""
    if intrinsic_width(x):
        return masked("scalef", x, [x, n])
    whole = to_integer(n)
    first = whole.sar(1) if x.bits == 32 else to_integer(n * 0.5)  # AVX2 does not shift signed integers of 64 bits
    return x * power_of_two(first, x.scalar) * power_of_two(whole - first, x.scalar)


def scale_normal(x: Value, n: Value) -> Value:
    """x * 2^n, which is a normal number, for integral n and normal x; of NaN any number."""
    if intrinsic_width(x):
        return masked("scalef", x, [x, n])
    return (x.as_bits() + ((n + magic(x)).as_bits() << MANTISSA[x.scalar])).as_float()


def magic(x: Value) -> float:
    """Next to it floats are the integers."""
    return 1.5 * 2.0 ** MANTISSA[x.scalar]


def to_integer(x: Value) -> Value:
    """The integer next to a float; of doubles below 2^50, for which AVX2 has no instruction."""
    if x.bits == 32:
        return x.cast("fptosi", "i32")
    return (x + magic(x)).as_bits() - _MAGIC64


def from_integer(n: Value) -> Value:
    """The float of an integer; of 64 bits below 2^50."""
    return n.cast("sitofp", "float") if n.bits == 32 else (n + _MAGIC64).as_float() - 1.5 * 2.0**52


_MAGIC64 = 0x4338 << 48
"""The bits of 1.5 * 2^52."""


def power_of_two(n: Value, scalar: str) -> Value:
    """2^n as a float, for integers n of normal powers."""
    mantissa = MANTISSA[scalar]
    bias = (1 << (n.bits - 2 - mantissa)) - 1
    return ((n + bias) << mantissa).as_float()


def exponent_and_mantissa(x: Value) -> tuple[Value, Value]:
    """(e, m) with x = m * 2^e, m in [0.75, 1.5). Infinite e for zero and infinity; m is NaN for negative x and NaN."""
    if intrinsic_width(x):
        mantissa = masked("getmant", x, [x], 3 | 2 << 2)
        return masked("getexp", x, [x]) - masked("getexp", x, [mantissa]), mantissa
    bits = MANTISSA[x.scalar]
    bias = (1 << (x.bits - 2 - bits)) - 1
    least = 2.0 ** (1 - bias)
    is_small = x < least
    scaled = (x * 2.0**bits).where(is_small, x)
    whole = scaled.as_bits()
    start = x.value(0.75).as_bits()
    moved = whole - start
    mantissa = (whole - (moved & -(1 << bits))).as_float()
    above = 1 << (x.bits - 2 - bits)  # so that nothing is negative, for AVX2 does not shift signed integers of 64 bits
    exponent = from_integer((moved + (above << bits)) >> bits) - float(above)
    e = exponent - x.value(float(bits)).where(is_small, 0.0)
    e = e.where(x > 0.0, -math.inf)
    infinite = x.compare("oeq", math.inf)
    e = x.where(infinite, e)
    mantissa = x.value(1.0).where(infinite, mantissa)
    mantissa = mantissa.where(x.compare("oge", 0.0), math.nan)
    return e, mantissa.where(x.compare("une", 0.0), 1.0)


def clamp(x: Value, low: float, high: float) -> Value:
    """x within bounds; NaN stays."""
    x = x.value(high).where(x > high, x)
    return x.value(low).where(x < low, x)


def reduce_exp(x: Value) -> tuple[Value, Value]:
    """(n, r) with x = n ln 2 + r, n integral, |r| <= ln 2 / 2; anything where |x| is above 2^20."""
    n = x.fma(table("LOG2E_", x)[0], magic(x)) - magic(x)
    high, low = table("LN2_", x)
    return n, n.fma(-low, n.fma(-high, x))
