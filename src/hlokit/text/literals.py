"""Literals in text: reading (HLIT-1..15). Nothing is allocated before the text was seen to hold every element."""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

import numpy as np

from hlokit.text.lexer import DECIMAL, END, INTEGER, NAN_PAYLOAD, SPECIAL, WORD, Lexer
from hlokit.text.shapes import read_shape
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

Array: TypeAlias = np.ndarray[Any, Any]

_MAX_RANK = 64
_VALUES = (INTEGER, DECIMAL, SPECIAL, NAN_PAYLOAD, WORD)
_MAX_IMPLIED = 1 << 24
"""Elements that a text may leave out: what it takes to hold them must not be out of proportion to the text."""


def parse_literal(text: str, shape: Shape | None = None) -> Literal:
    """The literal that `text` says, of `shape`, else of the shape in front ("s32[2]{0} {1, 2}"). Raises ParseError."""
    lexer = Lexer(text)
    literal = read_literal(lexer, read_shape(lexer) if shape is None else shape)
    if lexer.kind != END:
        raise lexer.unexpected("the end of the literal", "HLIT-1")
    return literal


def read_literal(lexer: Lexer, shape: Shape, part: bool = False) -> Literal:
    """Reads a literal of this shape; `part` says that it is an element of a tuple."""
    if shape.is_tuple:
        return _read_tuple(lexer, shape)
    if not shape.is_array:
        raise lexer.error(f"no literal has the shape {shape}", "HLIT-1")
    if shape.rank and lexer.value == "{" and lexer.peek() == "...":
        return _elided(lexer, shape)
    if shape.is_unbounded:
        raise lexer.error(f"no literal has the shape {shape}, whose size is not known", "HLIT-1")
    if shape.rank and lexer.value == "{":
        if shape.rank > _MAX_RANK:
            raise lexer.error(f"a constant of rank {shape.rank}: NumPy's limit is {_MAX_RANK}", "HLIT-1")
        array = None if part else _plain_array(lexer, shape)  # looks at the text up to `)`: once is enough
        if array is not None:
            return Literal(shape, array)
    elements = _Elements(lexer, shape.dtype)
    if shape.rank and shape.size and (lexer.kind in _VALUES or lexer.value == "("):
        return Literal(shape, _leading(lexer, shape, elements))
    if shape.rank:
        _read_braces(lexer, shape, elements)
    else:
        if lexer.value == "{":
            label = "HLIT-11" if lexer.peek() == "..." else "HLIT-2"
            raise lexer.unexpected(f"one value of type {shape.dtype}", label)
        elements.read()
    return Literal(shape, elements.array(shape))


def _leading(lexer: Lexer, shape: Shape, elements: _Elements) -> Array:
    """One value in the place of an array: its first element, the bits of the others are zero (HLIT-2)."""
    start = lexer.start
    elements.read()
    if shape.size > _MAX_IMPLIED:
        message = f"one value for {shape.logical}: at most {_MAX_IMPLIED} elements may go unwritten"
        raise lexer.error(message, "HLIT-2", start)
    array = np.zeros(shape.dimensions, shape.dtype.numpy)
    array[(0,) * shape.rank] = elements.array(shape.dtype[()])
    return array


def _elided(lexer: Lexer, shape: Shape) -> Literal:
    """`{...}`: content that the text leaves out; of an array without elements it leaves out nothing (HLIT-11)."""
    for token in ("{", "...", "}"):
        lexer.expect(token, "HLIT-11")
    empty = shape.is_array and not shape.size and shape.rank <= _MAX_RANK
    return Literal(shape, np.empty(shape.dimensions, shape.dtype.numpy) if empty else None)


def _read_tuple(lexer: Lexer, shape: Shape) -> Literal:
    if lexer.value == "{" and lexer.peek() == "...":
        return _elided(lexer, shape)
    lexer.enter()
    lexer.expect("(", "HLIT-10")
    parts: list[Literal] = []
    for i, element in enumerate(shape.elements):
        if i:
            lexer.expect(",", "HLIT-10")
        parts.append(read_literal(lexer, element, part=True))
    lexer.accept(",")
    lexer.expect(")", "HLIT-10")
    lexer.leave()
    return Literal(shape, tuple(parts))


