"""Scalar rules of complex numbers, which are pairs: a backend knows `complex`, `real`, `imag`, no arithmetic on them.

Error bounds are relative to the modulus of the result. Infinite operands follow the formulas.
"""

import math

from hlokit.forms.emitter import Emitter, Value
from hlokit.ops import scalar_rules
from hlokit.types import dtype as dtypes


def _parts(emit: Emitter, z: Value) -> tuple[Value, Value]:
    return emit.real(z), emit.imag(z)


def _times_i(emit: Emitter, z: Value) -> Value:
    return emit.complex(emit.neg(emit.imag(z)), emit.real(z))


def _over_i(emit: Emitter, z: Value) -> Value:
    return emit.complex(emit.imag(z), emit.neg(emit.real(z)))


def conjugate(emit: Emitter, z: Value) -> Value:
    return emit.complex(emit.real(z), emit.neg(emit.imag(z)))


# -- arithmetic


def add(emit: Emitter, z: Value, w: Value) -> Value:
    (a, b), (c, d) = _parts(emit, z), _parts(emit, w)
    return emit.complex(emit.add(a, c), emit.add(b, d))


def subtract(emit: Emitter, z: Value, w: Value) -> Value:
    (a, b), (c, d) = _parts(emit, z), _parts(emit, w)
    return emit.complex(emit.sub(a, c), emit.sub(b, d))


def negate(emit: Emitter, z: Value) -> Value:
    return emit.complex(emit.neg(emit.real(z)), emit.neg(emit.imag(z)))


def multiply(emit: Emitter, z: Value, w: Value) -> Value:
    (a, b), (c, d) = _parts(emit, z), _parts(emit, w)
    real = emit.sub(emit.mul(a, c), emit.mul(b, d))
    return emit.complex(real, emit.add(emit.mul(a, d), emit.mul(b, c)))


def divide(emit: Emitter, z: Value, w: Value) -> Value:
    """Smith's method: by the larger part of w first, so that no square overflows."""
    (a, b), (c, d) = _parts(emit, z), _parts(emit, w)
    swaps = emit.lt(emit.abs(c), emit.abs(d))
    large, small = emit.select(swaps, d, c), emit.select(swaps, c, d)
    x, y = emit.select(swaps, b, a), emit.select(swaps, a, b)
    ratio = emit.div(small, large)
    scale = emit.div(emit.constant(1.0, a.dtype), emit.add(large, emit.mul(small, ratio)))
    real = emit.mul(emit.add(x, emit.mul(y, ratio)), scale)
    imag = emit.mul(emit.sub(y, emit.mul(x, ratio)), scale)
    imag = emit.select(swaps, emit.neg(imag), imag)
    by_zero, zero = emit.eq(large, 0.0), emit.abs(c)
    return emit.complex(emit.select(by_zero, emit.div(a, zero), real), emit.select(by_zero, emit.div(b, zero), imag))


def absolute(emit: Emitter, z: Value) -> Value:
    return scalar_rules.hypot(emit, *_parts(emit, z))


def sign(emit: Emitter, z: Value) -> Value:
    """z / |z|; 0 of 0, NaN in both parts of NaN (SIGN-3)."""
    a, b = _parts(emit, z)
    size = absolute(emit, z)
    is_nan = emit.or_(emit.ne(a, a), emit.ne(b, b))
    nan, zero = emit.constant(math.nan, a.dtype), emit.constant(0.0, a.dtype)

    def part(x: Value) -> Value:
        return emit.select(is_nan, nan, emit.select(emit.eq(size, 0.0), zero, emit.div(x, size)))

    return emit.complex(part(a), part(b))


def equal(emit: Emitter, z: Value, w: Value) -> Value:
    (a, b), (c, d) = _parts(emit, z), _parts(emit, w)
    return emit.and_(emit.eq(a, c), emit.eq(b, d))


def not_equal(emit: Emitter, z: Value, w: Value) -> Value:
    return emit.not_(equal(emit, z, w))


