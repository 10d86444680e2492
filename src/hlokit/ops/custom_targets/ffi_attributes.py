"""The attributes of a typed FFI call: backend_config as a dictionary in MLIR's spelling, `{uplo = 76 : ui8}`."""

from __future__ import annotations

import ast
import re
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.hlo.values import Array
from hlokit.types.dtype import DTYPES, DType

_SPACE = re.compile(r"\s*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NUMBER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")
_WORD = re.compile(r"[A-Za-z_][\w.$-]*")
_TENSOR = re.compile(r"(?:tensor|vector)<((?:\d+x)*)([\w<>]+?)>(?![\w>])")
_ESCAPE = re.compile(rb"\\([0-9a-fA-F]{2}|.)", re.DOTALL)
_INTEGER = re.compile(r"(ui|si|i)(\d+)")
_DEEPEST = 64


class TypedScalar(NamedTuple):
    """A number of an element type, as an array of rank 0."""

    dtype: DType
    value: Array


class Elements(NamedTuple):
    """array<...> or dense<...>: the elements in row-major order, as an array of the sizes that are written."""

    dtype: DType
    values: Array


def typed_attributes(text: str) -> dict[str, Any]:
    """Attributes by name: TypedScalar, Elements, str, list, dict, None for a unit. EvaluationError: not a dictionary.

    Bytes of a string that are not UTF-8 are as `surrogateescape` has them.
    """
    reader = _Reader(text)
    try:
        attributes = reader.dictionary(0) if text.strip() else {}
        reader.end()
    except (ValueError, SyntaxError, OverflowError) as error:
        raise EvaluationError(f"backend_config {text[:80]!r} is not a dictionary of attributes: {error}") from None
    return attributes


