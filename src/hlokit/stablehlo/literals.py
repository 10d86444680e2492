"""The contents of dense attributes: lists, splats, hexadecimal strings, resources."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from hlokit.errors import ParseError
from hlokit.stablehlo.lexer import MlirLexer
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

_Array = np.ndarray[Any, Any]

_PARTS = re.compile(r"[\[\](),]|[^\s\[\](),]+")
_HEX = re.compile(r"-?0[xX][0-9a-fA-F]{1,40}\Z")
_INTEGER = re.compile(r"-?[0-9]{1,40}\Z")
_FLOAT = re.compile(r"[-+]?[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][-+]?[0-9]{1,6})?\Z")
_BOOLEANS = {"true": True, "false": False}


class DenseReader:
    """Turns the text of a dense attribute into an array, once its type is known."""

    def __init__(self, lexer: MlirLexer, start: int) -> None:
        self._lexer = lexer
        self._start = start

    def of_bytes(self, data: bytes, shape: Shape) -> _Array:
        """The array whose elements lie in `data`, row-major, little-endian; or the one element of all."""
        dtype = shape.dtype
        if dtype.kind == "pred" and len(data) == -(-shape.size // 8) != shape.size:
            bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[: shape.size]
            return bits.astype(np.bool_).reshape(shape.dimensions)
        if dtype.kind == "pred" and data in (b"\x00", b"\x01", b"\xff"):
            return np.array(data != b"\x00", np.bool_).reshape((1,) * shape.rank)
        width = 1 if dtype.kind == "pred" else dtype.numpy.itemsize
        if len(data) not in (width, width * shape.size):
            raise self._error(f"{len(data)} bytes for {shape}")
        if dtype.kind == "pred":
            array = np.frombuffer(data, np.uint8) != 0
        elif dtype.bits < 8:  # NumPy's types of a few bits ignore the rest of the byte on reading, not in comparisons
            raw = np.frombuffer(data, np.int8 if dtype.is_signed else np.uint8)
            array = raw.astype(dtype.numpy) if dtype.is_integral else raw.view(np.uint8).view(dtype.numpy)
        else:
            array = np.frombuffer(data, dtype.numpy)
        whole = len(data) == width * shape.size
        return array.reshape(shape.dimensions if whole else (1,) * shape.rank)

    def of_hex(self, text: str, shape: Shape) -> _Array:
        """The array of a string "0x...": the bytes of the elements, or of the one element of all."""
        if not text.startswith("0x") or len(text) % 2:
            raise self._error("a dense string is 0x and two hexadecimal digits a byte")
        try:
            return self.of_bytes(bytes.fromhex(text[2:]), shape)
        except ValueError:
            raise self._error("a dense string is 0x and two hexadecimal digits a byte") from None

    def of_list(self, text: str, shape: Shape) -> _Array:
        """The array of nested lists, or of one element for all; a complex element is (real, imaginary)."""
        words, sizes = self._flattened(text, shape.dtype.is_complex)
        count = len(words) // (2 if shape.dtype.is_complex else 1)
        if sizes == () and count == 1:
            sizes = (1,) * shape.rank  # a splat
        elif sizes != shape.dimensions and (words or shape.size):
            raise self._error(f"a list of sizes {list(sizes)} for {shape}")
        elif count != shape.size:
            raise self._error(f"{count} elements for {shape}")
        else:
            sizes = shape.dimensions
        return self._elements(words, shape.dtype).reshape(sizes)

    def _flattened(self, text: str, is_complex: bool) -> tuple[list[str], tuple[int, ...]]:
        """The elements' words in order, and the sizes of the nested lists, which must be regular."""
        words: list[str] = []
        counts: list[int] = []
        sizes: dict[int, int] = {}
        pair = -1
        leaf_depth = -1
        expects = True  # an element or a list, not a comma
        for part in _PARTS.findall(text):
            if part == "," and not expects:
                expects = True
                continue
            if part in "])" and part and (not expects or (counts and counts[-1] == 0 and part == "]")):
                if part == ")":
                    if pair < 0 or len(words) - pair != 2:
                        raise self._error("a complex element is (real, imaginary)")
                    pair = -1
                else:
                    if not counts or pair >= 0:
                        raise self._error("brackets that do not match")
                    depth, count = len(counts) - 1, counts.pop()
                    if sizes.setdefault(depth, count) != count:
                        raise self._error("lists of different lengths")
                expects = False
                continue
            if not expects or part in "]),":
                raise self._error(f"unexpected {part[:20]!r} in a dense list")
            if part == "[" and pair < 0:
                if counts:
                    counts[-1] += 1
                if len(counts) >= 64:
                    raise self._error("nested more than 64 deep")
                counts.append(0)
                continue
            if part == "(" and is_complex and pair < 0:
                pair = len(words)
                if counts:
                    counts[-1] += 1
                leaf_depth = self._leaf(leaf_depth, len(counts))
                continue
            if part in "[(":
                raise self._error(f"unexpected {part!r} in a dense list")
            if pair < 0:
                if is_complex:
                    raise self._error("a complex element is (real, imaginary)")
                if counts:
                    counts[-1] += 1
                leaf_depth = self._leaf(leaf_depth, len(counts))
            words.append(part)
            expects = False
        if counts or pair >= 0 or (expects and words):
            raise self._error("a dense list that does not end")
        return words, tuple(sizes[d] for d in range(len(sizes)))

    def _leaf(self, known: int, depth: int) -> int:
        if known not in (-1, depth):
            raise self._error("elements at different depths")
        return depth

    def _elements(self, words: list[str], dtype: DType) -> _Array:
        if dtype.is_complex:
            parts = self._elements(words, dtype.real)
            return parts.view(dtype.numpy) if parts.size else np.zeros(0, dtype.numpy)
        if dtype.is_floating:
            return self._floats(words, dtype)
        values = [self._integer(word, dtype) for word in words]
        if dtype.kind == "pred":
            return np.array(values, np.bool_)
        wide = np.array(values, np.int64 if dtype.is_signed else np.uint64)
        return wide.astype(dtype.numpy)

    def _integer(self, word: str, dtype: DType) -> int:
        if word in _BOOLEANS:
            value = int(_BOOLEANS[word])
        elif _INTEGER.match(word):
            value = int(word)
        elif _HEX.match(word):
            value = int(word, 16)
        else:
            raise self._error(f"{word[:40]!r} is not an integer")
        bits = 1 if dtype.kind == "pred" else dtype.bits
        if not -(1 << bits >> 1) <= value < 1 << bits:
            raise self._error(f"{value} does not fit {dtype}")
        if dtype.is_signed and value >= 1 << (bits - 1):  # a signless integer may be written either way
            value -= 1 << bits
        return value if dtype.is_signed else value % (1 << bits)

    def _floats(self, words: list[str], dtype: DType) -> _Array:
        values = np.empty(len(words), dtype.numpy)
        decimals = [i for i, word in enumerate(words) if _FLOAT.match(word)]
        with np.errstate(all="ignore"):
            values[decimals] = np.array([float(words[i]) for i in decimals], np.float64).astype(dtype.numpy)
        if len(decimals) < len(words):
            bits = values.view(f"u{dtype.numpy.itemsize}")
            for i, word in enumerate(words):
                if _FLOAT.match(word):
                    continue
                if not _HEX.match(word) or not 0 <= int(word, 16) < 1 << (8 * dtype.numpy.itemsize):
                    raise self._error(f"{word[:40]!r} is not a number of {dtype}")
                bits[i] = int(word, 16)
        return values

    def _error(self, message: str) -> ParseError:
        return self._lexer.error(f"dense: {message}", self._start)


def filled(array: _Array, shape: Shape) -> _Array:
    """The array with a splat repeated to the shape's dimensions, without copying."""
    return (
        array
        if array.shape == shape.dimensions
        else np.broadcast_to(array.reshape((1,) * shape.rank), shape.dimensions)
    )


def is_splat(array: _Array, shape: Shape) -> bool:
    """One element stands for all."""
    return array.size == 1 and math.prod(shape.dimensions) != 1
