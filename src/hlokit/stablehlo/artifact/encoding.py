"""Types, attributes and locations as the entries of an artifact: in vhlo for its operations, in builtin for others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hlokit.errors import UnsupportedError
from hlokit.stablehlo.artifact.dialects import ACCURACIES as MODES
from hlokit.stablehlo.artifact.dialects import (
    ALGORITHMS,
    COMPARISONS,
    DIRECTIONS,
    DISTRIBUTIONS,
    FFTS,
    PRECISIONS,
    TRANSPOSES,
)
from hlokit.stablehlo.artifact.tables import Tables, blob, flagged, signed, signed_list, varint, varints
from hlokit.stablehlo.attributes import AttributeReader
from hlokit.stablehlo.lexer import MlirLexer
from hlokit.stablehlo.literals import filled
from hlokit.stablehlo.tree import (
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
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.shape import UNBOUNDED, Shape

_OLDEST = (0, 9, 0)
_DYNAMIC = -(2**63)
INDEX = OtherType("index")
NONE = OtherType("none")


class _Code(NamedTuple):
    """The codes of a type without parameters: in vhlo, the first version that has it, in builtin."""

    vhlo: int
    first: tuple[int, int, int]
    builtin: int | None


_ELEMENTS: dict[str, _Code] = {
    "bf16": _Code(2, _OLDEST, 3),
    "f16": _Code(3, _OLDEST, 4),
    "f32": _Code(4, _OLDEST, 5),
    "f64": _Code(5, _OLDEST, 6),
    "f8e4m3fn": _Code(6, _OLDEST, 24),
    "f8e5m2": _Code(7, _OLDEST, 22),
    "f8e4m3fnuz": _Code(27, (0, 10, 0), 26),
    "f8e5m2fnuz": _Code(28, (0, 10, 0), 25),
    "f8e4m3b11fnuz": _Code(29, (0, 11, 0), 27),
    "f8e4m3": _Code(35, (1, 7, 0), 23),
    "f8e3m4": _Code(36, (1, 7, 0), 28),
    "f4e2m1fn": _Code(37, (1, 8, 0), 29),
    "f6e2m3fn": _Code(38, (1, 8, 0), 30),
    "f6e3m2fn": _Code(39, (1, 8, 0), 31),
    "f8e8m0fnu": _Code(40, (1, 8, 0), 32),
    "tf32": _Code(34, (1, 6, 0), 21),
    "none": _Code(33, (1, 6, 0), 12),
    "index": _Code(9, _OLDEST, 1),
    "i1": _Code(0, _OLDEST, None),
    "i2": _Code(31, (1, 2, 0), None),
    "i4": _Code(10, _OLDEST, None),
    "i8": _Code(11, _OLDEST, None),
    "i16": _Code(12, _OLDEST, None),
    "i32": _Code(13, _OLDEST, None),
    "i64": _Code(14, _OLDEST, None),
    "ui2": _Code(32, (1, 2, 0), None),
    "ui4": _Code(15, _OLDEST, None),
    "ui8": _Code(16, _OLDEST, None),
    "ui16": _Code(17, _OLDEST, None),
    "ui32": _Code(18, _OLDEST, None),
    "ui64": _Code(19, _OLDEST, None),
}
"""Element types by MLIR's name, in lower case."""

_WORDS: dict[str, tuple[int, Sequence[str], tuple[int, int, int]]] = {
    "comparison_direction": (3, DIRECTIONS, _OLDEST),
    "comparison_type": (4, COMPARISONS, _OLDEST),
    "fft_type": (7, FFTS, _OLDEST),
    "precision": (11, PRECISIONS, _OLDEST),
    "rng_algorithm": (12, ALGORITHMS, _OLDEST),
    "rng_distribution": (13, DISTRIBUTIONS, _OLDEST),
    "transpose": (16, TRANSPOSES, _OLDEST),
    "result_accuracy_mode": (19, MODES, (1, 9, 0)),
}
"""Enumerations: code in vhlo, words by number, first version."""

_MESHES = (1, 16, 0)
_FUTURES = (1, 15, 0)
_AXES_OF_QUANTIZED = (0, 18, 0)
_OTHER_DIALECTS = (1, 11, 0)
_TENSOR = re.compile(r"(tensor|memref)<((?:(?:[0-9]+|\?)x)*)(\w+)>\Z")
_BUFFERS = (1, 13, 0)


