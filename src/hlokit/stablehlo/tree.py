"""StableHLO text as a tree, as it is written: operations with regions, functions, attributes, types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

MAX_RANK = 64
"""Dimensions of a tensor: NumPy's limit."""


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type that HLO does not have, kept as it is written: quantised, a memref, none."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Quantized:
    """!quant.uniform<i8<low:high>:f32:axis, {scale:zero_point, ...}>: integers that stand for numbers.

    An integer q is (q - zero_point) * scale. There is one pair, or one for each index of the dimension `axis`.
    """

    storage: DType
    expressed: DType
    low: int
    high: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """A tensor of quantised elements; `shape` is that of the integers which store it."""

    shape: Shape
    element: Quantized

    def __str__(self) -> str:
        return f"{self.shape} of {self.element.expressed}"


@dataclass(frozen=True, slots=True)
class FunctionType:
    """(inputs) -> results."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]


Type: TypeAlias = "Shape | QuantizedTensor | OtherType | FunctionType"


@dataclass(frozen=True, slots=True)
class Typed:
    """1 : i32, or array<i64: 1, 2>: a number, or several, with the type of each. Where types are kept."""

    value: Any
    type: Type


@dataclass(frozen=True, slots=True)
class Unit:
    """An attribute that only is there. Where types are kept."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """@name: a function or a mesh."""

    name: str


@dataclass(frozen=True, slots=True)
class DialectAttribute:
    """#dialect.name<value>: a dictionary of its parameters, the one word of an enumeration, or else its text.

    text    the whole as it is written, where types are kept
    """

    name: str
    value: Any
    text: str = field(default="", compare=False)


class Dictionary(dict[str, Any]):
    """A dictionary attribute that remembers how it is written."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Dense:
    """The elements of a dense attribute: `array` broadcasts to the type's dimensions."""

    shape: Shape
    array: Any


@dataclass(slots=True)
class Location:
    """The origin of an operation: the name of its location, and the first file in it."""

    name: str = ""
    file: str = ""
    line: int = 0
    alias: str = ""


@dataclass(slots=True)
class Block:
    """Arguments with their types, and operations, the last of which returns."""

    arguments: list[tuple[str, Type]]
    operations: list[Operation]
    start: int


@dataclass(slots=True)
class Operation:
    """An operation, in whichever form it was written.

    results         (name, count) pairs, as bound on the left
    operands        names of values, `%x` or `%x#1`
    attributes      by the names of the generic form, or the shorter ones of the pretty form
    words           what the pretty form writes without a name: directions, kinds, [..] lists
    operand_types   empty where the pretty form leaves them out
    """

    name: str
    start: int
    results: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    operands: list[str] = field(default_factory=list[str])
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    words: list[Any] = field(default_factory=list[Any])
    regions: list[Block | None] = field(default_factory=list["Block | None"])
    operand_types: tuple[Type, ...] = ()
    result_types: tuple[Type, ...] = ()
    place: Location | None = None


@dataclass(slots=True)
class Function:
    """func.func: arguments and results with their attributes; `body` is None for one declared elsewhere.

    visibility  as it is written: "" is public
    attributes  of the function itself
    """

    name: str
    arguments: list[tuple[str, Type]]
    argument_attributes: list[Mapping[str, Any]]
    results: list[Type]
    result_attributes: list[Mapping[str, Any]]
    body: Block | None
    is_public: bool
    start: int
    visibility: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    place: Location | None = None


@dataclass(slots=True)
class Program:
    """A module: its functions and meshes by name, and what else meshes say."""

    name: str = ""
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    meshes: dict[str, Any] = field(default_factory=dict[str, Any])
    mesh_attributes: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    places: dict[str, Location] = field(default_factory=dict[str, Location])
