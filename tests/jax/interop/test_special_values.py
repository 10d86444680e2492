"""Functions at the edges of their types: the interpreter and machine code beside JAX's CPU client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlokit as hk
from hlokit.interop.jax import lower

Array = np.ndarray[Any, np.dtype[Any]]

def names(text: str) -> list[str]:
    return text.split()


COMPLEX: dict[str, Callable[..., Any]] = {
    **{name: getattr(lax, name) for name in names("exp expm1 log log1p sin cos tan tanh sinh cosh sqrt rsqrt")},
    **{name: getattr(lax, name) for name in names("logistic sign abs asinh atanh exp2 reciprocal")},
    "x ** 3": lambda z: z**3,
    "x ** -2": lambda z: z**-2,
    "log10": jnp.log10,
}

REAL: dict[str, Callable[..., Any]] = {
    **{name: getattr(lax, name) for name in names("exp expm1 log log1p sin cos tan tanh sinh cosh sqrt rsqrt cbrt")},
    **{name: getattr(lax, name) for name in names("logistic sign asin acos atan asinh acosh atanh exp2")},
    **{name: getattr(lax, name) for name in names("lgamma digamma erf erfc erf_inv bessel_i0e bessel_i1e")},
    **{name: getattr(jax.scipy.special, name) for name in names("i0 i1 ndtr log_ndtr entr logit")},
}

ANNEX_G: dict[str, Callable[[Array, Array], Array]] = {
    "exp": lambda a, b: np.isinf(a) & np.isinf(b),
    "expm1": lambda a, b: np.isinf(a) & np.isinf(b),
    "exp2": lambda a, b: np.isinf(a),  # exp of a product whose imaginary part is NaN
    "logistic": lambda a, b: np.isinf(a) & np.isinf(b),
    "sinh": lambda a, b: (a == 0) & np.isinf(b),
    "cosh": lambda a, b: (a == 0) & np.isinf(b),
}
"""Where C's Annex G gives one part of a result of which JAX's client makes NaN."""

CANCELLED: dict[str, Callable[[Array, Array], Array]] = {
    "expm1": lambda a, b: (a == 0) | (np.abs(a) == 89) | (a == 710),
    "sqrt": lambda a, b: (a < 0) & (b == 0) & np.signbit(b),
    "rsqrt": lambda a, b: (a < 0) & (b == 0),
    "asinh": lambda a, b: (a == 0) & np.signbit(a),
    "atanh": lambda a, b: (b == 0) & np.signbit(b),
}
"""Where JAX's client loses digits, overflows before the result does, or takes -0 for the other side of a cut."""


def numbers(dtype: Any) -> Array:
    sizes = np.array([0, 1, 89, 100, 710, 800, np.finfo(dtype).max, np.inf], dtype)
    return np.concatenate([sizes, -sizes])


def outcomes(functions: dict[str, Callable[..., Any]], *arguments: Array) -> list[tuple[Array, ...]]:
    """What the interpreter, machine code and JAX's client make of it, function by function."""

    def all_of(*values: Any) -> Any:
        return [f(*values) for f in functions.values()]

    with jax.enable_x64(True):
        module = lower(all_of, *arguments)
        theirs = jax.jit(all_of)(*arguments)
        ours = hk.evaluate(module, *arguments), hk.compile(module)(*arguments)
        sides = [side if isinstance(side, (tuple, list)) else (side,) for side in (*ours, theirs)]
        return [tuple(np.asarray(side[k]) for side in sides) for k in range(len(functions))]


def apart(ours: Array, theirs: Array, ulps: float) -> Array:
    """Where one is a number and the other none, infinities differ, or numbers are too far from each other."""
    parts = [(ours.real, theirs.real), (ours.imag, theirs.imag)] if ours.dtype.kind == "c" else [(ours, theirs)]
    finite = [np.where(np.isfinite(x), np.abs(x), 0).astype(np.float64) for x, _ in parts]
    info = np.finfo(ours.dtype)
    room = ulps * float(info.eps) * np.max(finite, axis=0) + 4 * float(info.tiny)
    found = np.zeros(ours.shape, bool)
    for x, y in parts:
        same = (np.isnan(x) & np.isnan(y)) | (x == y)
        with np.errstate(all="ignore"):
            near = np.isfinite(x) & np.isfinite(y) & (np.abs(x.astype(np.float64) - y) <= room)
        found |= ~(same | near)
    return found


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.complex64, pytest.param(np.complex128, marks=pytest.mark.slow)])
def test_complex_functions(dtype: Any) -> None:
    parts = numbers(np.finfo(dtype).dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(parts, parts, indexing="ij"))
    z = np.empty(a.shape, dtype)
    z.real, z.imag = a, b
    found: list[str] = []
    for name, sides in zip(COMPLEX, outcomes(COMPLEX, z), strict=True):
        excused = np.zeros(a.shape, bool)
        for table in (ANNEX_G, CANCELLED):
            if name in table:
                excused |= table[name](a, b)
        interpreted, compiled, theirs = sides
        wrong = (apart(interpreted, theirs, 500) | apart(compiled, theirs, 500)) & ~excused
        found += [f"{name}({z[i]}): {interpreted[i]}, {compiled[i]}; JAX {theirs[i]}" for i in np.flatnonzero(wrong)]
    assert not found, "\n".join(found)


def test_quotients_of_complex_numbers() -> None:
    """Also by zero and infinity, where the formula would have NaN."""
    parts = np.array([0, 1, 3, np.inf], np.float32)
    grids = np.meshgrid(*[np.concatenate([parts, -parts])] * 4, indexing="ij")
    a, b, c, d = (grid.ravel() for grid in grids)
    z, w = np.empty(a.shape, np.complex64), np.empty(a.shape, np.complex64)
    z.real, z.imag, w.real, w.imag = a, b, c, d
    ((interpreted, compiled, theirs),) = outcomes({"div": lax.div}, z, w)
    for ours in (interpreted, compiled):
        wrong = np.flatnonzero(apart(ours, theirs, 64))
        assert not wrong.size, [f"{z[i]} / {w[i]}: {ours[i]}, JAX {theirs[i]}" for i in wrong[:8]]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_real_functions(dtype: Any) -> None:
    great = np.finfo(dtype).max
    more = np.array([0.25, 0.5, 2, 2.5, 10, 34.5, 171, 745, 2.0**23, 2.0**53, great / 100, great / 2], dtype)
    x = np.concatenate([numbers(dtype), more, -more, np.array([np.nan], dtype)])
    found: list[str] = []
    for name, (interpreted, compiled, theirs) in zip(REAL, outcomes(REAL, x), strict=True):
        wrong = apart(interpreted, theirs, 2000) | apart(compiled, theirs, 2000)
        wrong &= (name != "lgamma") | (x != 1)  # its zero, which JAX's client misses
        wrong &= (name != "digamma") | (x != 0)  # NaN in jaxlib 0.10.2, as here, and -inf in 0.12
        found += [f"{name}({x[i]}): {interpreted[i]}, {compiled[i]}; JAX {theirs[i]}" for i in np.flatnonzero(wrong)]
    assert not found, "\n".join(found)
