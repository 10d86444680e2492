"""The tolerance classes of the golden cases: what "the same result" means.

Rules for every class: dtype and shape must match; integers and pred must be equal; two NaNs agree; infinities
must match exactly (of a complex number, each part by itself). In every class but `bits`, +0 and -0 agree, and
two values both smaller in magnitude than the smallest normal number agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.golden.cases import NAMES, Array

Tolerance = dict[str, Any]  # {"class": ..., "rtol": ..., "atol": ..., "triangle": ...}

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_VECTORS = {"eigenvectors": (0,), "svd_u": (0, 2), "svd_v": (0, 2)}
"""Which results of the factorisation are vectors, by tolerance class."""


def compare_outputs(
    got: Sequence[Array],
    want: Sequence[Array],
    tolerance: Sequence[Tolerance],
    inputs: Sequence[Array] = (),
    roles: Sequence[int] | None = None,
) -> str | None:
    """None if all outputs agree, else what is wrong with the first that does not.

    `inputs` are needed for eigenvectors, svd_u and svd_v (the first is the matrix that was factorised). `roles`
    says which result of the factorisation each output is (default: 0, 1, 2, ... in order); vectors are judged as
    vectors wherever a mutated program puts them.
    """
    if len(got) != len(want):
        return f"number of outputs: got {len(got)}, want {len(want)}"
    roles = roles if roles is not None else range(len(got))
    parts = dict(zip(roles, got, strict=True))
    factorisation = next((how["class"] for how in tolerance if how["class"] in _VECTORS), None)
    for index, (role, got_one, want_one, how) in enumerate(zip(roles, got, want, tolerance, strict=True)):
        difference = compare_form(got_one, want_one)
        if difference is None and factorisation and (how["class"] in _VECTORS or role in _VECTORS[factorisation]):
            difference = check_factorisation(factorisation, how["rtol"], inputs[0], parts | {role: got_one})
        elif difference is None:
            difference = compare(got_one, want_one, how)
        if difference is not None:
            return f"output {index} ({how['class']}): {difference}"
    return None


def compare_form(got: object, want: Array) -> str | None:
    """Compares dtype and shape."""
    if not isinstance(got, (np.ndarray, np.generic)):
        return f"got a {type(got).__name__}, want an array"
    if got.dtype != want.dtype:
        return f"dtype: got {NAMES.get(got.dtype, got.dtype)}, want {NAMES[want.dtype]}"
    if got.shape != want.shape:
        return f"shape: got {list(got.shape)}, want {list(want.shape)}"
    return None


def compare(got: Array, want: Array, how: Tolerance) -> str | None:
    """None if `got` agrees with `want` in a class that looks at one output alone, else what is wrong."""
    difference = compare_form(got, want)
    if difference is not None or how["class"] == "shape":
        return difference
    agrees = agreement(got, want, how)
    if "triangle" in how:
        agrees |= ~_triangle(want.shape, how["triangle"])
    return None if agrees.all() else _describe(got, want, agrees)


def agreement(got: Array, want: Array, how: Tolerance) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Elementwise: does `got` agree with `want`? Same dtype and shape are taken for granted."""
    got, want = np.asarray(got), np.asarray(want)
    if not is_inexact(want.dtype):
        return np.asarray(_widened(got) == _widened(want))
    match how["class"]:
        case "bits":
            return _part_by_part(_same_bits, got, want)
        case "exact":
            return _part_by_part(_same_values, got, want)
        case "close":
            return _close(got, want, how["rtol"], how["atol"])
        case other:
            raise ValueError(f"unknown tolerance class {other}")


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """True for floating and complex types."""
    return NAMES[dtype][0] in "fbc"


def smallest_normal(dtype: np.dtype[Any]) -> float:
    """Of a complex type, that of its parts."""
    return float(ml_dtypes.finfo(_part_type(dtype)).smallest_normal)


def _part_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return {"c64": np.dtype(np.float32), "c128": np.dtype(np.float64)}.get(NAMES[dtype], dtype)


