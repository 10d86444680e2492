"""Error bounds of the transcendental primitives, in units in the last place of the exact result."""

from __future__ import annotations

from hlokit.types.dtype import DType, f32, f64

BOUNDS: dict[tuple[str, DType], float] = {
    ("exp", f32): 1.0,
    ("expm1", f32): 2.0,
    ("log", f32): 1.0,
    ("log1p", f32): 1.0,
    ("sin", f32): 2.0,
    ("cos", f32): 2.0,
    ("tanh", f32): 2.0,
    ("atan2", f32): 2.0,
    ("erf", f32): 2.0,
    ("pow", f32): 1.0,
    ("cbrt", f32): 1.0,
    ("rsqrt", f32): 1.5,
    ("exp", f64): 1.0,
    ("expm1", f64): 2.0,
    ("log", f64): 1.0,
    ("log1p", f64): 1.0,
    ("sin", f64): 2.0,
    ("cos", f64): 2.0,
    ("tanh", f64): 2.0,
    ("atan2", f64): 2.0,
    ("erf", f64): 2.0,
    ("pow", f64): 1.0,
    ("cbrt", f64): 1.0,
    ("rsqrt", f64): 1.5,
}
"""Greatest |computed - exact| / ulp(exact), one unit of a denormal being that of the least normal number.

Shown by tests/cpu/test_math.py, f32 on samples of every exponent against f64, f64 against mpmath; the table with what
was measured: `python -m tests.cpu.math_table`. Results in f16 and bf16 are these rounded once more.
"""
