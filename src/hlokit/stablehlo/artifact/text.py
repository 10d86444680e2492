"""Attributes of an artifact in MLIR's syntax, which composites and typed custom calls keep as text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hlokit.errors import UnsupportedError
from hlokit.stablehlo.artifact.builtin import NumberedDictionary
from hlokit.stablehlo.artifact.cursor import Cursor
from hlokit.stablehlo.artifact.entries import Entries
from hlokit.stablehlo.literals import filled
from hlokit.stablehlo.printer.literals import dense_text
from hlokit.stablehlo.printer.spelling import (
    UNIT,
    boolean_text,
    dictionary_text,
    element_text,
    string_text,
    symbol_text,
    type_text,
)
from hlokit.stablehlo.tree import Dense, DialectAttribute, Symbol
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

_WEIGHT = 8
"""The weight of an attribute as text: an attribute that is named often is written as often."""
_UNIT_CODE = ("builtin", 7)
_DIGITS = {32: 9, 64: 17}
_TENSOR_CODES = (("builtin", 13), ("builtin", 14), ("vhlo", 20), ("vhlo", 21))


def written(entries: Entries, dictionary: NumberedDictionary) -> str:
    """{name = value, flag}."""
    return dictionary_text({name: _attribute(entries, number) for name, number in dictionary.numbers.items()})


def _attribute(entries: Entries, number: int) -> str:
    entry = entries.container.attributes[number]
    cursor = Cursor(entry.data, entry.offset)
    entries.count(_WEIGHT, cursor)
    if not entry.is_encoded:
        return entry.data.removesuffix(b"\0").decode(errors="replace")
    code = entry.dialect, cursor.varint()
    value = entries.attribute(number, cursor)
    match value:
        case bool():
            return UNIT if code == _UNIT_CODE else boolean_text(value)
        case int() | float():
            return _number(entries, value, cursor)
        case str():
            return string_text(value)
        case Symbol():
            return symbol_text(value.name)
        case list():
            return f"[{', '.join(_attribute(entries, cursor.varint()) for _ in range(cursor.varint()))}]"
        case tuple():
            kind = _type(entries, cursor.varint())
            return f"array<{kind}: {', '.join(map(_plain, value))}>" if value else f"array<{kind}>"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case NumberedDictionary():
            return written(entries, value)
        case Dense():
            array = filled(value.array, value.shape)
            return f"{dense_text(array, value.shape.dtype)} : {type_text(value.shape)}"
        case Shape():
            return _type(entries, cursor.varint())
        case DialectAttribute() if isinstance(value.value, str):
            return f"#{value.name}<{value.value}>"
        case _:
            raise UnsupportedError(f"byte {entry.offset}: the attribute {code[1]} of {code[0]} in a configuration")


def _number(entries: Entries, value: Any, cursor: Cursor) -> str:
    """A number and its type."""
    kind = entries.inner_type(cursor)
    assert isinstance(kind, Shape)
    text = _float(value, kind.dtype) if isinstance(value, float) else str(value)
    return f"{text} : {element_text(kind.dtype)}"


def _float(value: float, dtype: DType) -> str:
    """Seven digits if they are the number, else as many as tell the type's numbers apart; the bits of NaNs and such."""
    brief = f"{value:.6e}"
    if not math.isfinite(value) or float(np.float64(brief).astype(dtype.numpy)) == value:
        return dense_text(np.array([value]).astype(dtype.numpy), dtype).removeprefix("dense<")[:-1]
    return f"{value:.{_DIGITS.get(dtype.bits, 5)}g}"


def _plain(value: Any) -> str:
    return (
        boolean_text(value) if isinstance(value, bool) else f"{value:.6e}" if isinstance(value, float) else str(value)
    )


def _type(entries: Entries, number: int) -> str:
    """A type: of an element where it is not a tensor's."""
    entry = entries.container.types[number]
    cursor = Cursor(entry.data, entry.offset)
    kind = entries.type(number, cursor)
    if not isinstance(kind, Shape):
        return str(kind)
    is_tensor = not kind.is_array or not entry.is_encoded or (entry.dialect, cursor.varint()) in _TENSOR_CODES
    return type_text(kind) if is_tensor else element_text(kind.dtype)