def _part_by_part(rule: Any, got: Array, want: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if NAMES[want.dtype][0] != "c":
        return np.asarray(rule(got, want))
    return np.asarray(rule(got.real, want.real) & rule(got.imag, want.imag))


def _same_bits(got: Array, want: Array) -> Array:
    unsigned = _UNSIGNED[want.dtype.itemsize]
    same = np.ascontiguousarray(got).view(unsigned) == np.ascontiguousarray(want).view(unsigned)
    # ascontiguousarray makes a scalar rank 1
    return same.reshape(want.shape) | (_is_nan(got) & _is_nan(want))


def _same_values(got: Array, want: Array) -> Array:
    tiny = smallest_normal(want.dtype)
    got, want = _widened(got), _widened(want)
    both_tiny = (np.abs(got) < tiny) & (np.abs(want) < tiny)
    return (got == want) | both_tiny | (np.isnan(got) & np.isnan(want))


def _is_nan(array: Array) -> Array:
    return np.isnan(_widened(array))


def _widened(array: Array) -> Array:
    """The same values in a type that NumPy itself knows: narrow floats as f32, narrow integers as s8 or u8."""
    name = NAMES[array.dtype]
    if name == "bf16" or (name[0] == "f" and name != "f64"):
        return array.astype(np.float32)
    return array.astype({"s": np.int8, "u": np.uint8}[name[0]]) if name in ("s2", "s4", "u2", "u4") else array


def _close(got: Array, want: Array, rtol: float, atol: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """abs(got - want) <= atol + rtol * abs(want) + smallest normal, NaN and infinity by their own rules."""
    tiny = smallest_normal(want.dtype)
    wide = np.longdouble if NAMES[want.dtype][0] != "c" else np.clongdouble  # the difference must not overflow
    got, want = _widened(got).astype(wide), _widened(want).astype(wide)
    special_agree, got, want = _without_special_parts(got, want)
    with np.errstate(over="ignore"):  # where longdouble is no wider than f64
        within = np.abs(got - want) <= atol + rtol * np.abs(want) + tiny
    return np.asarray(special_agree & within)


def _without_special_parts(got: Array, want: Array) -> tuple[Array, Array, Array]:
    """Where NaNs and infinities agree, and both arrays with these parts set to 0 where they do."""
    if not np.iscomplexobj(want):
        return _without_specials(got, want)
    real_agree, got_real, want_real = _without_specials(got.real, want.real)
    imag_agree, got_imag, want_imag = _without_specials(got.imag, want.imag)
    return real_agree & imag_agree, _complex(got_real, got_imag), _complex(want_real, want_imag)


def _without_specials(got: Array, want: Array) -> tuple[Array, Array, Array]:
    special = ~np.isfinite(got) | ~np.isfinite(want)
    agree = ~special | (np.isnan(got) & np.isnan(want)) | (np.isinf(want) & (got == want))
    return agree, np.where(special, 0, got), np.where(special, 0, want)


def _complex(real: Array, imag: Array) -> Array:
    value = np.zeros(real.shape, np.clongdouble)
    value.real, value.imag = real, imag
    return value


def _triangle(shape: tuple[int, ...], which: str) -> Array:
    """True where the last two dimensions' `lower` or `upper` triangle is, the diagonal included."""
    rows, columns = np.arange(shape[-2])[:, None], np.arange(shape[-1])[None, :]
    return np.broadcast_to(rows >= columns if which == "lower" else rows <= columns, shape)


def _describe(got: Array, want: Array, agrees: Array) -> str:
    index = tuple(int(i) for i in np.argwhere(~agrees)[0])
    count = f"{int((~agrees).sum())} of {agrees.size} differ"
    return f"{count}, first at {list(index)}: got {got[index]}, want {want[index]}"


def check_factorisation(kind: str, rtol: float, matrix: Array, parts: dict[int, Array]) -> str | None:
    """Checks the results of Eigh, {0: V, 1: w}, or of SVD, {0: U, 1: d, 2: V}, as a factorisation of `matrix`.

    Vectors are free in sign and phase, so recorded values are of no use. If a mutated program drops a result,
    only what is left is checked.
    """
    a = _wide(matrix)
    limit = rtol * max(1.0, float(np.abs(a).max(initial=0.0))) * max(a.shape[-2:], default=1)
    found = {role: _wide(part) for role, part in parts.items()}
    for role in _VECTORS[kind]:
        if role in found and not _is_unitary(found[role], rtol):
            return f"result {role} of the factorisation is not unitary"
    if kind == "eigenvectors":
        return _check_eigenvectors(a, found, limit)
    return _check_svd(a, found, limit)


def _check_eigenvectors(a: Array, found: dict[int, Array], limit: float) -> str | None:
    if not {0, 1} <= found.keys():
        return None
    error = np.abs(a @ found[0] - found[0] * found[1][..., None, :]).max(initial=0.0)
    return None if error <= limit else f"A V differs from V diag(w) by {error:.3g}, allowed {limit:.3g}"


def _check_svd(a: Array, found: dict[int, Array], limit: float) -> str | None:
    if not {0, 1, 2} <= found.keys():
        return None
    u, d, v = found[0], found[1], found[2]
    k = d.shape[-1]
    product = (u[..., :k] * d[..., None, :]) @ _adjoint(v[..., :k])
    error = np.abs(a - product).max(initial=0.0)
    return None if error <= limit else f"A differs from U diag(d) V^H by {error:.3g}, allowed {limit:.3g}"


def _is_unitary(vectors: Array, rtol: float) -> bool:
    size = vectors.shape[-1]
    error = np.abs(_adjoint(vectors) @ vectors - np.eye(size)).max(initial=0.0)
    return bool(error <= rtol * max(size, 1))


def _adjoint(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2).conj()


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if NAMES[array.dtype][0] == "c" else np.float64)