# -- exponentials and logarithms


def _polar(emit: Emitter, size: Value, angle: Value) -> Value:
    """size * (cos + i sin)(angle); real where the angle is 0 and 0 where the size is, whatever the other."""
    vanishes, cos, sin = emit.eq(size, 0.0), emit.cos(angle), emit.sin(angle)
    real = emit.select(vanishes, emit.copysign(size, cos), emit.mul(size, cos))
    imag = emit.select(vanishes, emit.copysign(size, sin), emit.mul(size, sin))
    return emit.complex(real, emit.select(emit.eq(angle, 0.0), angle, imag))


def exponential(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    return _polar(emit, emit.exp(a), b)


def exponential_minus_one(emit: Emitter, z: Value) -> Value:
    """expm1(a) cos b - 2 sin(b/2)^2, exp(a) sin b."""
    a, b = _parts(emit, z)
    half = emit.sin(emit.mul(b, 0.5))
    real = emit.sub(emit.mul(emit.expm1(a), emit.cos(b)), emit.mul(emit.mul(half, half), 2.0))
    return emit.complex(real, emit.mul(emit.exp(a), emit.sin(b)))


def log(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    return emit.complex(_log_of_modulus(emit, a, b), emit.atan2(b, a))


def _log_of_modulus(emit: Emitter, a: Value, b: Value) -> Value:
    """Near 1 log1p((high - 1)(high + 1) + low^2) / 2, where the modulus itself would have lost its digits.

    Elsewhere log(high) + log1p((low / high)^2) / 2, where it might overflow.
    """
    x, y = emit.abs(a), emit.abs(b)
    high, low = emit.max(x, y), emit.min(x, y)
    is_near = emit.and_(emit.gt(high, 0.5), emit.lt(high, 2.0))
    square = emit.add(emit.mul(emit.sub(high, 1.0), emit.add(high, 1.0)), emit.mul(low, low))
    near = emit.mul(emit.log1p(emit.select(is_near, square, emit.constant(0.0, a.dtype))), 0.5)
    ratio = emit.select(emit.eq(low, high), emit.constant(1.0, a.dtype), emit.div(low, high))
    rest = emit.mul(emit.log1p(emit.mul(ratio, ratio)), 0.5)
    return emit.select(is_near, near, emit.add(emit.log(high), rest))


def log_plus_one(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    near = emit.mul(emit.log1p(emit.add(emit.mul(a, emit.add(a, 2.0)), emit.mul(b, b))), 0.5)
    c = emit.add(a, 1.0)
    is_near = emit.lt(scalar_rules.hypot(emit, a, b), 0.5)
    return emit.complex(emit.select(is_near, near, _log_of_modulus(emit, c, b)), emit.atan2(b, c))


def logistic(emit: Emitter, z: Value) -> Value:
    is_positive = emit.ge(emit.real(z), 0.0)
    small = exponential(emit, emit.select(is_positive, negate(emit, z), z))
    one = emit.constant(1.0, z.dtype)
    return divide(emit, emit.select(is_positive, one, small), add(emit, one, small))


def sqrt(emit: Emitter, z: Value) -> Value:
    """t = sqrt((|a| + |z|) / 2) is the larger part, b / 2t the other.

    |a| + |z| may overflow, and be too small to have all its digits: it is taken of 2^-5 z, or 2^53 z.
    """
    a, b = _parts(emit, z)
    is_small = emit.lt(emit.max(emit.abs(a), emit.abs(b)), 1.0)

    def of_size(small: float, large: float) -> Value:
        return emit.select(is_small, emit.constant(small, a.dtype), emit.constant(large, a.dtype))

    scale = of_size(2.0**53, 2.0**-5)
    x, y = emit.mul(emit.abs(a), scale), emit.mul(b, scale)
    t = emit.mul(emit.sqrt(emit.add(x, scalar_rules.hypot(emit, x, y))), of_size(2.0**-27, 4.0))
    other = emit.select(emit.eq(t, 0.0), b, emit.div(b, emit.add(t, t)))
    is_right = emit.ge(a, 0.0)
    infinite = emit.eq(emit.abs(b), math.inf)
    real = emit.select(infinite, emit.abs(b), emit.select(is_right, t, emit.abs(other)))
    imag = emit.select(infinite, b, emit.select(is_right, other, emit.copysign(t, b)))
    return emit.complex(real, imag)


def rsqrt(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    infinite = emit.or_(emit.eq(emit.abs(a), math.inf), emit.eq(emit.abs(b), math.inf))
    zero = emit.constant(0.0, a.dtype)
    vanished = emit.complex(zero, emit.copysign(zero, emit.neg(b)))
    return emit.select(infinite, vanished, divide(emit, emit.constant(1.0, z.dtype), sqrt(emit, z)))


def power(emit: Emitter, z: Value, w: Value) -> Value:
    """exp(w log z), in f64: the product multiplies the logarithm's error. 0 to the 0 is 1."""
    z, exponent = emit.convert(z, dtypes.c128), emit.convert(w, dtypes.c128)
    is_zero = equal(emit, z, emit.constant(0.0, z.dtype))
    plain = emit.select(is_zero, emit.constant(1.0, z.dtype), z)
    value = exponential(emit, multiply(emit, exponent, log(emit, plain)))
    (c, d), nan = _parts(emit, exponent), emit.constant(complex(math.nan, math.nan), z.dtype)
    vanishes = emit.select(emit.gt(c, 0.0), emit.constant(0.0, z.dtype), nan)
    of_zero = emit.select(emit.and_(emit.eq(c, 0.0), emit.eq(d, 0.0)), emit.constant(1.0, z.dtype), vanishes)
    return emit.convert(emit.select(is_zero, of_zero, value), w.dtype)


# -- trigonometric and hyperbolic


def sinh(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    real = emit.mul(scalar_rules.sinh(emit, a), emit.cos(b))
    return emit.complex(real, emit.mul(scalar_rules.cosh(emit, a), emit.sin(b)))


def cosh(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    real = emit.mul(scalar_rules.cosh(emit, a), emit.cos(b))
    return emit.complex(real, emit.mul(scalar_rules.sinh(emit, a), emit.sin(b)))


def tanh(emit: Emitter, z: Value) -> Value:
    """t = tan b, s = sinh a: ((1 + t^2) sqrt(1 + s^2) s + i t) / (1 + (1 + t^2) s^2).

    Far out, where sinh would overflow, it is 1 + 4i sin b cos b / exp(2a).
    """
    a, b = _parts(emit, z)
    size, one = emit.abs(a), emit.constant(1.0, a.dtype)
    is_far = emit.gt(size, 20.0)
    t = scalar_rules.tan(emit, b)
    s = scalar_rules.sinh(emit, emit.select(is_far, one, a))
    beta = emit.add(emit.mul(t, t), 1.0)
    square = emit.mul(s, s)
    below = emit.add(emit.mul(beta, square), 1.0)
    real = emit.div(emit.mul(emit.mul(beta, emit.sqrt(emit.add(square, 1.0))), s), below)
    decay = emit.exp(emit.mul(size, -2.0))
    turn = emit.mul(emit.mul(emit.sin(b), emit.cos(b)), 4.0)
    far = emit.select(emit.eq(decay, 0.0), emit.copysign(decay, turn), emit.mul(turn, decay))
    imag = emit.select(is_far, far, emit.div(t, below))
    return emit.complex(emit.select(is_far, emit.copysign(one, a), real), imag)


def sine(emit: Emitter, z: Value) -> Value:
    return _over_i(emit, sinh(emit, _times_i(emit, z)))


def cosine(emit: Emitter, z: Value) -> Value:
    return cosh(emit, _times_i(emit, z))


def tan(emit: Emitter, z: Value) -> Value:
    return _over_i(emit, tanh(emit, _times_i(emit, z)))


# -- their inverses, after Kahan: the roots are taken apart so that branch cuts and signed zeros come out right


def _roots(emit: Emitter, z: Value) -> tuple[Value, Value]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    a, b = _parts(emit, z)
    minus = emit.complex(emit.sub(emit.constant(1.0, a.dtype), a), emit.neg(b))
    return sqrt(emit, minus), sqrt(emit, emit.complex(emit.add(a, 1.0), b))


def acos(emit: Emitter, z: Value) -> Value:
    minus, plus = _roots(emit, z)
    real = emit.mul(emit.atan2(emit.real(minus), emit.real(plus)), 2.0)
    return emit.complex(real, scalar_rules.asinh(emit, emit.imag(multiply(emit, conjugate(emit, plus), minus))))


def asin(emit: Emitter, z: Value) -> Value:
    minus, plus = _roots(emit, z)
    real = emit.atan2(emit.real(z), emit.real(multiply(emit, minus, plus)))
    return emit.complex(real, scalar_rules.asinh(emit, emit.imag(multiply(emit, conjugate(emit, minus), plus))))


def acosh(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    minus = sqrt(emit, emit.complex(emit.sub(a, 1.0), b))
    plus = sqrt(emit, emit.complex(emit.add(a, 1.0), b))
    real = scalar_rules.asinh(emit, emit.real(multiply(emit, conjugate(emit, minus), plus)))
    return emit.complex(real, emit.mul(emit.atan2(emit.imag(minus), emit.real(plus)), 2.0))


def asinh(emit: Emitter, z: Value) -> Value:
    return _over_i(emit, asin(emit, _times_i(emit, z)))


def atanh(emit: Emitter, z: Value) -> Value:
    """log1p(4a / ((1 - a)^2 + b^2)) / 4, atan2(2b, (1 - a)(1 + a) - b^2) / 2.

    Far out, where squares may overflow, a / |z|^2 and pi / 2.
    """
    a, b = _parts(emit, z)
    one, zero = emit.constant(1.0, a.dtype), emit.constant(0.0, a.dtype)
    length = scalar_rules.hypot(emit, a, b)
    is_far = emit.ge(length, scalar_rules.LARGE[a.dtype.name])
    x, y = emit.select(is_far, zero, a), emit.select(is_far, zero, b)
    square, size = emit.mul(y, y), emit.abs(x)
    gap = emit.sub(one, size)
    ratio = emit.div(emit.mul(size, 4.0), emit.add(emit.mul(gap, gap), square))
    near = emit.mul(emit.log1p(ratio), 0.25)
    turn = emit.sub(emit.mul(emit.sub(one, x), emit.add(x, 1.0)), square)
    angle = emit.mul(emit.atan2(emit.mul(y, 2.0), turn), 0.5)
    far = emit.select(emit.eq(length, math.inf), zero, emit.div(emit.div(emit.abs(a), length), length))
    right_angle = emit.copysign(emit.constant(math.pi / 2, a.dtype), b)
    return emit.complex(emit.copysign(emit.select(is_far, far, near), a), emit.select(is_far, right_angle, angle))


def atan(emit: Emitter, z: Value) -> Value:
    return _over_i(emit, atanh(emit, _times_i(emit, z)))


def atan2(emit: Emitter, y: Value, x: Value) -> Value:
    """-i log((x + iy) / sqrt(x^2 + y^2)) (BEY-7), in f64: the square root cancels, and the squares may overflow."""
    y, wide = emit.convert(y, dtypes.c128), emit.convert(x, dtypes.c128)
    length = sqrt(emit, add(emit, multiply(emit, wide, wide), multiply(emit, y, y)))
    i, over_i = emit.constant(1j, y.dtype), emit.constant(-1j, y.dtype)  # products: on the cut the sign of 0 counts
    direction = divide(emit, add(emit, wide, multiply(emit, i, y)), length)
    return emit.convert(multiply(emit, over_i, log(emit, direction)), x.dtype)
