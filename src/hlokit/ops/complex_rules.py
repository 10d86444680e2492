"""Scalar rules of complex numbers, which are pairs: a backend knows `complex`, `real`, `imag`, no arithmetic on them.

Error bounds are relative to the modulus of the result. Functions of infinite and NaN parts follow C's Annex G, as the
reference does, and so do quotients; products and powers follow their formulas.
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
    other = emit.mul(x, ratio)
    imag = emit.mul(emit.select(swaps, emit.sub(other, y), emit.sub(y, other)), scale)
    by_zero = emit.and_(emit.eq(large, 0.0), emit.eq(small, 0.0))
    infinity = emit.copysign(emit.constant(math.inf, a.dtype), c)
    real = emit.select(by_zero, emit.mul(infinity, a), real)
    imag = emit.select(by_zero, emit.mul(infinity, b), imag)
    return _recovered(emit, z, w, emit.complex(real, imag))


def _recovered(emit: Emitter, z: Value, w: Value, quotient: Value) -> Value:
    """The quotient; of an infinite number by a finite one or the reverse as in Annex G where both parts are NaN."""
    (a, b), (c, d), (real, imag) = _parts(emit, z), _parts(emit, w), _parts(emit, quotient)
    lost = emit.and_(emit.ne(real, real), emit.ne(imag, imag))
    infinite = [_is_infinite(emit, *(emit.abs(x) for x in parts)) for parts in ((a, b), (c, d))]
    finite = [emit.and_(*(scalar_rules.is_finite(emit, x) for x in parts)) for parts in ((a, b), (c, d))]
    of_infinite = emit.and_(lost, emit.and_(infinite[0], finite[1]))
    by_infinite = emit.and_(lost, emit.and_(finite[0], infinite[1]))
    infinity, one, zero = (emit.constant(x, a.dtype) for x in (math.inf, 1.0, 0.0))

    def unit(x: Value) -> Value:
        return emit.copysign(emit.select(emit.eq(emit.abs(x), math.inf), one, zero), x)

    a, b = (emit.select(of_infinite, unit(x), x) for x in (a, b))
    c, d = (emit.select(by_infinite, unit(x), x) for x in (c, d))
    factor = emit.select(of_infinite, infinity, zero)
    direction = emit.add(emit.mul(a, c), emit.mul(b, d)), emit.sub(emit.mul(b, c), emit.mul(a, d))
    changes = emit.or_(of_infinite, by_infinite)
    real, imag = (emit.select(changes, emit.mul(factor, x), y) for x, y in zip(direction, (real, imag), strict=True))
    return emit.complex(real, imag)


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


def _lowered(emit: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """(y, factor, whether they differ): exp(x) = exp(y) factor, to be taken of something small before it overflows."""
    limit = _GREATEST_EXP[x.dtype.name]
    beyond, one = emit.gt(x, limit), emit.constant(1.0, x.dtype)
    shift = emit.select(beyond, emit.constant(limit, x.dtype), emit.constant(0.0, x.dtype))
    return emit.sub(x, shift), emit.select(beyond, emit.constant(math.exp(limit), x.dtype), one), beyond


_GREATEST_EXP = {"f32": 88.0, "f64": 709.0}
"""The greatest integers whose exponentials the types hold."""


def exponential(emit: Emitter, z: Value) -> Value:
    """Real where the angle is 0; of infinite real parts 0 and infinity, whatever the angle."""
    a, b = _parts(emit, z)
    low, factor, _ = _lowered(emit, a)
    size, cos, sin = emit.exp(low), emit.cos(b), emit.sin(b)
    lost = emit.ne(cos, cos)
    real = emit.select(emit.and_(lost, emit.eq(emit.abs(a), math.inf)), size, emit.mul(emit.mul(size, cos), factor))
    imag = emit.select(emit.and_(lost, emit.eq(a, -math.inf)), size, emit.mul(emit.mul(size, sin), factor))
    return emit.complex(real, emit.select(emit.eq(b, 0.0), b, imag))


def exponential_minus_one(emit: Emitter, z: Value) -> Value:
    """expm1(a) cos b - 2 sin(b/2)^2, exp(a) sin b."""
    a, b = _parts(emit, z)
    power = exponential(emit, z)
    is_far = emit.gt(emit.abs(a), 40.0)  # nothing cancels there, and the exponential may overflow
    half = emit.sin(emit.mul(b, 0.5))
    near = emit.sub(emit.mul(emit.expm1(a), emit.cos(b)), emit.mul(emit.mul(half, half), 2.0))
    real = emit.select(is_far, emit.sub(emit.real(power), 1.0), near)
    return emit.complex(real, emit.imag(power))


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
    far = emit.select(_is_infinite(emit, x, y), emit.constant(math.inf, a.dtype), emit.add(emit.log(high), rest))
    return emit.select(is_near, near, far)


def log_plus_one(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    near = emit.mul(emit.log1p(emit.add(emit.mul(a, emit.add(a, 2.0)), emit.mul(b, b))), 0.5)
    c = emit.add(a, 1.0)
    is_near = emit.lt(scalar_rules.hypot(emit, a, b), 0.5)
    return emit.complex(emit.select(is_near, near, _log_of_modulus(emit, c, b)), emit.atan2(b, c))


def logistic(emit: Emitter, z: Value) -> Value:
    """1 / (1 + exp(-z)), or exp(z) / (1 + exp(z)) where that is smaller.

    Where the exponential is near -1 the real part of the sum is 2 exp(a) cos(b/2)^2 - expm1(a), which cancels nothing.
    """
    is_positive = emit.ge(emit.real(z), 0.0)
    power = emit.select(is_positive, negate(emit, z), z)
    small, (a, b) = exponential(emit, power), _parts(emit, power)
    half, less = emit.cos(emit.mul(b, 0.5)), emit.expm1(a)
    near = emit.sub(emit.mul(emit.mul(emit.add(less, 1.0), emit.mul(half, half)), 2.0), less)
    one = emit.constant(1.0, z.dtype)
    real, imag = _parts(emit, add(emit, one, small))
    total = emit.complex(emit.select(emit.lt(real, 0.5), near, real), imag)
    return divide(emit, emit.select(is_positive, one, small), total)


def sqrt(emit: Emitter, z: Value) -> Value:
    """t = sqrt((|a| + |z|) / 2) is the larger part, b / 2t the other.

    |a| + |z| may overflow, and be too small to have all its digits: it is taken of 2^-5 z, or 2^53 z.
    """
    a, b = _parts(emit, z)
    is_small = emit.and_(emit.lt(emit.abs(a), 1.0), emit.lt(emit.abs(b), 1.0))

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


def _is_infinite(emit: Emitter, x: Value, y: Value) -> Value:
    """Whether a number is infinite, of the sizes of its parts."""
    return emit.or_(emit.eq(x, math.inf), emit.eq(y, math.inf))


def rsqrt(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    infinite = _is_infinite(emit, emit.abs(a), emit.abs(b))
    zero = emit.constant(0.0, a.dtype)
    vanished = emit.complex(zero, emit.copysign(zero, emit.neg(b)))
    return emit.select(infinite, vanished, divide(emit, emit.constant(1.0, z.dtype), sqrt(emit, z)))


def power(emit: Emitter, z: Value, w: Value) -> Value:
    """exp(w log z), in f64: the product multiplies the logarithm's error. To the 0 it is 1, whatever z."""
    z, exponent = emit.convert(z, dtypes.c128), emit.convert(w, dtypes.c128)
    zero, one = emit.constant(0.0, z.dtype), emit.constant(1.0, z.dtype)
    is_zero = equal(emit, z, zero)
    value = exponential(emit, multiply(emit, exponent, log(emit, emit.select(is_zero, one, z))))
    nan = emit.constant(complex(math.nan, math.nan), z.dtype)
    of_zero = emit.select(emit.gt(emit.real(exponent), 0.0), zero, nan)
    value = emit.select(equal(emit, exponent, zero), one, emit.select(is_zero, of_zero, value))
    return emit.convert(value, w.dtype)


