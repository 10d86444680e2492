"""Attributes and types of an artifact by their numbers, each read at its first use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from types import GeneratorType
from typing import Any, TypeAlias, cast

import numpy as np

from hlokit.errors import ParseError, ShapeError, UnsupportedError
from hlokit.stablehlo.artifact.container import BytecodeContainer, Entry
from hlokit.stablehlo.artifact.cursor import Cursor, failure
from hlokit.stablehlo.attributes import AttributeReader
from hlokit.stablehlo.lexer import END, MlirLexer
from hlokit.stablehlo.literals import DenseReader
from hlokit.stablehlo.tree import MAX_RANK, Dense, DialectAttribute, OtherType, Type
from hlokit.text.lexer import MAX_NESTING
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape

Codec: TypeAlias = "Callable[[Entries, Cursor], Any]"
"""Reads an attribute or a type whose code has been read. A location's gives `Steps`."""
Steps: TypeAlias = "Generator[int, Any, Any]"
"""Yields the numbers of the attributes that it is made of, is sent their values, returns its own."""

_UNREAD: Any = object()
_OPEN: Any = object()
_DYNAMIC = -(2**63)
_MOST_PARTS = 4_000_000
_MOST_TYPE_PARTS = 200_000


class Entries:
    """The tables. Values are as the text parser would give them: numbers, strings, lists, Dense, DialectAttribute,
    Location.

    attributes, types   by dialect and code
    An entry may name others, and operations name entries, each as often as they like. `_parts` counts what stands for
    the whole: entries, and their bytes by eights; so that what is small to write is not too large to handle.
    """

    def __init__(
        self,
        container: BytecodeContainer,
        attributes: Mapping[str, Mapping[int, Codec]],
        types: Mapping[str, Mapping[int, Codec]],
    ) -> None:
        self.container = container
        self._attribute_codecs = attributes
        self._type_codecs = types
        self._attributes: list[Any] = [_UNREAD] * len(container.attributes)
        self._types: list[Any] = [_UNREAD] * len(container.types)
        self._attribute_parts = [1] * len(container.attributes)
        self._type_parts = [1] * len(container.types)
        self._parts = 0
        self._most = _MOST_PARTS + container.size
        self._depth = 0

    # -- by number

    def attribute(self, index: int, cursor: Cursor) -> Any:
        """The attribute of this number, which was read from `cursor`."""
        if index >= len(self._attributes):
            raise cursor.error(f"attribute {index} of {len(self._attributes)}")
        value = self._attributes[index]
        if value is _UNREAD or value is _OPEN:
            return self._read(False, index, cursor)
        self._parts += self._attribute_parts[index]
        return value

    def type(self, index: int, cursor: Cursor) -> Type:
        """The type of this number, which was read from `cursor`."""
        if index >= len(self._types):
            raise cursor.error(f"type {index} of {len(self._types)}")
        value = self._types[index]
        if value is _UNREAD or value is _OPEN:
            return self._read(True, index, cursor)
        self._parts += self._type_parts[index]
        return value

    def count(self, parts: int, cursor: Cursor) -> None:
        """So many parts more, of what is read from `cursor`. ParseError if they are too many in all."""
        self._parts += parts
        if self._parts > self._most:
            raise cursor.error(f"attributes and types of more than {self._most} parts in all")

    def _read(self, is_type: bool, index: int, cursor: Cursor) -> Any:
        table = self._types if is_type else self._attributes
        entry = (self.container.types if is_type else self.container.attributes)[index]
        what = "type" if is_type else "attribute"
        if table[index] is _OPEN:
            raise cursor.error(f"{what} {index} holds itself")
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise cursor.error(f"nested more than {MAX_NESTING} deep")
        outside, self._parts = self._parts, 1 + (len(entry.data) >> 3)
        table[index] = _OPEN
        value = self._decoded(entry, is_type) if entry.is_encoded else self._of_text(entry, is_type)
        if is_type and self._parts > _MOST_TYPE_PARTS:
            raise failure(f"type {index} has {self._parts} parts", entry.offset)
        self.count(0, cursor)
        table[index] = value
        (self._type_parts if is_type else self._attribute_parts)[index] = self._parts
        self._parts += outside
        self._depth -= 1
        return value

    def _decoded(self, entry: Entry, is_type: bool) -> Any:
        cursor = Cursor(entry.data, entry.offset)
        try:
            codec = self._codec(entry, is_type, cursor)
            value = codec(self, cursor)
            if isinstance(value, GeneratorType):  # a location's
                value = self._location(cast("Steps", value), cursor)
        except ShapeError as error:
            raise cursor.error(str(error)) from None
        except IndexError:
            raise cursor.error("ends too early") from None
        if cursor.position < len(cursor.data):
            raise cursor.error(f"{cursor.rest} bytes too many")
        return value

    def _codec(self, entry: Entry, is_type: bool, cursor: Cursor) -> Codec:
        """The codec of the entry, whose code `cursor` has then passed."""
        code = entry.data[0] >> 1
        cursor.position = 1
        if not entry.data[0] & 1:
            cursor.position = 0
            code = cursor.varint()
        codec = (self._type_codecs if is_type else self._attribute_codecs).get(entry.dialect, {}).get(code)
        if codec is None:
            what = "type" if is_type else "attribute"
            raise UnsupportedError(f"byte {entry.offset}: the {what} {code} of the dialect {entry.dialect}")
        return codec

    def _location(self, steps: Steps, cursor: Cursor) -> Any:
        """The result of a location's codec. Locations in locations, as deep as the call stack, are read in turn.

        They stand for no more than themselves: a call site keeps nothing of its callers.
        """
        opened: list[tuple[int, Steps, Cursor, int]] = []
        value: Any = None
        while True:
            try:
                number = steps.send(value)
            except StopIteration as done:
                if not opened:
                    return done.value
                if cursor.position < len(cursor.data):
                    raise cursor.error(f"{cursor.rest} bytes too many") from None
                index, outer_steps, outer, outside = opened.pop()
                value = self._attributes[index] = done.value
                self._attribute_parts[index], self._parts = self._parts, outside
                steps, cursor = outer_steps, outer
                continue
            except IndexError:
                raise cursor.error("ends too early") from None
            entry = self._unread_location(number)
            if entry is None:
                outside = self._parts
                value = self.attribute(number, cursor)
                self._parts = outside
                continue
            opened.append((number, steps, cursor, self._parts))
            self._attributes[number], self._parts = _OPEN, 1 + (len(entry.data) >> 3)
            cursor = Cursor(entry.data, entry.offset)
            steps, value = self._codec(entry, False, cursor)(self, cursor), None

    def _unread_location(self, number: int) -> Entry | None:
        """The entry of this number if it is a location of others that was not read yet."""
        if number >= len(self._attributes) or self._attributes[number] is not _UNREAD:
            return None
        entry = self.container.attributes[number]
        if not entry.is_encoded or not entry.data:
            return None
        codec = self._codec(entry, False, Cursor(entry.data, entry.offset))
        return entry if inspect.isgeneratorfunction(codec) else None

    def _of_text(self, entry: Entry, is_type: bool) -> Any:
        """An entry that is written as text."""
        text = entry.data.removesuffix(b"\0").decode(errors="replace")
        return self.parsed(text, is_type, entry.offset)

    def parsed(self, text: str, is_type: bool, offset: int) -> Any:
        """The attribute or type that a text says."""
        try:
            lexer = MlirLexer(text)
            reader = AttributeReader(lexer)
            value = reader.type() if is_type else reader.attribute()
            if lexer.kind != END:
                raise lexer.unexpected("the end")
        except ParseError as error:
            raise failure(f"in {text[:60]!r}: {error.message}", offset) from None
        except UnsupportedError as error:
            raise UnsupportedError(f"byte {offset}: {str(error).partition(': ')[2]}") from None
        return value

    # -- parts of entries

    def inner(self, cursor: Cursor) -> Any:
        """An attribute by its number, which stands at the cursor."""
        return self.attribute(cursor.varint(), cursor)

    def inner_type(self, cursor: Cursor) -> Type:
        return self.type(cursor.varint(), cursor)

    def inner_list(self, cursor: Cursor) -> list[Any]:
        return [self.attribute(number, cursor) for number in cursor.varints(cursor.varint())]

    def inner_types(self, cursor: Cursor) -> list[Type]:
        return [self.type(number, cursor) for number in cursor.varints(cursor.varint())]

    def string(self, cursor: Cursor) -> str:
        """A string by its number."""
        index = cursor.varint()
        if index >= len(self.container.strings):
            raise cursor.error(f"string {index} of {len(self.container.strings)}")
        return self.container.strings[index]

    def bits(self, cursor: Cursor, width: int) -> int:
        """An integer of known width: one byte up to 8 bits, a signed integer up to 64."""
        if width <= 8:
            return cursor.byte()
        if width <= 64:
            return cursor.signed() & ((1 << width) - 1)
        raise UnsupportedError(f"byte {cursor.offset}: an integer of {width} bits")

    def double(self, cursor: Cursor) -> float:
        return float(np.array(self.bits(cursor, 64), np.uint64).view(np.float64))

    def integer(self, cursor: Cursor) -> int | bool:
        """A type and an integer of its width."""
        kind = self.inner_type(cursor)
        if not isinstance(kind, Shape) or not (kind.dtype.is_integral or kind.dtype is dtypes.pred):
            raise UnsupportedError(f"byte {cursor.offset}: an integer of type {kind}")
        dtype = kind.dtype
        if dtype is dtypes.pred:
            return bool(self.bits(cursor, 1))
        value = self.bits(cursor, dtype.bits) & ((1 << dtype.bits) - 1)
        return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value

    def float(self, cursor: Cursor) -> float:
        """A type and a number of its width."""
        kind = self.inner_type(cursor)
        if not isinstance(kind, Shape) or not kind.dtype.is_floating:
            raise UnsupportedError(f"byte {cursor.offset}: a number of type {kind}")
        width = kind.dtype.numpy.itemsize
        data = (self.bits(cursor, kind.dtype.bits) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        return float(DenseReader(Positions(), cursor.offset).of_bytes(data, kind.dtype[()]).item())

    def dense(self, cursor: Cursor, kind: Type, data: bytes) -> Dense:
        """The elements of a dense attribute, or the one of all, as bytes."""
        if not isinstance(kind, Shape):
            raise UnsupportedError(f"byte {cursor.offset}: constants of type {kind} are not supported")
        if not kind.is_array or kind.is_dynamic:
            raise cursor.error(f"dense: {kind} is not an array of fixed sizes")
        if kind.dtype is dtypes.pred and data in (b"\0", b"\xff"):  # all bits alike: one element for all
            return Dense(kind, np.full((1,) * kind.rank, data != b"\0"))
        return Dense(kind, DenseReader(Positions(), cursor.offset).of_bytes(data, kind))

    def tensor(self, cursor: Cursor, sizes: list[int], element: Type, encoding: Any = None) -> Type:
        """A ranked tensor; sizes of -2**63 are not known, but may be bounded by the encoding."""
        if len(sizes) > MAX_RANK:
            raise UnsupportedError(f"byte {cursor.offset}: tensors of more than {MAX_RANK} dimensions")
        if not isinstance(element, Shape) or not element.is_array:
            text = "".join("?x" if size == _DYNAMIC else f"{size}x" for size in sizes)
            return self.parsed(f"tensor<{text}{element}>", True, cursor.offset)
        bounds: list[Any] = []
        if isinstance(encoding, DialectAttribute) and encoding.name.endswith(".bounds"):
            bounds = encoding.value
        dimensions: list[int | str] = []
        for i, size in enumerate(sizes):
            bound = bounds[i] if i < len(bounds) else _DYNAMIC
            dimensions.append(size if size != _DYNAMIC else "?" if bound == _DYNAMIC else f"<={bound}")
        return Shape.array(element.dtype, dimensions)

    def complex(self, cursor: Cursor) -> Type:
        part = self.inner_type(cursor)
        if part == dtypes.f32[()]:
            return dtypes.c64[()]
        return dtypes.c128[()] if part == dtypes.f64[()] else OtherType(f"complex<{part}>")

    def tuple(self, cursor: Cursor) -> Type:
        elements = self.inner_types(cursor)
        shapes = [element for element in elements if isinstance(element, Shape)]
        if len(shapes) < len(elements):
            return OtherType(f"tuple<{', '.join(map(str, elements))}>")
        return Shape.tuple(shapes)


class Positions(MlirLexer):
    """The place of an error in an artifact: the number of a byte."""

    def __init__(self) -> None:
        super().__init__("")

    def error(self, message: str, at: int | None = None, label: str | None = None) -> ParseError:
        error = failure(message, at or 0)
        error.label = label
        return error

    def where(self, position: int) -> str:
        return f"byte {position}"
