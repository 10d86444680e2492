"""The types that an op's attributes can have.

An attribute is declared as a typed field of the op's class; its `Kind` says what values it takes. Text and proto
each hold one table from kind to reader and writer, so they know attribute types and never ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import index
from typing import Annotated, Any, TypeAlias

import numpy as np

from hlokit.errors import ShapeError
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.groups import ReplicaGroups
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding
from hlokit.types.window import PaddingDimension, Window

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_GREATEST_FLOAT = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Kind:
    """A type of attribute: its name in tables and error messages, and how a value is brought to its one form.

    `expected`: what error messages ask for, where the name does not say it.
    """

    name: str
    normal: Callable[[Any], Any]
    choices: tuple[str, ...] = field(default=())
    expected: str = ""


def _integer(value: Any) -> int:
    """An int64: Python's or NumPy's integers, no float and no text."""
    number = index(value)
    if not _LEAST <= number <= _GREATEST:
        raise ValueError(f"{number} is not an int64")
    return number


def _bool(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_, int)) and value in (0, 1):
        return value == 1
    raise TypeError(f"{value!r} is neither True nor False")


def _float(value: Any) -> float:
    """A number, as a float32."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is text")
    number = float(value)
    if number - number == 0 and abs(number) > _GREATEST_FLOAT:
        raise OverflowError(f"{number} is not a float32")
    return float(np.float32(number))


def _integers(values: Iterable[int]) -> tuple[int, ...]:
    numbers = tuple(map(index, values))
    if numbers and not (min(numbers) >= _LEAST and max(numbers) <= _GREATEST):
        raise ValueError(f"{numbers} are not all int64")
    return numbers


def _padding(values: Iterable[PaddingDimension | tuple[int, ...]]) -> tuple[PaddingDimension, ...]:
    return tuple(v if isinstance(v, PaddingDimension) else PaddingDimension(*_integers(v)) for v in values)


def _ranges(values: Iterable[Iterable[int]]) -> tuple[tuple[int, int, int], ...]:
    return tuple((start, limit, stride) for start, limit, stride in map(_integers, values))


def _aliasing(values: Iterable[tuple[Iterable[int], int, Iterable[int]]]) -> tuple[Any, ...]:
    return tuple((_integers(output), _integer(number), _integers(operand)) for output, number, operand in values)


def _accuracy(value: Iterable[str]) -> tuple[str, ...]:
    parts = (value,) if isinstance(value, str) else tuple(value)
    if parts[:1] != ("tolerance",) and parts not in (("highest",), ("default",)):
        raise ValueError("neither highest nor tolerance")
    if parts[:1] == ("tolerance",) and len(parts) != 4:
        raise ValueError("tolerance has atol, rtol and ulps")
    return parts


def _groups(value: ReplicaGroups | Iterable[Iterable[int]] | None) -> ReplicaGroups:
    return value if isinstance(value, ReplicaGroups) else ReplicaGroups.explicit(() if value is None else value)


