"""MLIR's spelling of types, names, strings and attributes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from hlokit.errors import UnsupportedError
from hlokit.types.dtype import DType
from hlokit.types.shape import UNBOUNDED, Shape

TOKEN_TYPE = "!stablehlo.token"
UNIT = ""
"""The value of an attribute that only is there."""

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*\Z")
_NO_VALUE = re.compile(r"[^A-Za-z0-9_$.\-]")
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord('"'), ord("\\")}


class NoTypeError(UnsupportedError):
    """StableHLO has no type for a value; whoever prints an instruction says which."""


def type_text(shape: Shape) -> str:
    """`tensor<2x?xf32, #stablehlo.bounds<?, 5>>`. Raises NoTypeError for what StableHLO has no type for."""
    if shape.is_token:
        return TOKEN_TYPE
    if shape.is_tuple:
        return f"tuple<{types_text(shape.elements)}>"
    if shape.without_buffers() is not shape:
        return f"memref{type_text(shape.without_buffers()).removeprefix('tensor')}"
    if not shape.is_array:
        raise NoTypeError(f"StableHLO has no type for {shape}")
    sizes = ["?" if flag else str(size) for size, flag in zip(shape.dimensions, shape.dynamic, strict=True)]
    element = element_text(shape.dtype)
    if not any(flag and size != UNBOUNDED for size, flag in zip(shape.dimensions, shape.dynamic, strict=True)):
        return f"tensor<{'x'.join([*sizes, element])}>"
    bounds = [
        str(size) if flag and size != UNBOUNDED else "?"
        for size, flag in zip(shape.dimensions, shape.dynamic, strict=True)
    ]
    return f"tensor<{'x'.join([*sizes, element])}, #stablehlo.bounds<{', '.join(bounds)}>>"


def element_text(dtype: DType) -> str:
    """f32, i8, ui8, i1, complex<f32>, f8E4M3FN."""
    if dtype.kind == "pred":
        return "i1"
    if dtype.is_complex:
        return f"complex<{dtype.real}>"
    if dtype.is_integral:
        if dtype.bits == 1:
            raise NoTypeError(f"StableHLO has no type for elements of {dtype}")
        return f"{'i' if dtype.kind == 'signed' else 'ui'}{dtype.bits}"
    return dtype.name if dtype.bits > 8 else f"f{dtype.name[1:].upper()}"


def types_text(shapes: Iterable[Shape]) -> str:
    return ", ".join(map(type_text, shapes))


def results_text(shapes: Sequence[Shape]) -> str:
    """The text after `->`: one type as it is, none or several in parentheses."""
    return type_text(shapes[0]) if len(shapes) == 1 else f"({types_text(shapes)})"


def string_text(text: str) -> str:
    """In double quotes; all that is not printable ASCII as two hexadecimal digits a byte."""
    data = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(byte) if byte in _PLAIN else f"\\{byte:02X}" for byte in data) + '"'


def symbol_text(name: str) -> str:
    """@name, in quotes where it is not a plain identifier."""
    return f"@{word_text(name)}"


def word_text(name: str) -> str:
    """A key of a dictionary, or a symbol without its @."""
    return name if _BARE.match(name) else string_text(name)


def value_text(name: str) -> str:
    """A name for a value, without its %, with only what such a name may hold."""
    plain = _NO_VALUE.sub("_", name)
    return plain if plain and not plain[0].isdigit() else f"_{plain}"


def list_text(values: Iterable[object]) -> str:
    """[1, 2]; booleans as true and false."""
    return f"[{', '.join(str(v).lower() if isinstance(v, bool) else str(v) for v in values)}]"


def array_text(values: Sequence[int | bool]) -> str:
    """array<i64: 1, 2>."""
    element = "i1" if values and isinstance(values[0], bool) else "i64"
    return f"array<{element}: {list_text(values)[1:-1]}>" if values else "array<i64>"


def matrix_text(rows: Sequence[Sequence[int]], columns: int) -> str:
    """dense<[[0, 1]]> : tensor<1x2xi64>."""
    content = list_text(list_text(row) for row in rows) if rows and columns else ""
    return f"dense<{content}> : tensor<{len(rows)}x{columns}xi64>"


def dictionary_text(entries: Mapping[str, str]) -> str:
    """{name = value, unit}."""
    return f"{{{', '.join(f'{word_text(k)} = {v}' if v != UNIT else word_text(k) for k, v in entries.items())}}}"


def boolean_text(value: bool) -> str:
    return "true" if value else "false"
