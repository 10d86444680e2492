"""The contents of dense attributes in MLIR's syntax: lists, splats, hexadecimal strings for large ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.stablehlo.printer.spelling import boolean_text
from hlokit.types.dtype import DType

_Array = np.ndarray[Any, Any]
_LONGEST_LIST = 100


def dense_text(array: _Array, dtype: DType) -> str:
    """dense<...> of an array of this element type: bit for bit what it holds, NaNs and signs of zeros included."""
    if array.size == 0:
        return "dense<>"
    flat = np.ascontiguousarray(array).reshape(-1)
    if _is_splat(flat):
        return f"dense<{_words(flat[:1], dtype)[0]}>"
    if array.size > _LONGEST_LIST and dtype.kind != "pred" and dtype.bits >= 8:
        data = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
        return f'dense<"0x{data.tobytes().hex().upper()}">'
    return f"dense<{_nested(_words(flat, dtype), array.shape)}>"


def _is_splat(flat: _Array) -> bool:
    rows = flat.view(np.uint8).reshape(flat.size, -1)
    return bool((rows == rows[0]).all())


def _nested(words: list[str], sizes: tuple[int, ...]) -> str:
    for size in reversed(sizes):
        words = [f"[{', '.join(words[i : i + size])}]" for i in range(0, len(words), size)]
    return words[0]


def _words(flat: _Array, dtype: DType) -> list[str]:
    """The text of each element."""
    if dtype.is_complex:
        pairs = zip(_words(flat.real, dtype.real), _words(flat.imag, dtype.real), strict=True)
        return [f"({real}, {imaginary})" for real, imaginary in pairs]
    if dtype.kind == "pred":
        return [boolean_text(value) for value in flat.tolist()]
    if dtype.is_floating:
        return [_number(flat[i : i + 1]) for i in range(flat.size)]
    return [str(int(value)) for value in flat.tolist()]


def _number(one: _Array) -> str:
    """Seven digits if they are the number, else as many as an f64 takes; the bits of infinities and NaNs."""
    value = float(one[0])
    if np.isfinite(value):
        for text in (f"{value:.6e}", np.format_float_scientific(np.float64(value), trim="0", exp_digits=2)):
            if _bits(np.array([float(text)]).astype(one.dtype)) == _bits(one):
                return text
    return f"0x{_bits(one):0{2 * one.dtype.itemsize}X}"


def _bits(one: _Array) -> int:
    return int.from_bytes(np.ascontiguousarray(one).tobytes(), "little")