# -- one element after the other


def _read_braces(lexer: Lexer, shape: Shape, elements: _Elements) -> None:
    """Reads R levels of braces; each must hold as many elements as its dimension has (HLIT-2)."""
    sizes, rank = shape.dimensions, shape.rank
    counts: list[int] = []
    while True:
        if lexer.value == "{":
            if len(counts) == rank:
                raise lexer.error(f"more than {rank} levels of braces", "HLIT-2")
            counts.append(0)
            lexer.advance()
        elif lexer.value == "}" and counts:
            _check_count(lexer, sizes, counts)
            counts.pop()
            lexer.advance()
            if not counts:
                return
            counts[-1] += 1
        elif lexer.value == ",":
            lexer.advance()
        elif len(counts) < rank:
            label = "HLIT-11" if lexer.value == "..." else "HLIT-2"
            raise lexer.unexpected(f"'{{' ({rank} levels of braces for {shape.logical})", label)
        else:
            if lexer.value == "...":
                raise lexer.error("'...' may only be the whole content of an array", "HLIT-11")
            elements.read()
            counts[-1] += 1


def _check_count(lexer: Lexer, sizes: tuple[int, ...], counts: list[int]) -> None:
    expected, found = sizes[len(counts) - 1], counts[-1]
    if found != expected:
        path = ",".join(map(str, counts[:-1]))
        raise lexer.error(f"expected {expected} elements in element [{path}], found {found}", "HLIT-2")


class _Elements:
    """Elements read one by one, each checked where it stands."""

    def __init__(self, lexer: Lexer, element_type: DType) -> None:
        self.lexer = lexer
        self.type = element_type
        self.values: list[Any] = []
        self.payloads: list[tuple[int, int, bool]] = []
        if element_type.kind == "pred":
            self.read = self._read_pred
        elif element_type.is_integral:
            self.read = self._read_integer
        elif element_type.is_complex:
            self.read = self._read_complex
        else:
            self.read = self._read_float

    def _read_pred(self) -> None:
        self.values.append(self.lexer.boolean("HLIT-4"))

    def _read_integer(self) -> None:
        low, high = integer_range(self.type)
        if self.lexer.kind != INTEGER:
            raise self.lexer.unexpected(f"an integer of type {self.type}", "HLIT-5")
        self.values.append(self.lexer.integer("HLIT-5", low, high))

    def _read_complex(self) -> None:
        self.lexer.expect("(", "HLIT-9")
        self._read_float()
        self.lexer.expect(",", "HLIT-9")
        self._read_float()
        self.lexer.expect(")", "HLIT-9")

    def _read_float(self) -> None:
        lexer = self.lexer
        if lexer.kind == NAN_PAYLOAD:
            return self._read_payload()
        if lexer.kind not in (INTEGER, DECIMAL, SPECIAL, WORD):
            raise lexer.unexpected(f"a number of type {self.type}", "HLIT-6")
        start = lexer.start
        value = lexer.decimal("HLIT-6")
        if math.isfinite(value) and abs(value) > _safe(self.type.real) and overflows(np.array([value]), self.type.real):
            raise lexer.error(f"{value!r} is beyond the largest {self.type.real}", "HLIT-7", start)
        if math.isinf(value) and lexer.text[start : start + 4].lstrip("-")[:1] != "i":
            raise lexer.error(f"the number is beyond the largest {self.type.real}", "HLIT-7", start)
        self.values.append(value)

    def _read_payload(self) -> None:
        """nan(0x...): the bits below the exponent (LEX-12)."""
        text = self.lexer.value
        bits = text[text.index("x") + 1 : -1]
        if len(bits) > 16:
            raise self.lexer.error("a NaN's bits do not fit 64 bits", "LEX-12")
        mantissa = mantissa_bits(self.type.real)
        payload = int(bits, 16)
        if mantissa == 0 or not 0 < payload < 1 << mantissa:
            message = f"the bits of a NaN of {self.type.real} lie in 1 .. {(1 << mantissa) - 1:#x}"
            raise self.lexer.error(message, "LEX-12")
        self.payloads.append((len(self.values), payload, text[0] == "-"))
        self.values.append(math.nan)
        self.lexer.advance()

    def array(self, shape: Shape) -> Array:
        array = convert(self.values, self.type)
        if self.payloads:
            array = array.copy()
            parts = array.view(self.type.real.numpy)
            mantissa = mantissa_bits(self.type.real)
            raw = parts.view(f"u{parts.dtype.itemsize}")
            all_ones = (1 << (self.type.real.bits - 1)) - (1 << mantissa)
            for position, payload, negative in self.payloads:
                raw[position] = all_ones | payload | (negative << (self.type.real.bits - 1))
        return _shaped(self.lexer, array, shape)


