"""jax.numpy: functions of each element."""

import jax.numpy as jnp
import numpy as np

from tests.jax.functions.table import case, each, integers, normal, uniform

M = "jax.numpy"
X, Y = normal(3, 4), normal(3, 4, seed=1)
UNIT = uniform(3, 4, low=-0.9, high=0.9)
ABOVE = uniform(3, 4, low=1.1, high=4)
N, J = integers(3, 4, low=-9), integers(3, 4, low=1, seed=1)
BYTES = integers(3, 4, high=200, dtype=np.uint8), integers(3, 4, low=1, high=7, dtype=np.uint8, seed=1)
ODD = np.float32([0, -0.0, 1, -1, 2.5, -2.5, 0.5, 1e-30, 1e30, np.inf, -np.inf, np.nan])
WIDE = "f32 bf16 i32 c64"

CASES = [
    *each(M, "abs absolute negative positive square", X, types=WIDE),
    *each(M, "sin cos tan sinh cosh tanh exp expm1 exp2 arctan arcsinh", X, types="f32 bf16 c64"),
    *each(M, "atan asinh", X),
    *each(M, "fabs deg2rad rad2deg degrees radians sinc i0 cbrt", X, types="f32 bf16"),
    *each(M, "arcsin arccos arctanh", UNIT, types="f32 bf16 c64"),
    *each(M, "asin acos atanh", UNIT),
    *each(M, "log log2 log10 log1p sqrt reciprocal", ABOVE, types="f32 bf16 c64"),
    *each(M, "arccosh", ABOVE, types="f32 c64"),
    *each(M, "acosh", ABOVE),
    *each(M, "floor ceil trunc rint", X, types="f32 bf16"),
    *each(M, "round around", X * 3, types="f32 bf16"),
    *each(M, "sign signbit", ODD),
    *each(M, "isfinite isinf isnan isneginf isposinf isreal iscomplex", ODD),
    *each(M, "nan_to_num", ODD),
    *each(M, "real imag conj conjugate angle", X, types="f32 c64"),
    *each(M, "spacing", ODD[:9], no_grad=True),
    *each(M, "frexp modf", X * 3),
    *each(M, "logical_not", X, types="f32 i32 bool u8"),
    *each(M, "invert bitwise_not bitwise_invert bitwise_count", N),
    *each(M, "add subtract multiply", X, Y, types="f32 bf16 i32 u8 c64"),
    *each(M, "divide true_divide", X, ABOVE, types="f32 bf16 i32 c64"),
    *each(M, "floor_divide remainder mod fmod divmod", X * 5, ABOVE, types="f32 bf16 i32 u8"),
    *each(M, "maximum minimum", X, Y, types="f32 bf16 i32 u8 bool"),
    *each(M, "fmax fmin copysign hypot logaddexp logaddexp2 arctan2 heaviside", X, Y),
    *each(M, "nextafter", X, Y, no_grad=True),
    *each(M, "atan2", X, Y),
    *each(M, "power pow float_power", ABOVE, Y, types="f32 c64"),
    case(f"{M}.power", lambda x, n: jnp.power(x, n), X, J, label="integers"),
    case(f"{M}.ldexp", None, X, integers(3, 4, low=-4, high=5)),
    *each(M, "equal not_equal", X, np.where(Y > 0, X, Y), types="f32 bf16 i32 c64 bool"),
    *each(M, "greater greater_equal less less_equal", X, Y, types="f32 bf16 i32 u8 bool"),
    *each(M, "logical_and logical_or logical_xor", X, Y, types="f32 i32 bool"),
    *each(M, "bitwise_and bitwise_or bitwise_xor", N, J),
    *each(M, "left_shift right_shift bitwise_left_shift bitwise_right_shift", *BYTES),
    *each(M, "gcd lcm", N, J),
    *each(M, "isclose", X, X + np.float32(1e-6)),
    *each(M, "allclose array_equal array_equiv", X, X),
    case(f"{M}.clip", lambda x: jnp.clip(x, -0.5, 0.7), X, types="f32 bf16 i32"),
    case(f"{M}.where", None, N > 0, X, Y),
    case(f"{M}.select", lambda a, b, x, y: jnp.select([a, b], [x, y], 7), N > 3, N > 0, X, Y),
    case(f"{M}.piecewise", lambda x: jnp.piecewise(x, [x < -0.5, x > 0.5], [jnp.sin, jnp.exp, 0.25]), X),
    case(f"{M}.interp", jnp.interp, X, np.float32([-1, 0, 0.5, 2]), normal(4, seed=2),
         batch=(Y, np.float32([-2, 0, 1, 1.5]), normal(4, seed=3))),
    case(f"{M}.astype", lambda x: jnp.astype(x, jnp.int16), X * 9, types="f32 bf16 bool"),
    case(f"{M}.polyval", None, normal(4), X),
    case(f"{M}.unwrap", None, X * 5),
]  # fmt: skip