def ffi_attributes(text: str) -> dict[str, Any]:
    """`typed_attributes` as Python's values: bool, int, float, str, list, dict, None."""
    try:
        return _plain(typed_attributes(text))
    except UnicodeError as error:
        raise EvaluationError(f"backend_config {text[:80]!r}: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, TypedScalar):
        return value.value.astype(np.float64).item() if value.dtype.is_floating else value.value.item()
    if isinstance(value, Elements):
        return (value.values.astype(np.float64) if value.dtype.is_floating else value.values).reshape(-1).tolist()
    return [_plain(part) for part in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


class _Reader:
    """Reads from `_at` on. ValueError, which names what was found, for what is not there."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _next(self) -> str:
        """The next character that is not a space; empty at the end."""
        self._space()
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._space()
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at
        return match

    def _has(self, mark: str) -> bool:
        """Takes the mark, if it is next."""
        self._space()
        found = self._text.startswith(mark, self._at)
        self._at += len(mark) if found else 0
        return found

    def _expect(self, mark: str) -> None:
        if not self._has(mark):
            raise self._error(repr(mark))

    def _error(self, expected: str) -> ValueError:
        found = self._text[self._at : self._at + 20]
        return ValueError(f"found {found!r}, expected {expected}" if found else f"found the end, expected {expected}")

    def end(self) -> None:
        if self._next():
            raise self._error("the end")

    def dictionary(self, depth: int) -> dict[str, Any]:
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} dictionaries and lists in one another")
        self._expect("{")
        attributes: dict[str, Any] = {}
        while not self._has("}"):
            quoted = self._take(_STRING)
            word = quoted or self._take(_WORD)
            if word is None:
                raise self._error("a name")
            name = _unquoted(word[0]) if quoted is not None else word[0]
            if name in attributes:
                raise ValueError(f"{name!r} is there twice")
            attributes[name] = self._value(depth) if self._has("=") else None
            if self._next() != "}":
                self._expect(",")
        return attributes

    def _value(self, depth: int) -> Any:
        first = self._next()
        if first == "{":
            return self.dictionary(depth + 1)
        if self._has("["):
            return self._list(depth + 1)
        string = self._take(_STRING)
        if string is not None:
            if self._has(":"):
                self._type()
            return _unquoted(string[0])
        number = self._take(_NUMBER)
        if number is not None:
            kind = self._type() if self._has(":") else DTYPES["f64" if _is_float(number[0]) else "s64"]
            return TypedScalar(kind, _numbers([number[0]], kind)[0])
        word = self._take(_WORD)
        match word[0] if word is not None else "":
            case "true" | "false" as text:
                return TypedScalar(DTYPES["pred"], np.array(text == "true"))
            case "unit":
                return None
            case "array":
                return self._array()
            case "dense":
                return self._dense(depth)
            case _:
                self._at = word.start() if word is not None else self._at
                raise self._error("an attribute")

    def _list(self, depth: int) -> list[Any]:
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} dictionaries and lists in one another")
        items: list[Any] = []
        while not self._has("]"):
            items.append(self._value(depth))
            if self._next() != "]":
                self._expect(",")
        return items

    def _type(self) -> DType:
        word = self._take(_WORD)
        if word is None:
            raise self._error("a type")
        if word[0] == "complex":
            self._expect("<")
            part = self._type()
            self._expect(">")
            return _element_type(f"complex<{'f64' if part.name == 'f64' else 'f32'}>")
        return _element_type(word[0])

    def _array(self) -> Elements:
        """array<i64: 1, 2>, after its first word."""
        self._expect("<")
        kind = self._type()
        words: list[str] = []
        if self._has(":"):
            words = [self._element()]
            while self._has(","):
                words.append(self._element())
        self._expect(">")
        return Elements(kind, _numbers(words, kind))

    def _dense(self, depth: int) -> Elements:
        """dense<[1, 2]> : tensor<2xi64>, after its first word."""
        self._expect("<")
        raw: bytes | None = None
        words: list[str] = []
        string = self._take(_STRING)
        if string is not None:
            if not string[0].startswith('"0x'):
                raise ValueError(f"{string[0][:20]} is not the bytes of numbers")
            raw = bytes.fromhex(string[0][3:-1])
        elif self._next() != ">":
            self._nested(words, depth + 1)
        self._expect(">")
        self._expect(":")
        type = self._take(_TENSOR)
        if type is None:
            raise self._error("the type of a tensor of fixed sizes")
        sizes = tuple(int(size) for size in type[1].split("x")[:-1])
        kind = _element_type(type[2])
        found = _numbers(words, kind) if raw is None else _of_bytes(raw, kind)
        count = prod(sizes)
        if found.size == 1 and count != 1 and (raw is not None or not words[1:]):
            found = np.broadcast_to(found, (count,))
        if found.size != count:
            raise ValueError(f"found {found.size} elements, expected {count}")
        return Elements(kind, np.ascontiguousarray(found).reshape(sizes))

    def _nested(self, words: list[str], depth: int) -> None:
        """Numbers in brackets."""
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} lists in one another")
        if not self._has("["):
            words.append(self._element())
            return
        while not self._has("]"):
            self._nested(words, depth + 1)
            if self._next() != "]":
                self._expect(",")

    def _element(self) -> str:
        """A number, true, false, or a complex number as two in parentheses."""
        if self._has("("):
            real = self._element()
            self._expect(",")
            imaginary = self._element()
            self._expect(")")
            return f"{real} {imaginary}"
        match = self._take(_NUMBER) or self._take(_WORD)
        if match is None:
            raise self._error("a number")
        return match[0]


def _element_type(text: str) -> DType:
    integer = _INTEGER.fullmatch(text)
    name = text.lower()
    if integer is not None:
        name = "pred" if text == "i1" else ("u" if integer[1] == "ui" else "s") + integer[2]
    name = {"index": "s64", "complex<f32>": "c64", "complex<f64>": "c128"}.get(name, name)
    found = DTYPES.get(name)
    if found is None or not found.bits:
        raise ValueError(f"{text} is not a type of elements")
    return found


def _is_float(text: str) -> bool:
    return "0x" not in text and any(mark in text for mark in ".eE")


def _numbers(words: list[str], kind: DType) -> Array:
    """The elements that are written. Of a float type, numbers in hexadecimal are their bits."""
    if kind.is_complex:
        parts = [part for word in words for part in word.split(" ")]
        if len(parts) != 2 * len(words):
            raise ValueError(f"found {words[0]!r}, expected a pair of numbers")
        return _numbers(parts, kind.real).view(kind.numpy)
    if kind.is_floating:
        return _joined([_float(word, kind) for word in words], kind)
    values = [_integer(word) for word in words]
    if kind.name == "pred":
        if any(value not in (0, 1, -1) for value in values):
            raise ValueError(f"{words} are not all true or false")
        return np.array([value != 0 for value in values], np.bool_)
    low = 0 if kind.name.startswith("u") else -(1 << kind.bits - 1)
    for value, word in zip(values, words, strict=True):
        if not low <= value < 1 << kind.bits:
            raise ValueError(f"{word} is more than the bits of {kind}")
    most = (1 << kind.bits - 1) - 1
    wrapped = [value - (1 << kind.bits) if low and value > most else value for value in values]
    return np.array(wrapped, np.int64 if low else np.uint64).astype(kind.numpy)


def _integer(word: str) -> int:
    literal = {"true": 1, "false": 0}.get(word)
    found: Any = ast.literal_eval(word) if literal is None else literal
    if not isinstance(found, int):
        raise ValueError(f"found {word!r}, expected an integer")
    return found


def _float(word: str, kind: DType) -> Array:
    if word in ("true", "false"):
        raise ValueError(f"found {word!r}, expected a number")
    literal: Any = ast.literal_eval(word)
    if "0x" not in word:
        return np.array([literal], np.float64).astype(kind.numpy)
    size = kind.numpy.itemsize
    if not 0 <= literal < 1 << 8 * size:
        raise ValueError(f"{word} is more than the bits of {kind}")
    return np.frombuffer(literal.to_bytes(size, "little"), kind.numpy)


def _joined(parts: list[Array], kind: DType) -> Array:
    return np.concatenate(parts) if parts else np.empty(0, kind.numpy)


def _of_bytes(data: bytes, kind: DType) -> Array:
    if kind.bits < 8 or len(data) % kind.numpy.itemsize:
        raise ValueError(f"{len(data)} bytes are not elements of {kind}")
    return np.frombuffer(data, kind.numpy.newbyteorder("<")).astype(kind.numpy)


def _unquoted(token: str) -> str:
    """A string as MLIR writes it: a backslash before a quote, a backslash, n, t or a byte's two hexadecimal digits."""

    def byte(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if len(code) == 2:
            return bytes.fromhex(code.decode())
        return {b"n": b"\n", b"t": b"\t"}.get(code, code)

    return _ESCAPE.sub(byte, token[1:-1].encode()).decode(errors="surrogateescape")
