"""MLIR's types, attributes and locations, read from text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from hlokit.errors import HlokitError, ShapeError, UnsupportedError
from hlokit.stablehlo.lexer import (
    ATTRIBUTE,
    FLOAT,
    INTEGER,
    MINUS,
    STRING,
    SYMBOL,
    TYPE,
    WORD,
    MlirLexer,
)
from hlokit.stablehlo.literals import DenseReader
from hlokit.stablehlo.quantization import fits_axis, has_fitting_scales, read_quantized
from hlokit.stablehlo.tree import (
    MAX_RANK,
    Dense,
    DialectAttribute,
    Dictionary,
    FunctionType,
    Location,
    OtherType,
    Quantized,
    QuantizedTensor,
    Symbol,
    Type,
    Typed,
    Unit,
)
from hlokit.text.drafts import TupleSizes
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DTYPES, DType
from hlokit.types.shape import TOKEN, Shape

_Array: TypeAlias = np.ndarray[Any, Any]

_SIZES = re.compile(r"[ \t\r\n]*((?:(?:[0-9]{1,19}|\?)[ \t]*x[ \t]*)*)")
_INTEGER_TYPE = re.compile(r"(s|u)?i([0-9]{1,5})\Z")
_FLOAT_TYPES = {name: dtype for name, dtype in DTYPES.items() if dtype.is_floating}
_OTHER_FLOATS = ("tf32", "f6e2m3fn", "f6e3m2fn", "f80", "f128", "f8e4m3b11fnuz")
_OPEN = ("tensor", "complex", "tuple", "vector", "memref")


@dataclass(slots=True)
class _Location:
    """A location that is being read: the bracket that closes it ("" if it holds no other), how many it holds so far."""

    closing: str
    place: Location = field(default_factory=Location)
    name: str = ""
    is_call: bool = False
    count: int = 0


_MEMREF = re.compile(r"memref<((?:[0-9]+x)*(?:\w+|complex<\w+>)) *(?:,.*)?>", re.DOTALL)


def shape_of(type: Any) -> Shape | None:
    """The shape that HLO has for a type, if any: of a memref a buffer, of a quantised tensor that of its integers."""
    if isinstance(type, Shape):
        return type
    if isinstance(type, QuantizedTensor):
        return type.shape
    return _with_buffers(type.text) if isinstance(type, OtherType) else None


def _with_buffers(text: str) -> Shape | None:
    """The shape of a memref, or of a tuple that has one."""
    try:
        if (memref := _MEMREF.fullmatch(text)) is not None:
            content = shape_of(AttributeReader(MlirLexer(f"tensor<{memref[1]}>")).type())
            return Shape.buffer(content) if content is not None else None
        if text.startswith("tuple<"):
            elements = AttributeReader(MlirLexer(text[len("tuple<") : -1])).types_with_commas()
            shapes = [shape for element in elements if (shape := shape_of(element)) is not None]
            return Shape.tuple(shapes) if len(shapes) == len(elements) else None
    except HlokitError:  # such as a name that the text around it has given to a type
        return None
    return None


class AttributeReader:
    """Reads at the lexer's position. `types`, `aliases`: what the text has given names; `resources`: their bytes.

    keeps_types     numbers, arrays and flags come as `Typed` and `Unit`, futures as they are written
    """

    def __init__(self, lexer: MlirLexer, keeps_types: bool = False) -> None:
        self.lexer = lexer
        self.keeps_types = keeps_types
        self.types: dict[str, Type | Quantized] = {}
        self.aliases: dict[str, Any] = {}
        self.resources: dict[str, str] = {}
        self._sizes = TupleSizes()

    # -- types

    def starts_type(self) -> bool:
        lexer = self.lexer
        if lexer.kind == TYPE or lexer.value in _OPEN or lexer.value in ("none", "index"):
            return lexer.kind != STRING
        return lexer.kind == WORD and self._element_named(lexer.value) is not None

    def type_or_element(self) -> Type | Quantized:
        """Reads what an alias may stand for: a type, or a quantised type of elements."""
        return self._named_type() if self.lexer.kind == TYPE else self.type()

    def type(self) -> Type:
        """Reads a type. Those that HLO lacks are kept as text."""
        lexer = self.lexer
        lexer.enter()
        start = lexer.start
        if lexer.value == "(":
            found: Type = self.function_type()
        elif lexer.kind == TYPE:
            named = self._named_type()
            found = OtherType(lexer.text[start : lexer.start].strip()) if isinstance(named, Quantized) else named
        elif lexer.value == "tensor":
            found = self._tensor()
        elif lexer.value == "tuple":
            lexer.advance()
            elements = self._listed_types("<", ">")
            shapes = [e for e in elements if isinstance(e, Shape)]
            if len(shapes) < len(elements):
                found = OtherType(lexer.text[start : lexer.start].strip())
            else:
                found = self._checked(Shape.tuple(shapes), start)
        elif lexer.value in ("vector", "memref", "none"):
            lexer.advance()
            if lexer.at("<"):
                lexer.balanced()
            found = OtherType(lexer.text[start : lexer.start].strip())
        else:
            element = self._element()
            found = element[()] if isinstance(element, DType) else OtherType(str(element))
        lexer.leave()
        return found

    def function_type(self) -> FunctionType:
        """Reads `(types) -> types`."""
        inputs = self._listed_types("(", ")")
        self.lexer.expect("->")
        return FunctionType(tuple(inputs), self.result_types())

    def result_types(self) -> tuple[Type, ...]:
        """Reads one type, or a list of them in parentheses."""
        return tuple(self._listed_types("(", ")")) if self.lexer.value == "(" else (self.type(),)

    def types_with_commas(self) -> list[Type]:
        found = [self.type()]
        while self.lexer.accept(","):
            found.append(self.type())
        return found

    def _listed_types(self, opening: str, closing: str) -> list[Type]:
        lexer = self.lexer
        lexer.expect(opening)
        found = [] if lexer.value == closing else self.types_with_commas()
        lexer.expect(closing)
        return found

    def _checked(self, shape: Shape, start: int) -> Shape:
        try:
            self._sizes.check(shape)
        except ShapeError as error:
            raise self.lexer.error(str(error), start) from None
        return shape

    def _named_type(self) -> Type | Quantized:
        lexer = self.lexer
        start, name = lexer.start, lexer.value[1:]
        lexer.advance()
        if name in ("stablehlo.token", "mhlo.token"):
            return TOKEN
        if name == "stablehlo.future":
            return self._future(start)
        if name in self.types:
            return self.types[name]
        if "." not in name:
            raise lexer.error(f"the type !{name} is not defined (above)", start)
        inner = lexer.balanced() if lexer.value == "<" else ""
        if name == "quant.uniform":
            element = read_quantized(inner)
            if element is not None and not has_fitting_scales(element):
                raise lexer.error(f"a scale is out of the range of {element.expressed}", start)
            if element is not None:
                return element
        return OtherType(lexer.text[start : lexer.start].strip())

    def _future(self, start: int) -> Type:
        """!stablehlo.future<types>: as the types themselves, a tuple of several."""
        inner = self._listed_types("<", ">")
        shapes = [t for t in inner if isinstance(t, Shape)]
        if len(shapes) < len(inner) or self.keeps_types:
            return OtherType(self.lexer.text[start : self.lexer.start].strip())
        return shapes[0] if len(shapes) == 1 else self._checked(Shape.tuple(shapes), start)

    def _tensor(self) -> Type:
        """tensor<2x?x3xf32, #stablehlo.bounds<...>>."""
        lexer = self.lexer
        start = lexer.start
        lexer.advance()
        if lexer.value != "<":
            raise lexer.unexpected("'<'")
        found = _SIZES.match(lexer.text, lexer.end)
        assert found is not None
        if lexer.text.startswith("*", found.end()):
            raise UnsupportedError(f"{lexer.where(start)}: tensors without a rank are not supported")
        sizes = found[1].replace(" ", "").split("x")[:-1]
        if len(sizes) > MAX_RANK:
            raise UnsupportedError(f"{lexer.where(start)}: tensors of more than {MAX_RANK} dimensions")
        lexer.jump(found.end())
        element = self._element()
        encoding = self.attribute() if lexer.accept(",") else None
        lexer.expect(">")
        if isinstance(element, OtherType):
            return OtherType(lexer.text[start : lexer.start].strip())
        try:
            if isinstance(element, DType):
                return Shape.array(element, self._bounded(sizes, encoding))
            tensor = QuantizedTensor(Shape.array(element.storage, self._bounded(sizes, encoding)), element)
        except ShapeError as error:
            raise lexer.error(str(error), start, error.label) from None
        if not fits_axis(tensor.shape, element):
            raise lexer.error(f"{len(element.scales)} scales for dimension {element.axis} of {tensor.shape}", start)
        return tensor

    def _bounded(self, sizes: list[str], encoding: Any) -> list[int | str]:
        bounds: list[Any] = []
        if isinstance(encoding, DialectAttribute) and encoding.name.endswith((".bounds", ".type_extensions")):
            value = encoding.value
            given = value.get("bounds") if isinstance(value, dict) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            bounds = given if isinstance(given, list) else [part.strip() for part in str(given).strip("[]").split(",")]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        result: list[int | str] = []
        for i, size in enumerate(sizes):
            bound = str(bounds[i]) if i < len(bounds) else "?"
            if size != "?":
                if bound.isdecimal():
                    raise self.lexer.error(f"dimension {i} of size {size} has a bound")
                result.append(int(size))
            else:
                result.append(f"<={bound}" if bound.isdecimal() else "?")
        return result

    def _element(self) -> DType | Quantized | OtherType:
        """An element type; one that HLO lacks as text."""
        lexer = self.lexer
        start = lexer.start
        if lexer.kind == TYPE:
            found = self._named_type()
            if isinstance(found, (OtherType, Quantized)):
                return found
            return OtherType(lexer.text[start : lexer.start].strip())
        if lexer.value == "complex":
            lexer.enter()
            lexer.advance()
            lexer.expect("<")
            part = self._element()
            lexer.expect(">")
            lexer.leave()
            if part in (dtypes.f32, dtypes.f64):
                return dtypes.c64 if part is dtypes.f32 else dtypes.c128
            return OtherType(lexer.text[start : lexer.start].strip())
        element = self._element_named(lexer.value) if lexer.kind == WORD else None
        if element is None:
            raise lexer.unexpected("a type")
        lexer.advance()
        return element

    def _element_named(self, name: str) -> DType | OtherType | None:
        if name == "index":
            return dtypes.s64
        if name == "i1":
            return dtypes.pred
        integer = _INTEGER_TYPE.match(name)
        if integer is not None:
            return DTYPES.get(f"{'u' if integer[1] == 'u' else 's'}{integer[2]}") or OtherType(name)
        lower = name.lower()
        if lower in _FLOAT_TYPES:
            return _FLOAT_TYPES[lower]
        return OtherType(name) if lower in _OTHER_FLOATS else None

    # -- attributes

    def attribute(self, typed: bool = True) -> Any:
        """Reads an attribute. Numbers come as Python's, lists as lists, arrays as tuples, types as they are.

        `typed`: a type may follow a number or a string, `1 : i64`.
        """
        lexer = self.lexer
        lexer.enter()
        if typed or lexer.kind not in (STRING, INTEGER):
            value = self._attribute()
        else:
            value = lexer.string() if lexer.kind == STRING else lexer.integer()
        lexer.leave()
        return value

    def _attribute(self) -> Any:
        lexer = self.lexer
        kind, word = lexer.kind, lexer.value
        if kind == STRING:
            value = lexer.string()
            if lexer.value == ":" and self._type_follows():
                self._typed(value)
            return value
        if kind in (INTEGER, FLOAT, MINUS):
            return self._number()
        if word == "(" and lexer.peek().isdecimal():
            return self._sub_axis()
        if word == "[":
            return self._list()
        if word == "{":
            return self.dictionary()
        if word == "<":
            return self._parameters(lexer.start)
        if kind == SYMBOL:
            return Symbol(lexer.symbol())
        if kind == ATTRIBUTE:
            return self._dialect_attribute()
        if word == "(" or (kind != WORD and self.starts_type()):
            return self.type()
        if word == "?":  # a size without a bound
            lexer.advance()
            return "?"
        if kind != WORD:
            raise lexer.unexpected("an attribute")
        if word in ("dense", "dense_resource") and lexer.peek() == "<":
            return self._dense()
        if word == "array" and lexer.peek() == "<":
            return self._array()
        if word == "loc" and lexer.peek() == "(":
            return self.location()
        if word in ("true", "false"):
            lexer.advance()
            return word == "true"
        if self.starts_type():
            return self.type()
        lexer.advance()
        if lexer.value == "<":  # affine_map<...>, sparse<...>
            return DialectAttribute(word, lexer.balanced())
        return word

    def dictionary(self) -> Dictionary:
        """Reads `{name = attribute, flag}`."""
        lexer = self.lexer
        start = lexer.start
        lexer.expect("{")
        found = Dictionary()
        while lexer.value != "}":
            name = lexer.string() if lexer.kind == STRING else lexer.take(WORD, "an attribute's name")
            found[name] = self.attribute() if lexer.accept("=") else Unit() if self.keeps_types else True
            if not lexer.accept(","):
                break
        if lexer.value != "}":
            raise lexer.unexpected("'}'")
        found.text = lexer.text[start : lexer.end]
        lexer.advance()
        return found

    def _type_follows(self) -> bool:
        """A type stands behind the colon, not the next part of an operation's text."""
        lexer = self.lexer
        word = lexer.peek()
        return bool(word) and (word[0] == "!" or word in (*_OPEN, "none") or self._element_named(word) is not None)

    def _sub_axis(self) -> Dictionary:
        """`(pre_size)size`: a part of an axis of a mesh."""
        lexer = self.lexer
        lexer.expect("(")
        found = Dictionary(pre_size=lexer.integer())
        lexer.expect(")")
        found["size"] = lexer.integer()
        return found

    def _typed(self, value: Any) -> Any:
        self.lexer.expect(":")
        type = self.type()
        return Typed(value, type) if self.keeps_types and not isinstance(value, str) else value

    def _number(self) -> Any:
        lexer = self.lexer
        start = lexer.start
        negative = lexer.accept("-")
        if lexer.kind == FLOAT:
            if len(lexer.value) > 1000:
                raise lexer.error("a number of more than 1000 characters")
            value: Any = float(lexer.value)
            lexer.advance()
        else:
            is_hex = lexer.value.startswith("0x")
            value = lexer.integer()
            if is_hex and lexer.value == ":" and self._type_follows():
                lexer.advance()
                shape = self.type()
                if isinstance(shape, Shape) and shape.is_array and shape.dtype.is_floating:
                    data = value.to_bytes(20, "little")[: shape.dtype.numpy.itemsize]
                    value = float(DenseReader(lexer, start).of_bytes(data, shape.dtype[()]))
                return Typed(value, shape) if self.keeps_types else value
        value = -value if negative else value
        if lexer.value == ":" and self._type_follows():
            return self._typed(value)
        default = dtypes.f64 if isinstance(value, float) else dtypes.s64
        return Typed(value, default[()]) if self.keeps_types else value

    def _list(self) -> list[Any]:
        found: list[Any] = []
        for _ in self.lexer.items("[", "]"):
            found.append(self.attribute())
        return found

    def _array(self) -> Any:
        """array<i64: 1, 2>."""
        lexer = self.lexer
        lexer.advance()
        lexer.expect("<")
        element = self.type()
        found: list[Any] = []
        if lexer.accept(":"):
            found.append(self.attribute())
            while lexer.accept(","):
                found.append(self.attribute())
        lexer.expect(">")
        if self.keeps_types:
            return Typed(tuple(v.value if isinstance(v, Typed) else v for v in found), element)
        return tuple(found)

    def _dense(self) -> Dense:
        lexer = self.lexer
        start, is_resource = lexer.start, lexer.value == "dense_resource"
        lexer.advance()
        body = lexer.balanced().strip()
        if not lexer.accept(":"):
            raise lexer.unexpected("':' and the type of the elements")
        shape = self.type()
        if isinstance(shape, QuantizedTensor):
            shape = shape.shape
        if isinstance(shape, OtherType):
            raise UnsupportedError(f"{lexer.where(start)}: constants of type {shape} are not supported")
        if not isinstance(shape, Shape) or not shape.is_array or shape.is_dynamic:
            raise lexer.error(f"dense: {shape} is not an array of fixed sizes", start)
        reader = DenseReader(lexer, start)
        if is_resource:
            name = body[1:-1] if body.startswith('"') else body
            if name not in self.resources:
                raise lexer.error(f"the resource {name[:60]} is not in the text", start)
            return Dense(shape, reader.of_hex("0x" + self.resources[name][10:], shape))
        if body.startswith('"'):
            return Dense(shape, reader.of_hex(body[1:-1], shape))
        return Dense(shape, reader.of_list(body, shape))

    def _dialect_attribute(self) -> Any:
        """#alias, #dialect.name<...> or #dialect<name ...>."""
        start = self.lexer.start
        found = self._of_dialect()
        if self.keeps_types and isinstance(found, DialectAttribute) and not found.text:
            return replace(found, text=self.lexer.text[start : self.lexer.start].strip())
        return found

    def _of_dialect(self) -> Any:
        lexer = self.lexer
        start, name = lexer.start, lexer.value[1:]
        lexer.advance()
        if lexer.value != "<" or lexer.start != start + len(name) + 1:
            if name in self.aliases:
                return self.aliases[name]
            if "." in name:
                return DialectAttribute(name, "")
            raise lexer.error(f"the attribute #{name} is not defined (above)", start)
        if "." in name:
            return DialectAttribute(name, self._parameters(start))
        lexer.advance()
        inner = lexer.take(WORD, "an attribute's name")
        if lexer.value == "<":
            value = self._parameters(start)
        elif lexer.value in ("{", "["):
            value = lexer.balanced()
        else:
            value = "" if lexer.value == ">" else lexer.value
            if value:
                lexer.advance()
        lexer.expect(">")
        return DialectAttribute(f"{name}.{inner}", value)

    def _parameters(self, start: int) -> Any:
        """The content of `<...>`: a dictionary if it is one, one word, or text."""
        lexer = self.lexer
        begin = lexer.start
        text = lexer.balanced()
        after = lexer.start
        if re.fullmatch(r"\s*\w+\s*", text):
            return text.strip()
        named = re.match(r"(\s*raw\b)?\s*\w+\s*=(?!=)", text)  # #stablehlo.conv<raw ...> has names for all
        if named is None:
            return text
        lexer.jump(begin + 1 + len(named[1] or ""))
        found = Dictionary()
        found.text = text
        while lexer.value != ">":
            name = lexer.take(WORD, "a parameter's name")
            lexer.expect("=")
            found[name] = self.attribute()
            if not lexer.accept(","):
                break
        lexer.expect(">")
        if lexer.start != after:
            raise lexer.error("parameters that do not end where their brackets do", start)
        return found

    # -- locations

    def location(self) -> Location:
        """Reads `loc(...)`."""
        lexer = self.lexer
        lexer.expect("loc")
        lexer.expect("(")
        place = self._location()
        lexer.expect(")")
        return place

    def _location(self) -> Location:
        """Locations in locations, as deep as a program's call stack, are read in turn: `opened` has those around."""
        opened: list[_Location] = []
        while True:
            here = self._location_start()
            if here.closing:
                opened.append(here)
                continue
            place = here.place
            while opened and self._location_end(opened[-1], place):
                place = opened.pop().place
            if not opened:
                return place

    def _location_start(self) -> _Location:
        """A location up to where the first location in it stands, if one does."""
        lexer = self.lexer
        if lexer.kind == ATTRIBUTE:
            alias = lexer.value[1:]
            lexer.advance()
            return _Location("", Location(alias=alias))
        if lexer.kind == STRING:
            text = lexer.string()
            return _Location(")", name=text) if lexer.accept("(") else _Location("", self._name_or_file(text))
        if lexer.accept("unknown"):
            return _Location("")
        if lexer.accept("callsite"):
            lexer.expect("(")
            return _Location(")", is_call=True)
        if lexer.accept("fused"):
            if lexer.value == "<":
                lexer.balanced()
            lexer.expect("[")
            return _Location("]")
        raise lexer.unexpected("a location")

    def _location_end(self, around: _Location, place: Location) -> bool:
        """After a location in another: whether that ends here, too."""
        lexer = self.lexer
        around.count += 1
        if around.count == 1:
            around.place = place
            if around.name:
                around.place = Location(around.name, place.file, place.line, place.alias)
        if around.is_call and around.count == 1:
            if lexer.value != "at":
                raise lexer.unexpected("'at'")
            lexer.advance()
            return False
        if around.closing == "]" and lexer.accept(","):
            return False
        lexer.expect(around.closing)
        return True

    def _name_or_file(self, text: str) -> Location:
        lexer = self.lexer
        if not lexer.accept(":"):
            return Location(text)
        line = lexer.integer()
        lexer.expect(":")
        lexer.integer()
        if lexer.accept("to"):
            if lexer.kind == INTEGER:
                lexer.integer()
            lexer.expect(":")
            lexer.integer()
        return Location("", text, line)
