"""Error bounds of the transcendental primitives, in units in the last place of the exact result."""

from __future__ import annotations

from hlokit.types.dtype import DType, f32, f64

_ULP = {
    "exp": 1.0, "expm1": 2.0, "log": 1.0, "log1p": 1.0, "sin": 2.0, "cos": 2.0, "tanh": 2.0, "atan2": 2.0, "erf": 2.0,
    "pow": 1.0, "cbrt": 1.0, "rsqrt": 1.5,
}  # fmt: skip

BOUNDS: dict[tuple[str, DType], float] = {(name, dtype): ulp for dtype in (f32, f64) for name, ulp in _ULP.items()}
"""Greatest |computed - exact| / ulp(exact), one unit of a denormal being that of the least normal number.

Shown by tests/cpu/test_math.py, f32 on samples of every exponent against f64, f64 against mpmath; the table with what
was measured: `python -m tests.cpu.math_table`. Results in f16 and bf16 are these rounded once more.
"""
