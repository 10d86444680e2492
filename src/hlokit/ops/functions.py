"""Functions of elementwise ops that NumPy lacks, or whose results differ from those that HLO requires.

All take and give arrays of the wide types (see numerics): NumPy's integers, f32, f64, c64, c128.
"""

from typing import Any

import numpy as np

from hlokit.hlo.values import Array

# -- sign, rounding, order


def sign(x: Array) -> Array:
    """-1, 0 or 1; zeros and NaN themselves (SIGN-1); x/|x| for complex (SIGN-3)."""
    if x.dtype.kind != "c":
        return np.where(x == 0, x, np.sign(x))
    size = np.abs(x)
    quotient = make_complex(x.real / size, x.imag / size)
    is_nan = np.isnan(x.real) | np.isnan(x.imag)
    return np.where(is_nan, complex(np.nan, np.nan), np.where(x == 0, 0, quotient)).astype(x.dtype)


def round_away(x: Array) -> Array:
    """The nearest integral value, ties away from zero: exact, since x - trunc(x) is (ROUND-2)."""
    whole = np.trunc(x)
    step = np.abs(x - whole) >= 0.5
    return np.copysign(np.abs(whole) + step.astype(x.dtype), x)


def maximum(x: Array, y: Array) -> Any:
    """NaN if either is NaN; +0 above -0 (MAX-1, MAX-2)."""
    greater = np.maximum(x, y)
    return _with_zeros(greater, x, y, np.add(x, y)) if _has_zero(greater) else greater


def minimum(x: Array, y: Array) -> Any:
    """NaN if either is NaN; -0 below +0 (MAX-1, MAX-2)."""
    less = np.minimum(x, y)
    return _with_zeros(less, x, y, -np.subtract(-x, y)) if _has_zero(less) else less


def _has_zero(chosen: Any) -> bool:
    return chosen.dtype.kind == "f" and bool(np.any(chosen == 0))


def _with_zeros(chosen: Any, x: Array, y: Array, of_zeros: Any) -> Any:
    """`chosen`, but `of_zeros` where both operands are zeros: there NumPy takes either."""
    return np.where((x == 0) & (y == 0), of_zeros, chosen)  # pyright: ignore[reportUnknownVariableType]


# -- integers


def divide(x: Array, y: Array) -> Any:
    """Floats as IEEE; integers towards zero, by zero all ones, INT_MIN/-1 wraps (DIV-1 to DIV-4)."""
    if x.dtype.kind == "c":
        return _complex_quotient(x, y)
    if x.dtype.kind == "f":
        return np.true_divide(x, y)  # pyright: ignore[reportUnknownVariableType]
    plain = (y != 0) & (y != -1)
    divisor = np.where(plain, y, 1).astype(x.dtype)
    quotient = (x - np.fmod(x, divisor)) // divisor
    all_ones = np.invert(np.zeros_like(x))
    return np.where(plain, quotient, np.where(y == 0, all_ones, np.negative(x)))


def _complex_quotient(x: Array, y: Array) -> Array:
    """The quotient by Smith's method; of zero, infinite and NaN parts as in C's Annex G (DIV-5)."""
    x, y = np.broadcast_arrays(x, y)
    a, b, c, d = x.real, x.imag, y.real, y.imag
    plain: Array = np.true_divide(x, y)
    infinity = np.copysign(np.inf, c).astype(c.dtype)
    quotient: Array = np.where(y == 0, make_complex(infinity * a, infinity * b), plain)
    lost = np.isnan(quotient.real) & np.isnan(quotient.imag)
    if not np.any(lost):
        return quotient
    of_infinite = lost & np.isinf(x) & np.isfinite(y)
    by_infinite = lost & np.isfinite(x) & np.isinf(y)
    a, b = (np.where(of_infinite, _signed_unit(part), part) for part in (a, b))
    c, d = (np.where(by_infinite, _signed_unit(part), part) for part in (c, d))
    direction = make_complex(a * c + b * d, b * c - a * d)
    factor = np.where(of_infinite, np.inf, 0.0).astype(a.dtype)
    recovered = make_complex(factor * direction.real, factor * direction.imag)
    return np.where(of_infinite | by_infinite, recovered, quotient)


def _signed_unit(part: Array) -> Array:
    """1 of infinities, 0 of all else, with the sign of `part`."""
    return np.copysign(np.isinf(part).astype(part.dtype), part)


def remainder(x: Array, y: Array) -> Any:
    """The dividend's sign; integers: x rem 0 = x, INT_MIN rem -1 = 0 (REM-1 to REM-4)."""
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    plain = (y != 0) & (y != -1)
    rest = np.fmod(x, np.where(plain, y, 1).astype(x.dtype))
    return np.where(y == 0, x, rest)


def power(x: Array, y: Array) -> Any:
    """x to the y; integers modulo 2^bits (BEY-8, BEY-9)."""
    return _integer_power(x, y) if x.dtype.kind in "iu" else np.power(x, y)


