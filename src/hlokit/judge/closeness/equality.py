"""Equality of results: the same bits, except for those of NaNs."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeGuard

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hlokit.files.arrays import leaves_of

_NARROW = re.compile(r"(?:u?int|float)([1246])(?:_|$)")
"""The names of types narrower than a byte, with their bits."""


def leaves(value: Any) -> list[Any]:
    """The arrays in a value, without its tokens."""
    return [leaf for leaf in leaves_of(value) if leaf is not None]


def differs(ours: Any, theirs: Any) -> str | None:
    """The first place where two results have other bits, or None. NaNs are equal whatever their bits."""
    for number, (a, b) in enumerate(zip(leaves(ours), leaves(theirs), strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {number} is {a.dtype}{list(a.shape)}, the reference's {b.dtype}{list(b.shape)}"
        if a.tobytes() == b.tobytes():
            continue
        if a.dtype.kind == "c":
            differ = _component(a.real, b.real) | _component(a.imag, b.imag)
        else:
            differ = (bits(a) != bits(b)) & ~(is_nan(a) & is_nan(b))
        if a.dtype.name.startswith("float4"):  # NaN becomes a zero of any sign
            differ &= ~((a == 0) & (b == 0))
        if differ.any():
            return place(number, a, b, differ)
    return None


class Greatest(NamedTuple):
    """The greatest relative difference between two results, and where: the number of the array and its place there."""

    relative: float
    number: int
    at: tuple[int, ...]


def greatest_difference(ours: Any, theirs: Any) -> Greatest | None:
    """The greatest relative difference between floating results; None if none is finite."""
    found: Greatest | None = None
    for number, (a, b) in enumerate(zip(leaves(ours), leaves(theirs), strict=True)):
        if a.size == 0 or not (a.dtype.kind == "c" or is_floating(a.dtype)):
            continue
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        with np.errstate(all="ignore"):
            relative = np.nan_to_num(np.abs(x - y) / np.maximum(np.abs(x), np.abs(y)), nan=0.0, posinf=0.0)
        at = np.unravel_index(int(np.argmax(relative)), a.shape)
        if relative[at] > (found.relative if found is not None else 0):
            found = Greatest(float(relative[at]), number, tuple(int(i) for i in at))
    return found


def same_bytes(a: Any, b: Any) -> bool:
    """Whether two results hold the same bytes."""
    return [x.tobytes() for x in leaves(a)] == [x.tobytes() for x in leaves(b)]


def bits(array: Any) -> Any:
    """The elements' bits as unsigned integers; complex numbers as they are. Of the byte that holds a narrower element,
    the bits that count."""
    if array.dtype.kind == "c":
        return array
    found = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
    narrow = _NARROW.match(array.dtype.name)
    return found if narrow is None else found & ((1 << int(narrow[1])) - 1)


def is_nan(array: Any) -> Any:
    """Tells for each element whether it is NaN."""
    if array.dtype.kind in "fc":
        return np.isnan(array)
    if is_floating(array.dtype):
        return np.isnan(array.astype(np.float32))
    return np.zeros(array.shape, bool)


def is_floating(dtype: Any) -> bool:
    """Whether a NumPy type is a floating one, of NumPy's or of ml_dtypes."""
    return dtype.kind == "f" or "float" in dtype.name


def is_array(value: object) -> TypeGuard[np.ndarray[Any, Any]]:
    """Whether a value is an array, not a token or a tuple."""
    return isinstance(value, np.ndarray)


def info_of(dtype: Any) -> Any:
    """finfo of any floating type."""
    finfo: Any = ml_dtypes.finfo
    return finfo(dtype)


def place(number: int, a: Any, b: Any, differ: npt.NDArray[np.bool_], how: str = "") -> str:
    """The first element that differs, in words, and how many do. `how`: by what, if not all that differ are counted."""
    at = tuple(int(i) for i in np.argwhere(differ)[0])
    what = f"result {number} ({a.dtype}{list(a.shape)}) at {list(at)}: {a[at]}, the reference's {b[at]}"
    return f"{what}; {int(np.sum(differ))} of {a.size} differ{how}"


def _component(a: Any, b: Any) -> Any:
    return (bits(a) != bits(b)) & ~(np.isnan(a) & np.isnan(b))
