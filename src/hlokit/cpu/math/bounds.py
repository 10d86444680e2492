"""Error bounds of the transcendental primitives, in units in the last place of the exact result."""

from __future__ import annotations

from hlokit.forms.primitives import PRIMITIVES
from hlokit.types.dtype import DType, f32, f64

_ULP = {p.name: p.ulp for p in PRIMITIVES.values() if p.ulp is not None} | {"rsqrt": 1.5}  # which code alone has

BOUNDS: dict[tuple[str, DType], float] = {(name, dtype): ulp for dtype in (f32, f64) for name, ulp in _ULP.items()}
"""Primitive.ulp by name and type.

Shown by tests/cpu/test_math.py, f32 on samples of every exponent against f64, f64 against mpmath; the table with what
was measured: `python -m tests.cpu.math_table`. Results in f16 and bf16 are these rounded once more.
"""
