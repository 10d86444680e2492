"""The codes of MLIR's builtin dialect."""

from __future__ import annotations

from typing import Any

from hlokit.errors import UnsupportedError
from hlokit.stablehlo.artifact.cursor import Cursor
from hlokit.stablehlo.artifact.entries import Codec, Entries, Steps
from hlokit.stablehlo.tree import Dictionary, FunctionType, Location, OtherType, Symbol, Type
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DTYPES, DType
from hlokit.types.shape import Shape

# -- attributes


class NumberedDictionary(Dictionary):
    """A dictionary with the numbers of its values."""

    numbers: dict[str, int]


def dictionary(entries: Entries, cursor: Cursor) -> NumberedDictionary:
    """Pairs of a name, which is an attribute, and a value."""
    found = NumberedDictionary()
    found.numbers = {}
    for _ in range(cursor.varint()):
        name, number = entries.inner(cursor), cursor.varint()
        if not isinstance(name, str):
            raise cursor.error("a name that is not a string")
        found.numbers[name] = number
        found[name] = entries.attribute(number, cursor)
    return found


def _typed_string(entries: Entries, cursor: Cursor) -> str:
    text = entries.string(cursor)
    entries.inner_type(cursor)
    return text


def _symbol(entries: Entries, cursor: Cursor) -> Symbol:
    name = entries.inner(cursor)
    if not isinstance(name, str):
        raise cursor.error("a symbol's name that is not a string")
    return Symbol(name)


def _nested_symbol(entries: Entries, cursor: Cursor) -> Symbol:
    root = _symbol(entries, cursor)
    rest = entries.inner_list(cursor)
    if not all(isinstance(part, Symbol) for part in rest):
        raise cursor.error("a symbol's part that is not a symbol")
    return Symbol("::".join([root.name, *(part.name for part in rest)]))


def _array(entries: Entries, cursor: Cursor) -> tuple[Any, ...]:
    """array<i64: 1, 2>: a type, how many, and their bytes."""
    kind, count = entries.inner_type(cursor), cursor.varint()
    data = cursor.take(cursor.varint())
    if not isinstance(kind, Shape) or not kind.is_array:
        raise UnsupportedError(f"byte {cursor.offset}: an array of {kind}")
    width = kind.dtype.numpy.itemsize
    if len(data) != count * width:
        raise cursor.error(f"{len(data)} bytes for {count} of {kind}")
    if not count:
        return ()
    if kind.dtype.is_integral:
        parts = (data[i : i + width] for i in range(0, len(data), width))
        return tuple(int.from_bytes(part, "little", signed=kind.dtype.is_signed) for part in parts)
    return tuple(entries.dense(cursor, kind.dtype[count], data).array.reshape(-1).tolist())


def _dense(entries: Entries, cursor: Cursor) -> Any:
    kind = entries.inner_type(cursor)
    return entries.dense(cursor, kind, cursor.take(cursor.varint()))


def _resource(entries: Entries, cursor: Cursor) -> Any:
    kind, index = entries.inner_type(cursor), cursor.varint()
    resources = entries.container.resources
    data = resources[index] if index < len(resources) else None
    if data is None:
        raise cursor.error(f"resource {index} of {len(resources)} is not a blob")
    return entries.dense(cursor, kind, data)


# -- locations


def place_of(value: Any, cursor: Cursor) -> Location:
    """An attribute that must be a location."""
    if not isinstance(value, Location):
        raise cursor.error("a location that is none")
    return value


def _call_site(entries: Entries, cursor: Cursor) -> Steps:
    callee = place_of((yield cursor.varint()), cursor)
    place_of((yield cursor.varint()), cursor)
    return callee


def _file(entries: Entries, cursor: Cursor) -> Location:
    name, line, _ = cursor.varints(3)
    return _in_file(entries.attribute(name, cursor), line, cursor)


def _file_range(entries: Entries, cursor: Cursor) -> Location:
    name = entries.inner(cursor)
    numbers = cursor.varints(cursor.varint())
    return _in_file(name, numbers[0] if numbers else 0, cursor)