def _integer_power(x: Array, y: Array) -> Array:
    """The power by repeated squaring; of the negative exponents only those of 1 and -1 give anything but 0."""
    base, exponent = np.broadcast_arrays(x, y)
    negative = exponent < 0
    result = np.ones_like(base)
    remaining = np.where(negative, 0, exponent)
    while np.any(remaining):
        result = np.where(remaining & 1, result * base, result)
        base = base * base
        remaining = remaining >> 1
    if not np.any(negative):
        return result
    of_minus_one = np.where(np.asarray(y) & 1, x, 1)
    of_negative = np.where(np.asarray(x) == 1, 1, np.where(np.asarray(x) == -1, of_minus_one, 0))
    return np.where(negative, of_negative, result).astype(result.dtype)


def high_product(x: Array, y: Array, bits: int) -> Array:
    """The upper `bits` bits of the product, twice as wide as the operands (BEY-15)."""
    if bits < 64:
        wide = np.int64 if x.dtype.kind == "i" else np.uint64
        return ((x.astype(wide) * y.astype(wide)) >> bits).astype(x.dtype)
    x_low, x_high = x & 0xFFFFFFFF, x >> 32
    y_low, y_high = y & 0xFFFFFFFF, y >> 32
    low = (x_low.astype(np.uint64) * y_low.astype(np.uint64)) >> np.uint64(32)
    middle = x_high * y_low + low.astype(x.dtype)
    carry = x_low * y_high + (middle & 0xFFFFFFFF)
    return x_high * y_high + (middle >> 32) + (carry >> 32)


def leading_zeros(bits: Array, width: int) -> Array:
    """Zeros above the highest one of unsigned integers of `width` bits; `width` for 0 (BEY-14)."""
    shift = 1
    while shift < width:
        bits = bits | (bits >> shift)
        shift *= 2
    return width - np.bitwise_count(bits)


# -- exponentials and logarithms


def exponential_minus_one(x: Array) -> Any:
    """exp(x) - 1 without cancellation near 0; real of complex numbers whose imaginary part is 0."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    a, b = x.real, x.imag
    power: Array = np.exp(x)
    near = np.expm1(a) * np.cos(b) - 2 * np.sin(b / 2) ** 2
    return make_complex(np.where(np.abs(a) > _FAR_EXP, power.real - 1, near), np.where(b == 0, b, power.imag))


_FAR_EXP = 40.0
"""Beyond it, on either side, exp(x) - 1 cancels nothing; within it exp(x) does not overflow."""


def logistic(x: Array) -> Any:
    """1/(1+exp(-x)) without overflow on either side; complex numbers keep their digits near the poles."""
    power: Array = np.where(x.real >= 0, -x, x)
    small: Array = np.exp(power)
    total: Array = 1 + small
    if x.dtype.kind == "c":
        less, half = np.expm1(power.real), np.cos(power.imag / 2)
        total = make_complex(np.where(total.real < 0.5, 2 * (less + 1) * half * half - less, total.real), total.imag)
    return divide(np.where(x.real >= 0, 1, small).astype(x.dtype), total)


def tan(x: Array) -> Any:
    """The tangent; of complex numbers -i tanh(ix)."""
    return np.tan(x) if x.dtype.kind != "c" else _turned(tanh(make_complex(-x.imag, x.real)))


def tanh(x: Array) -> Any:
    """The hyperbolic tangent; NaN in both parts if the imaginary part is not finite and the real part is."""
    if x.dtype.kind != "c":
        return np.tanh(x)
    lost = np.isfinite(x.real) & ~np.isfinite(x.imag)
    return np.where(lost, complex(np.nan, np.nan), np.tanh(x)).astype(x.dtype)


def _turned(x: Array) -> Array:
    """x / i."""
    return make_complex(x.imag, -x.real)


def log_plus_one(x: Array) -> Any:
    """log(1+x) without cancellation near 0 (BEY-5)."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    a, b = x.real, x.imag
    near = 0.5 * np.log1p(a * (2 + a) + b * b)
    far: Array = np.log(make_complex(1 + a, b))
    return make_complex(np.where(np.abs(x) < 0.5, near, far.real), far.imag)


def reciprocal_square_root(x: Array) -> Any:
    if x.dtype.kind != "c":
        return 1 / np.sqrt(x)
    zero = np.zeros_like(x)
    zero.imag = np.copysign(0, -x.imag)
    return np.where(np.isinf(x.real) | np.isinf(x.imag), zero, 1 / np.sqrt(x))  # the quotient has NaN parts there


def atan2(y: Array, x: Array) -> Any:
    """The angle of the point (x, y); for complex -i log((x + iy) / sqrt(x^2 + y^2)) (BEY-7)."""
    if x.dtype.kind != "c":
        return np.arctan2(y, x)
    return -1j * np.log(divide(x + 1j * y, np.sqrt(x * x + y * y)))


def error_function(x: Array) -> Any:
    from scipy import special  # pyright: ignore[reportMissingTypeStubs]

    return special.erf(x)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


# -- complex


def make_complex(real: Array, imaginary: Array) -> Array:
    """Part by part: `real + 1j * imaginary` would make NaN of infinities."""
    real, imaginary = np.broadcast_arrays(real, imaginary)
    made = np.empty(real.shape, np.complex64 if real.dtype == np.float32 else np.complex128)
    made.real, made.imag = real, imaginary
    return made