# -- trigonometric and hyperbolic


def _hyperbolic(emit: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """sinh(x) and cosh(x) but for a factor, the third: the product may overflow."""
    one, zero = emit.constant(1.0, x.dtype), emit.constant(0.0, x.dtype)
    low, factor, beyond = _lowered(emit, emit.abs(x))
    e = emit.expm1(low)
    power = emit.add(e, 1.0)
    inverse, other = (emit.select(beyond, zero, v) for v in (emit.div(one, power), e))
    sinh = emit.add(emit.select(beyond, power, e), emit.mul(other, inverse))
    return emit.copysign(sinh, x), emit.add(power, inverse), emit.mul(factor, 0.5)


def sinh(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    sinh, cosh, factor = _hyperbolic(emit, a)
    cos, one = emit.cos(b), emit.constant(1.0, a.dtype)
    stays = emit.and_(emit.ne(cos, cos), emit.eq(a, emit.add(a, a)))  # 0 and infinity, whatever the angle
    real = emit.mul(emit.mul(sinh, emit.select(stays, one, cos)), factor)
    imag = emit.mul(emit.mul(cosh, emit.sin(b)), factor)
    return emit.complex(real, emit.select(emit.eq(b, 0.0), b, imag))


def cosh(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    sinh, cosh, factor = _hyperbolic(emit, a)
    cos, sin, one = emit.cos(b), emit.sin(b), emit.constant(1.0, a.dtype)
    lost = emit.ne(cos, cos)
    turn = emit.select(emit.and_(lost, emit.eq(emit.abs(a), math.inf)), one, cos)
    sinh = emit.select(emit.eq(b, 0.0), emit.copysign(one, a), sinh)  # 0 of either 0, whatever the other
    sin = emit.select(emit.and_(lost, emit.eq(a, 0.0)), a, sin)
    imag = emit.mul(emit.mul(sinh, sin), factor)
    return emit.complex(emit.mul(emit.mul(cosh, turn), factor), imag)


def tanh(emit: Emitter, z: Value) -> Value:
    """t = tan b, s = sinh a: ((1 + t^2) sqrt(1 + s^2) s + i t) / (1 + (1 + t^2) s^2).

    Far out, where sinh would overflow, it is 1 + 4i sin b cos b / exp(2a).
    """
    a, b = _parts(emit, z)
    size, one = emit.abs(a), emit.constant(1.0, a.dtype)
    is_far = emit.gt(size, 20.0)
    t = scalar_rules.tan(emit, b)
    twice, _, half = _hyperbolic(emit, emit.select(is_far, one, a))
    s = emit.mul(twice, half)
    beta = emit.add(emit.mul(t, t), 1.0)
    square = emit.mul(s, s)
    below = emit.add(emit.mul(beta, square), 1.0)
    real = emit.div(emit.mul(emit.mul(beta, emit.sqrt(emit.add(square, 1.0))), s), below)
    decay = emit.exp(emit.mul(size, -2.0))
    turn = emit.mul(emit.mul(emit.sin(b), emit.cos(b)), 4.0)
    lost = emit.ne(t, t)
    far = emit.select(emit.and_(lost, emit.eq(size, math.inf)), decay, emit.mul(turn, decay))
    imag = emit.select(emit.eq(b, 0.0), b, emit.select(is_far, far, emit.div(t, below)))
    real = emit.select(is_far, emit.select(emit.ne(far, far), far, emit.copysign(one, a)), real)
    at_zero = emit.and_(emit.eq(a, 0.0), emit.eq(t, t))  # its sign; of no angle NaN
    return emit.complex(emit.select(at_zero, a, real), imag)


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


def _nearer(emit: Emitter, z: Value) -> tuple[Value, Value]:
    """A number in z's direction whose modulus does not overflow, and log |z| less its logarithm.

    Beyond the limit it is z / 2^64, of infinite numbers at the limit.
    """
    a, b = _parts(emit, z)
    x, y = emit.abs(a), emit.abs(b)
    limit, zero = _FAR[a.dtype.name], emit.constant(0.0, a.dtype)
    is_far, infinite = emit.or_(emit.gt(x, limit), emit.gt(y, limit)), _is_infinite(emit, x, y)
    scale = emit.select(is_far, emit.constant(2.0**-64, a.dtype), emit.constant(1.0, a.dtype))
    scale = emit.select(infinite, zero, scale)
    at_limit = emit.constant(limit, a.dtype)
    real, imag = (
        emit.select(emit.eq(size, math.inf), emit.copysign(at_limit, part), emit.mul(part, scale))
        for size, part in ((x, a), (y, b))
    )
    lost = emit.select(is_far, emit.constant(64 * math.log(2.0), a.dtype), zero)
    return emit.complex(real, imag), emit.select(infinite, emit.constant(math.inf, a.dtype), lost)


_FAR = {"f32": 2.0**100, "f64": 2.0**1000}


def _height(emit: Emitter, x: Value, more: Value, sign: Value) -> Value:
    """asinh(x), further out by `more`, which may be infinite; its sign is that of `sign`."""
    size = emit.add(emit.abs(scalar_rules.asinh(emit, x)), more)
    return emit.copysign(emit.select(emit.eq(more, math.inf), more, size), sign)


def acos(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    near, more = _nearer(emit, z)
    minus, plus = _roots(emit, near)
    real = emit.mul(emit.atan2(emit.real(minus), emit.real(plus)), 2.0)
    real = emit.select(emit.eq(a, 0.0), emit.constant(math.pi / 2, a.dtype), real)
    product = emit.imag(multiply(emit, conjugate(emit, plus), minus))
    return emit.complex(real, _height(emit, product, more, emit.neg(b)))


def asin(emit: Emitter, z: Value) -> Value:
    a, b = _parts(emit, z)
    near, more = _nearer(emit, z)
    minus, plus = _roots(emit, near)
    real = emit.atan2(emit.real(near), emit.real(multiply(emit, minus, plus)))
    product = emit.imag(multiply(emit, conjugate(emit, minus), plus))
    return emit.complex(emit.select(emit.eq(a, 0.0), a, real), _height(emit, product, more, b))


def acosh(emit: Emitter, z: Value) -> Value:
    """acos(z) turned by a right angle, to the right."""
    angle, height = _parts(emit, acos(emit, z))
    return emit.complex(emit.abs(height), emit.copysign(angle, emit.imag(z)))


def asinh(emit: Emitter, z: Value) -> Value:
    return _over_i(emit, asin(emit, _times_i(emit, z)))


def atanh(emit: Emitter, z: Value) -> Value:
    """log1p(4a / ((1 - a)^2 + b^2)) / 4, atan2(2b, (1 - a)(1 + a) - b^2) / 2.

    Far out, where squares may overflow, a / |z|^2 and pi / 2; so near a pole that they would vanish, log(2 / b) / 2.
    """
    a, b = _parts(emit, z)
    one, zero = emit.constant(1.0, a.dtype), emit.constant(0.0, a.dtype)
    length = scalar_rules.hypot(emit, a, b)
    is_far = emit.ge(length, scalar_rules.LARGE[a.dtype.name])
    x, y = emit.select(is_far, zero, a), emit.select(is_far, zero, b)
    square, size = emit.mul(y, y), emit.abs(x)
    gap = emit.sub(one, size)
    least, shift = _POLE[a.dtype.name]
    at_pole = emit.and_(emit.eq(gap, 0.0), emit.lt(emit.abs(y), least))
    over = emit.select(at_pole, emit.mul(emit.abs(y), 2.0**shift), emit.add(emit.mul(gap, gap), square))
    power = emit.log1p(emit.div(emit.select(at_pole, emit.constant(2.0, a.dtype), emit.mul(size, 4.0)), over))
    pole = emit.add(emit.mul(power, 0.5), math.log(2.0) * shift / 2)
    near = emit.select(at_pole, pole, emit.mul(power, 0.25))
    turn = emit.sub(emit.mul(emit.sub(one, x), emit.add(x, 1.0)), square)
    angle = emit.mul(emit.atan2(emit.mul(y, 2.0), turn), 0.5)
    far = emit.select(emit.eq(length, math.inf), zero, emit.div(emit.div(emit.abs(a), length), length))
    right_angle = emit.copysign(emit.constant(math.pi / 2, a.dtype), b)
    real = emit.select(emit.eq(a, 0.0), a, emit.copysign(emit.select(is_far, far, near), a))
    imag = emit.select(emit.ne(b, b), b, emit.select(is_far, right_angle, angle))
    return emit.complex(real, imag)


_POLE = {"f32": (2.0**-60, 32), "f64": (2.0**-480, 64)}
"""Distances whose squares may vanish; so many powers of two nearer their inverses do not overflow."""


def atan(emit: Emitter, z: Value) -> Value:
    return _over_i(emit, atanh(emit, _times_i(emit, z)))


def atan2(emit: Emitter, y: Value, x: Value) -> Value:
    """-i log((x + iy) / sqrt(x^2 + y^2)) (BEY-7), in f64: the square root cancels, and the squares may overflow."""
    y, wide = emit.convert(y, dtypes.c128), emit.convert(x, dtypes.c128)
    length = sqrt(emit, add(emit, multiply(emit, wide, wide), multiply(emit, y, y)))
    i, over_i = emit.constant(1j, y.dtype), emit.constant(-1j, y.dtype)  # products: on the cut the sign of 0 counts
    direction = divide(emit, add(emit, wide, multiply(emit, i, y)), length)
    return emit.convert(multiply(emit, over_i, log(emit, direction)), x.dtype)