def _in_file(name: Any, line: int, cursor: Cursor) -> Location:
    if not isinstance(name, str) or line >= 2**31:
        raise cursor.error("a place in a file that is none")
    return Location("", name, line)


def _fused(entries: Entries, cursor: Cursor) -> Steps:
    places: list[Location] = []
    for number in cursor.varints(cursor.varint()):
        places.append(place_of((yield number), cursor))
    return places[0] if places else Location()


def _fused_with_metadata(entries: Entries, cursor: Cursor) -> Steps:
    place = yield from _fused(entries, cursor)
    entries.inner(cursor)
    return place


def _name(entries: Entries, cursor: Cursor) -> Steps:
    name, child = entries.inner(cursor), place_of((yield cursor.varint()), cursor)
    if not isinstance(name, str):
        raise cursor.error("a location's name that is not a string")
    return Location(name, child.file, child.line)


ATTRIBUTES: dict[int, Codec] = {
    0: Entries.inner_list,
    1: dictionary,
    2: Entries.string,
    3: _typed_string,
    4: _symbol,
    5: _nested_symbol,
    6: Entries.inner_type,
    7: lambda entries, cursor: True,
    8: Entries.integer,
    9: Entries.float,
    10: _call_site,
    11: _file,
    12: _fused,
    13: _fused_with_metadata,
    14: _name,
    15: lambda entries, cursor: Location(),
    16: _resource,
    17: _array,
    18: _dense,
    22: _file_range,
}

# -- types


def fixed(element: DType | str) -> Codec:
    """A type that is its code alone."""
    found: Type = element[()] if isinstance(element, DType) else OtherType(element)
    return lambda entries, cursor: found


def _integer(entries: Entries, cursor: Cursor) -> Type:
    """Its width, and in the two lowest bits whether it is signless, signed or unsigned."""
    code = cursor.varint()
    width, signedness = code >> 2, code & 3
    if width == 1 and not signedness:
        return dtypes.pred[()]
    element = DTYPES.get(f"{'u' if signedness == 2 else 's'}{width}")
    return element[()] if element is not None else OtherType(f"{('', 's', 'u', '')[signedness]}i{width}")


def function_type(entries: Entries, cursor: Cursor) -> FunctionType:
    inputs = entries.inner_types(cursor)
    return FunctionType(tuple(inputs), tuple(entries.inner_types(cursor)))


def tensor(entries: Entries, cursor: Cursor) -> Type:
    sizes = cursor.signed_list()
    return entries.tensor(cursor, sizes, entries.inner_type(cursor))


def tensor_with_encoding(entries: Entries, cursor: Cursor) -> Type:
    encoding = entries.inner(cursor)
    sizes = cursor.signed_list()
    return entries.tensor(cursor, sizes, entries.inner_type(cursor), encoding)


def unranked(entries: Entries, cursor: Cursor) -> Type:
    raise UnsupportedError(f"byte {cursor.offset}: tensors without a rank are not supported")


TYPES: dict[int, Codec] = {
    0: _integer,
    1: fixed(dtypes.s64),
    2: function_type,
    3: fixed(dtypes.bf16),
    4: fixed(dtypes.f16),
    5: fixed(dtypes.f32),
    6: fixed(dtypes.f64),
    7: fixed("f80"),
    8: fixed("f128"),
    9: Entries.complex,
    12: fixed("none"),
    13: tensor,
    14: tensor_with_encoding,
    15: Entries.tuple,
    18: unranked,
    21: fixed("tf32"),
    22: fixed(dtypes.f8e5m2),
    23: fixed(dtypes.f8e4m3),
    24: fixed(dtypes.f8e4m3fn),
    25: fixed(dtypes.f8e5m2fnuz),
    26: fixed(dtypes.f8e4m3fnuz),
    27: fixed(dtypes.f8e4m3b11fnuz),
    28: fixed(dtypes.f8e3m4),
    29: fixed(dtypes.f4e2m1fn),
    30: fixed(dtypes.f6e2m3fn),
    31: fixed(dtypes.f6e3m2fn),
    32: fixed(dtypes.f8e8m0fnu),
}