def _shaped(lexer: Lexer, array: Array, shape: Shape) -> Array:
    try:
        return array.reshape(shape.dimensions)
    except ValueError:
        raise lexer.error(f"{shape.logical} is beyond what an array can be", "HLIT-3") from None


# -- values to arrays


def convert(values: list[Any], element_type: DType) -> Array:
    """Checked Python values as a flat array; for complex types, real and imaginary parts in turn."""
    if element_type.kind == "pred":
        return np.array(values, np.bool_)
    if element_type.is_integral:
        wide = np.array(values, np.uint64 if element_type is dtypes.u64 else np.int64)
        return wide.astype(element_type.numpy)
    with np.errstate(all="ignore"):
        parts = rounded(np.array(values, np.float64), element_type.real)
    return parts.view(element_type.numpy) if element_type.is_complex else parts


def rounded(values: Array, element_type: DType) -> Array:
    """Doubles rounded once to a floating type, ties to even (HLIT-6)."""
    if element_type is dtypes.f8e8m0fnu:  # ml_dtypes loses the smallest power
        mantissa, exponent = np.frexp(values)
        powers = np.ldexp(1.0, np.maximum(exponent - (mantissa < 0.75), -127))
        return np.where(np.isfinite(values) & (values > 0), powers, math.nan).astype(element_type.numpy)
    if element_type is not dtypes.bf16:
        return values.astype(element_type.numpy)
    # ml_dtypes rounds to f32 first: make that step round to odd, so that only the next one decides.
    single = values.astype(np.float32)
    inexact = (single != values) & np.isfinite(single) & np.isfinite(values)
    if inexact.any():
        too_large = np.abs(single.astype(np.float64)) > np.abs(values)
        toward_zero = np.where(too_large, np.nextafter(single, np.float32(0)), single)
        odd = (toward_zero.view(np.uint32) | np.uint32(1)).view(np.float32)
        single = np.where(inexact, odd, single)
    return single.astype(element_type.numpy)


_SATURATING = {dtypes.f4e2m1fn: 7.0, dtypes.f6e2m3fn: 7.75, dtypes.f6e3m2fn: 30.0}
"""Types without infinity and NaN, and what is half-way from their greatest number to what would be the next."""


def overflows(values: Array, element_type: DType) -> bool:
    """Whether some finite double rounds to beyond the largest finite value of the type (HLIT-7)."""
    if element_type is dtypes.f64:
        return False
    if element_type in _SATURATING:
        return bool((np.abs(values) >= _SATURATING[element_type]).any())
    with np.errstate(all="ignore"):
        if element_type is dtypes.f8e8m0fnu and (values <= 0).any():  # powers of two only
            return True
        result = rounded(values, element_type).astype(np.float64)
    return bool((np.isfinite(values) & ~np.isfinite(result)).any())


