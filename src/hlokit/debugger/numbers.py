"""The numbers in values: kinds that a debugger looks for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from hlokit.hlo.values import is_ndarray, is_sequence, valid_part

KINDS = {"nan": ("NaN", "NaNs"), "inf": ("infinity", "infinities"), "denormal": ("denormal", "denormals")}
"""The words for one and for several."""


def count(kind: str, array: Any) -> int:
    """The number of NaNs, infinities or denormals among the elements."""
    if not is_floating(array):
        return 0
    with np.errstate(all="ignore"):
        if kind == "nan":
            return int(np.count_nonzero(array != array))
        if kind == "inf":
            return int(np.count_nonzero(np.isinf(array)))
        parts = [array.real, array.imag] if array.dtype.kind == "c" else [array]
        finfo: Any = ml_dtypes.finfo
        least: Any = finfo(parts[0].dtype).smallest_normal
        return sum(int(np.count_nonzero((np.abs(p) < least) & (p != 0))) for p in parts)


def is_floating(value: Any) -> bool:
    """Whether it is an array of floats or complex numbers, of ml_dtypes' types too."""
    if not is_ndarray(value):
        return False
    return value.dtype.kind in "fc" or (value.dtype.kind == "V" and "float" in value.dtype.name)


def leaves(value: Any) -> list[Any]:
    """The arrays of a value, of their run-time sizes, and None for each token."""
    if is_sequence(value):
        return [leaf for part in value for leaf in leaves(part)]
    value = valid_part(value)
    return [value if is_ndarray(value) else None]