def version_text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


class Encoder:
    """Numbers of types, attributes and locations in `tables`, for a target version.

    What the version cannot express is an UnsupportedError that names it and the first version that can. `where` is put
    before its message. `vhlo`: in the versioned dialect, else in builtin.
    """

    def __init__(self, tables: Tables, target: tuple[int, int, int]) -> None:
        self.tables = tables
        self.target = target
        self.where = ""
        self._known: dict[tuple[Type, bool], int] = {}

    def require(self, first: tuple[int, int, int], what: str) -> None:
        """UnsupportedError unless the target is at least `first`."""
        if self.target < first:
            message = (
                f"{what} is of StableHLO {version_text(first)} and later, the target is {version_text(self.target)}"
            )
            raise UnsupportedError(f"{self.where}{message}")

    def unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}{what} in an artifact is not supported")

    # -- types

    def type(self, type: Type, vhlo: bool) -> int:
        key = type, vhlo
        if key not in self._known:
            self._known[key] = self._type(type, vhlo)
        return self._known[key]

    def types(self, types: Iterable[Type], vhlo: bool) -> bytes:
        return varints([self.type(t, vhlo) for t in types])

    def _type(self, type: Type, vhlo: bool) -> int:
        if isinstance(type, FunctionType):
            return self._entry(vhlo, 8, 2, self.types(type.inputs, vhlo) + self.types(type.results, vhlo))
        if isinstance(type, QuantizedTensor):
            return self._tensor(type.shape, self._quantized(type.element, vhlo), vhlo)
        if isinstance(type, OtherType):
            return self._other(type, vhlo)
        if type.is_token:
            return self.tables.type("vhlo", varint(22)) if vhlo else self.tables.type("stablehlo", varint(0))
        if type.is_tuple:
            return self._entry(vhlo, 23, 15, self.types(type.elements, vhlo))
        if not type.is_array:
            raise self.unsupported(f"the type {type}")
        return self._tensor(type, self.element(type.dtype, vhlo), vhlo)

    def _entry(self, vhlo: bool, code: int, builtin: int, data: bytes) -> int:
        return self.tables.type("vhlo" if vhlo else "builtin", varint(code if vhlo else builtin) + data)

    def element(self, dtype: DType, vhlo: bool) -> int:
        """The type of an element, or of a number that is an attribute."""
        if dtype.is_complex:
            return self._entry(vhlo, 1, 9, varint(self.element(dtype.real, vhlo)))
        return self._named(_mlir_name(dtype), vhlo)

    def _named(self, name: str, vhlo: bool) -> int:
        code = _ELEMENTS.get(name.lower())
        if code is None:
            raise self.unsupported(f"the type {name}")
        if vhlo:
            self.require(code.first, f"the type {name}")
            return self.tables.type("vhlo", varint(code.vhlo))
        if code.builtin is not None:
            return self.tables.type("builtin", varint(code.builtin))
        width, signedness = int(name.lstrip("ui")), 2 if name.startswith("u") else 0
        return self.tables.type("builtin", varint(0) + varint(width << 2 | signedness))

    def _tensor(self, shape: Shape, element: int, vhlo: bool) -> int:
        sizes = [_DYNAMIC if flag else size for size, flag in zip(shape.dimensions, shape.dynamic, strict=True)]
        bounds = [
            size if flag and size != UNBOUNDED else _DYNAMIC
            for size, flag in zip(shape.dimensions, shape.dynamic, strict=True)
        ]
        data = signed_list(sizes) + varint(element)
        if all(bound == _DYNAMIC for bound in bounds):
            return self._entry(vhlo, 20, 13, data)
        dialect, code = ("vhlo", 18) if vhlo else ("stablehlo", 13)
        encoding = self.tables.attribute(dialect, varint(code) + signed_list(bounds))
        return self._entry(vhlo, 21, 14, varint(encoding) + data)

    def _quantized(self, element: Quantized, vhlo: bool) -> int:
        if not vhlo:
            raise self.unsupported("a quantised type of an operation of another dialect")
        storage = self._named(f"i{element.storage.bits}", True)
        expressed = self.element(element.expressed, True)
        head = varint(int(element.storage.is_signed)) + varint(storage) + varint(expressed)
        limits = signed(element.low) + signed(element.high)
        if element.axis is None:
            pair = _double(element.scales[0]) + signed(element.zero_points[0])
            return self.tables.type("vhlo", varint(24) + head + pair + limits)
        self.require(_AXES_OF_QUANTIZED, "a quantised type with a scale for each index")
        scales = varint(len(element.scales)) + b"".join(map(_double, element.scales))
        data = head + varint(element.axis) + limits + scales + signed_list(element.zero_points)
        return self.tables.type("vhlo", varint(30) + data)

    def _other(self, type: OtherType, vhlo: bool) -> int:
        text = type.text.strip()
        if text.startswith("!stablehlo.future<"):
            return self._future(text, vhlo)
        tensor = _TENSOR.match(text)
        if tensor is not None:
            sizes = [_DYNAMIC if size == "?" else int(size) for size in tensor[2].split("x")[:-1]]
            data = signed_list(sizes) + varint(self._named(tensor[3], vhlo))
            if tensor[1] == "tensor":
                return self._entry(vhlo, 20, 13, data)
            self.require(_BUFFERS, f"the type {text}")
            if vhlo:
                return self.tables.type("vhlo", varint(41) + data)
        return self._named(text, vhlo)

    def _future(self, text: str, vhlo: bool) -> int:
        self.require(_FUTURES, "the type !stablehlo.future")
        inner = text[len("!stablehlo.future<") : -1]
        types = AttributeReader(MlirLexer(inner), keeps_types=True).types_with_commas() if inner.strip() else []
        code = varint(42 if vhlo else 1)
        return self.tables.type("vhlo" if vhlo else "stablehlo", code + self.types(types, vhlo))

    # -- attributes

    def attribute(self, value: Any, vhlo: bool) -> int:
        """The number of an attribute; UnsupportedError for one that artifacts cannot hold."""
        match value:
            case bool():
                if vhlo:
                    return self._attribute(2, varint(value))
                return self._builtin(8, varint(self._named("i1", False)) + bytes([value]))
            case Unit():
                return self._builtin(7)
            case Typed():
                return self._typed(value, vhlo)
            case str():
                index = varint(self.tables.string(value))
                return self._attribute(14, index) if vhlo else self._builtin(2, index)
            case Symbol():
                return self.attribute(value.name, True) if vhlo else self._symbol(value)
            case list():
                return self.list_of(value, vhlo)  # pyright: ignore[reportUnknownArgumentType]
            case dict():
                return self.dictionary({k: self.attribute(v, vhlo) for k, v in value.items()}, vhlo)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            case Dense():
                return self.dense(value, vhlo)
            case DialectAttribute():
                return self._of_dialect(value, vhlo)
            case Shape() | OtherType() | FunctionType() | QuantizedTensor():
                index = varint(self._type_itself(value, vhlo))
                return self._attribute(17, index) if vhlo else self._builtin(6, index)
            case _:
                raise self.unsupported(f"the attribute {str(value)[:60]}")

    def _attribute(self, code: int, data: bytes = b"") -> int:
        return self.tables.attribute("vhlo", varint(code) + data)

    def _builtin(self, code: int, data: bytes = b"") -> int:
        return self.tables.attribute("builtin", varint(code) + data)

    def _type_itself(self, type: Type, vhlo: bool) -> int:
        """A type that is an attribute: of an element where it is a scalar, which is how elements come."""
        if isinstance(type, Shape) and type.is_array and not type.rank:
            return self.element(type.dtype, vhlo)
        return self.type(type, vhlo)

    def _symbol(self, symbol: Symbol) -> int:
        if "::" in symbol.name:
            raise self.unsupported(f"the nested symbol @{symbol.name}")
        return self._builtin(4, varint(self.attribute(symbol.name, False)))

    def list_of(self, values: Sequence[Any], vhlo: bool) -> int:
        return self.array([self.attribute(value, vhlo) for value in values], vhlo)

    def array(self, numbers: Sequence[int], vhlo: bool) -> int:
        return self._attribute(1, varints(numbers)) if vhlo else self._builtin(0, varints(numbers))

    def dictionary(self, numbers: Mapping[str, int], vhlo: bool) -> int:
        """A dictionary, in the order of the names."""
        names = sorted(numbers, key=lambda name: name.encode(errors="surrogateescape"))
        data = varint(len(names))
        for name in names:
            data += varint(self.attribute(name, vhlo)) + varint(numbers[name])
        return self._attribute(6, data) if vhlo else self._builtin(1, data)

    def _typed(self, value: Typed, vhlo: bool) -> int:
        kind = value.type
        if kind == INDEX:
            dtype = dtypes.s64
        elif isinstance(kind, Shape) and kind.is_array and not kind.rank:
            dtype = kind.dtype
        else:
            raise self.unsupported(f"a number of type {kind}")
        if isinstance(value.value, tuple):
            array = np.array(value.value, dtype.numpy)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            if vhlo:
                return self.dense(Dense(dtype[(len(array),)], array), True)
            data = varint(self.element(dtype, False)) + varint(len(array)) + blob(_one_by_one(array, dtype))
            return self._builtin(17, data)
        if dtype is dtypes.pred:
            return self.attribute(bool(value.value), vhlo)
        index = self._named("index", vhlo) if kind == INDEX else self.element(dtype, vhlo)
        if dtype.is_integral:
            bits = _bits(int(value.value) & ((1 << dtype.bits) - 1), dtype.bits)
            return self._attribute(9, varint(index) + bits) if vhlo else self._builtin(8, varint(index) + bits)
        number = np.array(value.value).astype(dtype.numpy)
        bits = _bits(int.from_bytes(number.tobytes(), "little") & ((1 << dtype.bits) - 1), dtype.bits)
        return self._attribute(8, varint(index) + bits) if vhlo else self._builtin(9, varint(index) + bits)

    def dense(self, value: Dense, vhlo: bool, is_index: bool = False) -> int:
        """`is_index`: the elements are of type index."""
        dtype = value.shape.dtype
        element = self._named("index", vhlo) if is_index else self.element(dtype, vhlo)
        kind = self._tensor(value.shape, element, vhlo)
        return self._attribute(15, varint(kind) + blob(_raw(value))) if vhlo else self._builtin(
            18, varint(kind) + blob(_raw(value))
        )  # fmt: skip

    def _of_dialect(self, value: DialectAttribute, vhlo: bool) -> int:
        dialect, _, name = value.name.partition(".")
        if not name:  # affine_map<...>, which builtin has
            return self.tables.attribute("builtin", f"{dialect}<{value.value}>".encode() + b"\0", is_encoded=False)
        if not vhlo or dialect not in ("stablehlo", "mhlo"):
            if dialect not in ("stablehlo", "mhlo", "builtin"):
                self.require(_OTHER_DIALECTS, f"the attribute #{value.name} of another dialect")
            text = value.text or f"#{value.name}<{value.value}>"
            return self.tables.attribute(dialect, text.encode(errors="surrogateescape") + b"\0", is_encoded=False)
        if name in _WORDS:
            code, words, first = _WORDS[name]
            self.require(first, f"the attribute {name}")
            if value.value not in words or not value.value:
                raise self.unsupported(f"{name} {str(value.value)[:40]}")
            return self._attribute(code, varint(words.index(value.value)))
        parts: Mapping[str, Any] = value.value if isinstance(value.value, Dictionary) else {}
        if name == "result_accuracy":
            return self._accuracy(parts)
        if name == "output_operand_alias":
            numbers = [_numbers(parts.get(part, ())) for part in ("output_tuple_indices", "operand_tuple_indices")]
            operand = _numbers([parts.get("operand_index", 0)])[0]
            return self._attribute(10, signed_list(numbers[0]) + signed(operand) + signed_list(numbers[1]))
        if name in ("replica_group_mesh_axes", "axis_ref", "sub_axis_info", "mesh", "mesh_axis"):
            return self._of_mesh(name, parts)
        raise self.unsupported(f"the attribute #{value.name}")

    def _accuracy(self, parts: Mapping[str, Any]) -> int:
        self.require((1, 9, 0), "the attribute result_accuracy")
        mode = parts.get("mode", DialectAttribute("stablehlo.result_accuracy_mode", "DEFAULT"))
        atol, rtol, ulps = (_plain(parts.get(name, 0)) for name in ("atol", "rtol", "ulps"))
        data = _double(float(atol)) + _double(float(rtol)) + signed(int(ulps))
        return self._attribute(20, data + varint(self.attribute(mode, True)))

    def _of_mesh(self, name: str, parts: Mapping[str, Any]) -> int:
        self.require(_MESHES, f"the attribute #stablehlo.{name}")
        if name == "sub_axis_info":
            return self._attribute(21, b"".join(signed(_plain(parts[part])) for part in ("pre_size", "size")))
        if name == "axis_ref":
            data = varint(self.attribute(parts["name"], True))
            part = parts.get("sub_axis_info")
            if part is None:
                return self._attribute(22, data + varint(0))
            inner = part if isinstance(part, DialectAttribute) else DialectAttribute("stablehlo.sub_axis_info", part)
            return self._attribute(22, data + varint(1) + varint(self.attribute(inner, True)))
        if name == "mesh_axis":
            return self._attribute(24, varint(self.attribute(parts["name"], True)) + signed(_plain(parts["size"])))
        if name == "mesh":
            data = varint(self.attribute(parts["axes"], True))
            devices = parts.get("device_ids")
            return self._attribute(
                25, data + (varint(0) if devices is None else flagged(self.attribute(devices, True), True))
            )
        return self._attribute(23, b"".join(varint(self.attribute(parts[part], True)) for part in ("mesh", "axes")))

    # -- locations

    def location(self, place: Location | None) -> int:
        """The name and the file of a place; columns and callers are not kept in a tree."""
        found = self._builtin(15)
        if place is None:
            return found
        if place.file:
            numbers = (self.attribute(place.file, False), place.line, 0)
            found = self._builtin(11, b"".join(map(varint, numbers)))
        if place.name:
            found = self._builtin(14, varint(self.attribute(place.name, False)) + varint(found))
        return found