def _optional(normal: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else normal(value)


def _instance(cls: type) -> Callable[[Any], Any]:
    def normal(value: Any) -> Any:
        if not isinstance(value, cls):
            raise TypeError(f"expected {cls.__name__}, got {value!r}")
        return value

    return normal


def choice(name: str, *choices: str) -> Kind:
    """An enumeration: one of `choices`, written as a bare word."""

    def normal(value: Any) -> str:
        if value not in choices:
            raise ShapeError("HINST-6", name, value, "one of " + " ".join(choices))
        return value

    return Kind(name, normal, choices)


def _pairs(values: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(_integers(v) for v in values)


def _precisions(values: Iterable[str]) -> tuple[str, ...]:
    """Names in lower case; nothing where all are the default (HATTR-8)."""
    if not values:
        return ()
    names = tuple(v.lower() for v in values)
    for name in names:
        if name not in PRECISIONS:
            raise ShapeError("HATTR-8", "operand_precision", name, "one of " + " ".join(PRECISIONS))
    return names if any(name != "default" for name in names) else ()


INT = Kind("integer", _integer)
OPTIONAL_INT = Kind("integer", _optional(_integer))
BOOL = Kind("bool", _bool)
STABILITY = Kind("bool", _bool)
"""Whether equal elements keep their order: true where a proto does not say, which is as good in any case."""
FLOAT = Kind("float", _float)
STRING = Kind("string", _instance(str))
SHUFFLE_MODE = choice("mode", "rotate")
INT_LIST = Kind("integer list", _integers)
OPTIONAL_INT_LIST = Kind("integer list", _optional(_integers))
SINGLE = Kind("list of one integer", _integer)
OPTIONAL_SINGLE = Kind("list of one integer", _optional(_integer))
SLICE_RANGES = Kind("slice ranges", _ranges)
PADDING = Kind("padding", _padding)
WINDOW = Kind("window", _instance(Window))
CONV_LABELS = Kind("convolution labels", _instance(ConvolutionDimensionNumbers))
OPTIONAL_CONV_LABELS = Kind("convolution labels", _optional(_instance(ConvolutionDimensionNumbers)))
OPTIONAL_WINDOW = Kind("window", _optional(_instance(Window)))
GROUPS = Kind("replica groups", _groups)
PAIRS = Kind("pair list", _pairs)
INT_LISTS = Kind("list of integer lists", _pairs)
SHAPE = Kind("shape", _instance(Shape))
OPTIONAL_SHAPE = Kind("shape", _optional(_instance(Shape)))
SHAPES = Kind("shape list", _optional(tuple))
RESULT_SHAPE = Kind("result shape", _instance(Shape))
LITERAL = Kind("literal", _instance(Literal))
OPTIONAL_LITERAL = Kind("literal with shape", _optional(_instance(Literal)))
ALIASING = Kind("output to operand aliasing", _aliasing)
ACCURACY = Kind("result accuracy", _optional(_accuracy), expected='None, "highest" or ("tolerance", atol, rtol, ulps)')
SHARDING = Kind("sharding", _instance(Sharding))
DOMAIN = Kind("domain", tuple)
PRECISIONS = ("default", "high", "highest", "packed_nibble")
PRECISION = Kind("precision list", _precisions)

Dims: TypeAlias = Annotated[tuple[int, ...], INT_LIST]
"""A list of dimension numbers or sizes, `{0,1}`."""
Single: TypeAlias = Annotated[int, SINGLE]
"""One dimension number, written as a list: `dimensions={1}`."""
ResultShape: TypeAlias = Annotated[Shape, RESULT_SHAPE]
"""The shape written before the opcode, where operands and attributes do not determine it."""
SliceRanges: TypeAlias = Annotated[tuple[tuple[int, int, int], ...], SLICE_RANGES]
"""(start, limit, stride) per dimension."""
Padding: TypeAlias = Annotated[tuple[PaddingDimension, ...], PADDING]
Groups: TypeAlias = Annotated[ReplicaGroups, GROUPS]
Pairs: TypeAlias = Annotated[tuple[tuple[int, int], ...], PAIRS]
Precision: TypeAlias = Annotated[tuple[str, ...], PRECISION]
"""operand_precision: one of PRECISIONS per operand; empty when all are default."""
Aliasing: TypeAlias = Annotated[tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...], ALIASING]
"""(output index, operand number, operand index) triples."""
Accuracy: TypeAlias = Annotated[tuple[str, ...] | None, ACCURACY]
"""result_accuracy: ("highest",) or ("tolerance", atol, rtol, ulps); None is the default."""

KIND_OF_TYPE: dict[Any, Kind] = {
    int: INT,
    int | None: OPTIONAL_INT,
    bool: BOOL,
    float: FLOAT,
    str: STRING,
    Window: WINDOW,
    ConvolutionDimensionNumbers: CONV_LABELS,
    Literal: LITERAL,
    Shape: SHAPE,
    Sharding: SHARDING,
}
"""The kind of an attribute annotated with a plain type."""