def _safe(element_type: DType) -> float:
    """No smaller magnitude can overflow."""
    if element_type.name.startswith("f8e8"):
        return -1.0
    return {8: 14.0, 4: 6.0, 6: 7.5, 16: 65504.0, 32: 3e38}.get(element_type.bits, math.inf)


def integer_range(element_type: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    if element_type.kind == "signed":
        return -(1 << (element_type.bits - 1)), (1 << (element_type.bits - 1)) - 1
    return 0, (1 << element_type.bits) - 1


def mantissa_bits(element_type: DType) -> int:
    """The number of bits of a NaN of this type that are free; 0 for types with one NaN or none."""
    return {"f64": 52, "f32": 23, "bf16": 7, "f16": 10, "f8e5m2": 2, "f8e4m3": 3, "f8e3m4": 4}.get(element_type.name, 0)


# -- large arrays of plain numbers, at once

_SEPARATOR = r"[ \t\r\n,{}]++|/\*[^*]*+\*/"
_NUMBER = r"-?+(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|inf|nan)"
_ELEMENTS = {"pred": "true|false|0|1", "signed": "-?[0-9]++", "unsigned": "[0-9]++", "floating": _NUMBER}
_BODIES = {
    kind: re.compile(rf"\{{(?:{_SEPARATOR}|(?:{element})(?=[ \t\r\n,{{}}/]))*+(?=\))")
    for kind, element in _ELEMENTS.items()
}
_COMMENT = re.compile(r"/\*[^*]*+\*/")
_TO_SPACES = str.maketrans("{},\t\r\n", "      ")
_PRED = {"true": True, "1": True, "false": False, "0": False}
_OPEN, _CLOSE, _ELEMENT = 1, 2, 3
_CLASSES = np.full(256, _ELEMENT, np.uint8)
_CLASSES[[ord(c) for c in " \t\r\n,"]] = 0
_CLASSES[ord("{")] = _OPEN
_CLASSES[ord("}")] = _CLOSE


def _plain_array(lexer: Lexer, shape: Shape) -> Array | None:
    """The array, if the rest up to a `)` is its text and holds plain numbers only; else None, and nothing is read."""
    body = _BODIES.get(shape.dtype.kind)
    found = body.match(lexer.text, lexer.start) if body is not None else None
    if found is None:
        return None
    text = _COMMENT.sub(" ", found[0])
    if not _has_structure(text, shape.dimensions):
        return None
    values = _plain_values(text.translate(_TO_SPACES).split(), shape.dtype)
    if values is None:
        return None
    lexer.jump(found.end())
    return values.reshape(shape.dimensions)


def _has_structure(text: str, sizes: tuple[int, ...]) -> bool:
    """Whether braces and elements of the text nest as the sizes ask."""
    classes = _CLASSES[np.frombuffer(text.encode("ascii"), np.uint8)]
    starts = classes == _ELEMENT
    starts[1:] &= classes[:-1] != _ELEMENT
    events = classes[(classes == _OPEN) | (classes == _CLOSE) | starts]
    length = 1
    for size in reversed(sizes):
        length = length * size + 2
    if length != len(events) or math.prod(sizes) == 0:
        return False
    pattern = np.array([_ELEMENT], np.uint8)
    for size in reversed(sizes):
        pattern = np.concatenate(([_OPEN], np.tile(pattern, size), [_CLOSE]))
    return bool(np.array_equal(events, pattern))


def _plain_values(texts: list[str], element_type: DType) -> Array | None:
    if element_type.kind == "pred":
        return np.array([_PRED[text] for text in texts], np.bool_)
    if element_type.is_floating:
        if max(map(len, texts)) > 2000:
            return None
        values = np.array(list(map(float, texts)))
        if np.isinf(values).any() or overflows(values, element_type):
            return None  # the slow way tells 1e999 from inf
        with np.errstate(all="ignore"):
            return rounded(values, element_type)
    if max(map(len, texts)) > 40:
        return None
    integers = list(map(int, texts))
    low, high = integer_range(element_type)
    if min(integers) < low or max(integers) > high:
        return None
    return convert(integers, element_type)