def _mlir_name(dtype: DType) -> str:
    if dtype.kind == "pred":
        return "i1"
    if dtype.is_integral:
        return f"{'i' if dtype.is_signed else 'ui'}{dtype.bits}"
    return dtype.name


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Typed) else value


def _numbers(values: Any) -> list[int]:
    """Integers of a list, an array or a dense attribute."""
    if isinstance(values, Dense):
        return [int(v) for v in filled(values.array, values.shape).reshape(-1)]
    return [int(_plain(v)) for v in _plain(values)]


def _bits(value: int, width: int) -> bytes:
    """An integer of known width: one byte up to 8 bits, a signed integer up to 64."""
    return bytes([value]) if width <= 8 else signed(value)


def _double(value: float) -> bytes:
    return signed(int(np.array(value, np.float64).view(np.uint64)))


def _one_by_one(array: Any, dtype: DType) -> bytes:
    """Elements one behind the other, those of less than a byte in one each."""
    array = np.ascontiguousarray(array)
    if dtype.kind == "pred":
        return array.astype(np.uint8).tobytes()
    if dtype.bits < 8:
        raw = array.astype(np.int8).view(np.uint8) if dtype.is_integral else array.view(np.uint8)
        return (raw & ((1 << dtype.bits) - 1)).astype(np.uint8).tobytes()
    return array.tobytes()


def _raw(value: Dense) -> bytes:
    """The bytes of a dense attribute: of one element where all are alike, bits where they are of i1."""
    array, dtype = np.asarray(value.array), value.shape.dtype
    if value.shape.size > 1 or array.size > value.shape.size:
        flat = np.ascontiguousarray(array).reshape(-1)
        raw = np.frombuffer(_one_by_one(flat, dtype), np.uint8).reshape(flat.size, -1)
        if (raw == raw[0]).all():
            return (b"\xff" if raw[0, 0] else b"\0") if dtype.kind == "pred" else raw[0].tobytes()
    array = np.ascontiguousarray(filled(array, value.shape)).reshape(-1)
    if dtype.kind == "pred":
        return np.packbits(array, bitorder="little").tobytes()
    return _one_by_one(array, dtype)
