"""jax.lax: functions of each element."""

import numpy as np
from jax import lax

from tests.jax.functions.table import case, each, integers, normal, uniform

M = "jax.lax"
X, Y = normal(3, 4), normal(3, 4, seed=1)
UNIT = uniform(3, 4, low=-0.9, high=0.9)
ABOVE, MORE = uniform(3, 4, low=1.1, high=4), uniform(3, 4, low=0.5, high=3, seed=1)
N, J = integers(3, 4, low=-9), integers(3, 4, low=1, high=6, seed=1)

CASES = [
    *each(M, "abs neg sign square", X, types="f32 bf16 i32 c64"),
    *each(M, "sin cos tan sinh cosh tanh exp expm1 exp2 atan asinh logistic", X, types="f32 bf16 c64"),
    *each(M, "asin acos atanh", UNIT, types="f32 bf16 c64"),
    *each(M, "erf erfc", X, types="f32 bf16"),
    *each(M, "erf_inv", UNIT, types="f32 bf16"),
    *each(M, "log log1p sqrt rsqrt reciprocal", ABOVE, types="f32 bf16 c64"),
    *each(M, "acosh", ABOVE),
    *each(M, "cbrt floor ceil round", X * 3, types="f32 bf16"),
    *each(M, "lgamma digamma", ABOVE, types="f32 bf16"),
    *each(M, "bessel_i0e bessel_i1e", X * 3, types="f32 bf16"),
    *each(M, "is_finite", np.float32([1, np.inf, -np.inf, np.nan])),
    *each(M, "real imag", X, types="c64"),
    *each(M, "conj", X, types="f32 c64"),
    *each(M, "complex", X, Y),
    *each(M, "population_count clz bitwise_not", N),
    *each(M, "add sub mul", X, Y, types="f32 bf16 i32 u8 c64"),
    *each(M, "div", X, ABOVE, types="f32 bf16 i32 u8 c64"),
    *each(M, "rem", X * 5, ABOVE, types="f32 bf16 i32 u8"),
    *each(M, "max min", X, Y, types="f32 bf16 i32 u8 bool c64"),
    *each(M, "pow", ABOVE, Y, types="f32 bf16 c64"),
    *each(M, "atan2", X, Y),
    *each(M, "nextafter", X, Y, no_grad=True),
    *each(M, "eq ne", X, np.where(Y > 0, X, Y), types="f32 bf16 i32 c64 bool"),
    *each(M, "ge gt le lt", X, Y, types="f32 bf16 i32 u8 bool"),
    *each(M, "bitwise_and bitwise_or bitwise_xor mulhi", N, J),
    *each(M, "shift_left shift_right_arithmetic shift_right_logical", N, J),
    *each(M, "igamma", ABOVE, MORE),
    *each(M, "igamma_grad_a random_gamma_grad", ABOVE, MORE, no_grad=True),
    *each(M, "zeta", ABOVE, MORE, no_grad=True),
    *each(M, "betainc", ABOVE, MORE, uniform(3, 4, low=0.1, high=0.9), by=(2,)),
    case(f"{M}.polygamma", None, np.float32(2) + np.zeros((3, 4), np.float32), ABOVE, by=(1,)),
    case(f"{M}.integer_pow", lambda x: lax.integer_pow(x, 3), X, types="f32 bf16 i32 c64"),
    case(f"{M}.clamp", lambda x: lax.clamp(np.float32(-0.5), x, np.float32(0.5)), X),
    case(f"{M}.select", None, N > 0, X, Y),
    case(f"{M}.select_n", None, np.abs(N) % 3, X, Y, X * Y),
    case(f"{M}.convert_element_type", lambda x: lax.convert_element_type(x, np.int32), X * 9, types="f32 bf16 u8"),
    case(f"{M}.bitcast_convert_type", lambda x: lax.bitcast_convert_type(x, np.uint8), X),
    case(f"{M}.reduce_precision", lambda x: lax.reduce_precision(x, 5, 10), X),
    case(f"{M}.stop_gradient", None, X),
    case(f"{M}.optimization_barrier", None, X),
]  # fmt: skip
