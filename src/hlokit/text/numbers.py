"""Literals in text: writing (HLIT-20..28). Large arrays are formatted at once."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from hlokit.text.literals import mantissa_bits, rounded
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal

Array: TypeAlias = np.ndarray[Any, Any]

LARGE = 10
"""An array of more elements is elided unless large constants are asked for (HLIT-27)."""

ELIDED = "{...}"
_MOST_EMPTY = 1 << 20
"""An array without elements is elided if it has more empty rows: nothing of it is lost (HLIT-22)."""


def literal_text(literal: Literal, large: bool = True) -> str:
    """The literal as text; without `large`, tuples and arrays of more than LARGE elements as `{...}`."""
    if not large and (literal.shape.is_tuple or literal.shape.size > LARGE):
        return ELIDED
    if isinstance(literal.value, tuple):
        parts = [literal_text(part) for part in literal.value]
        return f"( {', '.join(parts)} )"
    if literal.value is None or _empty_rows(literal.shape.dimensions) > _MOST_EMPTY:
        return ELIDED
    return array_text(literal.value, literal.shape.dtype)


def _empty_rows(sizes: tuple[int, ...]) -> int:
    return math.prod(sizes[: sizes.index(0)]) if 0 in sizes else 0


def array_text(array: Array, element_type: DType) -> str:
    """An array's elements in nested braces, or a scalar's value."""
    if array.ndim == 0:
        if element_type.kind == "pred":
            return "true" if array else "false"
        return element_texts(array.reshape(1), element_type)[0]
    texts = element_texts(array.reshape(-1), element_type)
    sizes = array.shape
    if len(sizes) == 1:
        return f"{{{', '.join(texts)}}}"
    for dimension in range(len(sizes) - 1, -1, -1):
        texts = _rows(texts, sizes, dimension)
    return texts[0]


def _rows(texts: list[str], sizes: tuple[int, ...], dimension: int) -> list[str]:
    """Groups the texts of the elements below `dimension` by rows along it (HLIT-20, HLIT-22)."""
    size, rank = sizes[dimension], len(sizes)
    count = math.prod(sizes[:dimension])
    if dimension == rank - 1 and size <= 1:
        return [f"{{{text}}}" for text in texts] if size else ["{}"] * count
    rows = [", ".join(texts[i : i + size]) for i in range(0, count * size, size)] if size else [""] * count
    if rank < 4 or not 0 < dimension < rank - 1:
        return [f"{{ {row} }}" for row in rows]
    # Of rank 4 and more, a row says which element it is, unless it is of the last two dimensions (HLIT-21).
    outer = sizes[dimension - 1]
    return [f"{{ /*i{dimension - 1}={i % outer}*/{' ' if row else ''}{row} }}" for i, row in enumerate(rows)]


def element_texts(values: Array, element_type: DType) -> list[str]:
    """One text per element of a flat array; pred as 1 and 0 (HLIT-23)."""
    if element_type.kind == "pred":
        return ["1" if value else "0" for value in values.tolist()]
    if element_type.is_integral:
        wide = values if element_type.bits >= 8 else values.astype(np.int16)
        return list(map(str, wide.tolist()))
    if element_type.is_complex:
        parts = element_texts(np.ascontiguousarray(values).view(element_type.real.numpy), element_type.real)
        return [f"({real}, {imaginary})" for real, imaginary in zip(parts[::2], parts[1::2], strict=True)]
    return _float_texts(values, element_type)


def float_text(value: float, element_type: DType) -> str:
    """One number as the text of an element of this type."""
    return _float_texts(np.array([value], element_type.numpy), element_type)[0]


# Significant digits that are tried; the last always reads back as the same value (HLIT-24).
_DIGITS = {"f64": (15, 17), "f32": (6, 9), "f16": (5,), "bf16": (4,)}


def _digits(element_type: DType) -> tuple[int, ...]:
    if element_type.name in _DIGITS:
        return _DIGITS[element_type.name]
    return (3,) if "m3" in element_type.name or "m4" in element_type.name else (2,)


def _float_texts(values: Array, element_type: DType) -> list[str]:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = values.astype(np.float64)
    short, *long = _digits(element_type)
    texts = list(map(f"%.{short}g".__mod__, wide.tolist()))
    if long:
        with np.errstate(all="ignore"):
            again = rounded(np.array(list(map(float, texts))), element_type)
        for i in np.flatnonzero(again != values).tolist():
            texts[i] = f"%.{long[0]}g" % wide[i]
    for i in np.flatnonzero(np.isnan(wide)).tolist():
        texts[i] = _nan_text(values[i : i + 1], element_type)
    return texts


def _nan_text(value: Array, element_type: DType) -> str:
    """nan or -nan; with its bits where they are not those of the default quiet NaN (HLIT-25)."""
    raw = int(value.view(f"u{value.dtype.itemsize}")[0])
    sign = "-" if raw >> (element_type.bits - 1) & 1 else ""
    mantissa = mantissa_bits(element_type)
    bits = raw & ((1 << mantissa) - 1) if mantissa else 0
    return f"{sign}nan" if bits in (0, 1 << (mantissa - 1 if mantissa else 0)) else f"{sign}nan({bits:#x})"
