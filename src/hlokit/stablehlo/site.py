"""An operation that is being lowered: its operands as handles, its attributes by type, its regions as computations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hlokit.builder import elementwise
from hlokit.builder.core import Builder, XlaOp
from hlokit.errors import ParseError, UnsupportedError
from hlokit.hlo.computation import Computation
from hlokit.hlo.op import Op
from hlokit.stablehlo.attributes import shape_of
from hlokit.stablehlo.literals import filled
from hlokit.stablehlo.tree import Dense, DialectAttribute, Operation, QuantizedTensor, Symbol
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.stablehlo.scope import Scope

Rule: TypeAlias = "Callable[[Site], XlaOp | Sequence[XlaOp]]"
"""Lowers one operation: gives its result, or a list of its results."""

_MISSING: Any = object()
_MOST = 1_000_000


def _is_promotion(narrow: DType, wide: DType) -> bool:
    """Whether StableHLO lets a reduction of the one type be made in the other."""
    return narrow.kind == wide.kind and narrow.bits < wide.bits


class Site:
    """The operation that a rule lowers, as the rule may ask of it."""

    __slots__ = ("operands", "operation", "scope")

    def __init__(self, scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> None:
        self.scope = scope
        self.operation = operation
        self.operands = list(operands)

    @property
    def builder(self) -> Builder:
        return self.scope.builder

    @property
    def name(self) -> str:
        return self.operation.name

    def emit(self, op: Op, *operands: XlaOp, called: Sequence[Computation] = (), shape: Shape | None = None) -> XlaOp:
        """Appends an instruction."""
        return self.builder.emit(op, operands, called, shape=shape)

    # -- operands and results

    def operand(self, index: int) -> XlaOp:
        if index >= len(self.operands):
            raise self.error(f"{self.name} has {len(self.operands)} operands, too few")
        return self.operands[index]

    def exactly(self, count: int) -> list[XlaOp]:
        """The operands, of which there must be so many."""
        if len(self.operands) != count:
            raise self.error(f"{self.name} takes {count} operands, found {len(self.operands)}")
        return self.operands

    def halves(self) -> tuple[list[XlaOp], list[XlaOp]]:
        """N operands and N more, N >= 1."""
        count = len(self.operands) // 2
        if not count or 2 * count != len(self.operands):
            raise self.error(f"{self.name} takes N and N operands, found {len(self.operands)}")
        return self.operands[:count], self.operands[count:]

    @property
    def results(self) -> list[Shape]:
        """The shapes of the results, as written."""
        return [self.shape(t) for t in self.operation.result_types]

    def result(self, index: int = 0) -> Shape:
        if index >= len(self.operation.result_types):
            raise self.error(f"{self.name}: the type of the result is missing")
        return self.shape(self.operation.result_types[index])

    def array_result(self) -> Shape:
        """The one result's shape: an array of known sizes or bounds."""
        shape = self.result()
        if not shape.is_array:
            raise self.error(f"{self.name}: {shape} is not an array")
        if shape.is_unbounded:
            raise self.unsupported(f"the sizes of its result {shape} are not known")
        return shape

    def shape(self, type: Any) -> Shape:
        found = shape_of(type)
        if found is None:
            raise self.unsupported(f"the type {type} is not supported")
        return found

    def check_type(self, written: Any, handle: XlaOp, what: str) -> None:
        """The type that is written for a value has to be its own."""
        self.scope.check_type(written, handle, f"{self.name}: {what}", self.operation.start)

    def unpacked(self, handle: XlaOp, count: int | None = None) -> list[XlaOp]:
        """The elements of a result that is a tuple where there are several."""
        if count == 1 or not handle.shape.is_tuple:
            return [handle]
        return list(handle)

    # -- attributes

    def has(self, *names: str) -> bool:
        return any(name in self.operation.attributes for name in names)

    def get(self, *names: str, default: Any = _MISSING) -> Any:
        """The attribute of the first of these names that is there."""
        for name in names:
            if name in self.operation.attributes:
                return self.operation.attributes[name]
        if default is _MISSING:
            raise self.error(f"{self.name}: the attribute {names[0]} is missing")
        return default

    def listed(self, name: str) -> list[Any]:
        """A list of attributes; empty where there is none."""
        value = self.get(name, default=[])
        if not isinstance(value, list):
            raise self.error(f"{self.name}: {name} is not a list")
        return value  # pyright: ignore[reportUnknownVariableType]

    def integer(self, *names: str, default: Any = _MISSING) -> int:
        value = self.get(*names, default=default)
        value = value.array.item() if isinstance(value, Dense) and value.array.size == 1 else value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{self.name}: {names[0]} is not an integer")
        if not -(2**63) <= value < 2**63:
            raise self.error(f"{self.name}: {names[0]} does not fit 64 bits")
        return value

    def number(self, *names: str) -> float:
        value = self.get(*names)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(f"{self.name}: {names[0]} is not a number")
        return float(value)

    def boolean(self, *names: str, default: Any = _MISSING) -> bool:
        value = self.get(*names, default=default)
        if value not in (True, False):
            raise self.error(f"{self.name}: {names[0]} is neither true nor false")
        return bool(value)

    def string(self, *names: str, default: Any = _MISSING) -> str:
        value = self.get(*names, default=default)
        if not isinstance(value, str):
            raise self.error(f"{self.name}: {names[0]} is not a string")
        return value

    def word(self, *names: str, default: Any = _MISSING) -> str:
        """An enumeration's value: #stablehlo<kind WORD>, or the bare word of the pretty form."""
        value = self.get(*names, default=default)
        value = value.value if isinstance(value, DialectAttribute) else value
        if not isinstance(value, str):
            raise self.error(f"{self.name}: {names[0]} is not a word")
        return value

    def symbol(self, *names: str) -> str:
        value = self.get(*names, default=next((w for w in self.operation.words if isinstance(w, Symbol)), None))
        if not isinstance(value, Symbol):
            raise self.error(f"{self.name}: {names[0]} is not an @symbol")
        return value.name

    def integers(self, *names: str, default: Any = _MISSING) -> tuple[int, ...]:
        """A list of integers: array<i64: ...>, dense<[...]> or [...]."""
        return self.as_integers(self.get(*names, default=default), names[0])

    def as_integers(self, value: Any, name: str) -> tuple[int, ...]:
        if isinstance(value, (list, tuple)):
            listed: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
            if all(type(v) is int and abs(v) < 2**63 for v in listed):
                return tuple(listed)
        array = self.as_array(value, name)
        return tuple(map(int, array.reshape(-1)))

    def each_integer(self, values: Sequence[Any], name: str) -> tuple[int, ...]:
        """Integers that stand one by one, each of which may be a tensor of one element."""
        found = [self.as_integers([value], name) for value in values]
        if any(len(one) != 1 for one in found):
            raise self.error(f"{self.name}: {name} is not an integer")
        return tuple(one[0] for one in found)

    def matrix(self, *names: str, default: Any = _MISSING) -> list[tuple[int, ...]]:
        """A list of lists of integers of one length."""
        array = self.as_array(self.get(*names, default=default), names[0])
        if array.size == 0:
            return []
        if array.ndim == 1 and array.size % 2 == 0:  # padding of old texts
            array = array.reshape(-1, 2)
        if array.ndim != 2:
            raise self.error(f"{self.name}: {names[0]} is not a list of lists")
        return [tuple(map(int, row)) for row in array]

    def pairs(self, *names: str, default: Any = _MISSING) -> list[tuple[int, int]]:
        """A list of pairs of integers."""
        rows = self.matrix(*names, default=default)
        if any(len(row) != 2 for row in rows):
            raise self.error(f"{self.name}: {names[0]} is not a list of pairs")
        return [(row[0], row[1]) for row in rows]

    def as_array(self, value: Any, name: str) -> np.ndarray[Any, Any]:
        if isinstance(value, Dense):
            if value.shape.size > _MOST:
                raise self.error(f"{self.name}: {name} is too long")
            value = filled(value.array, value.shape)
            if value.dtype == np.int64:
                return value
        try:
            array: np.ndarray[Any, Any] = np.array(value, dtype=object)
            integral = all(isinstance(v, (int, np.integer, np.bool_)) for v in array.flat)
            if integral:
                return array.astype(np.int64)
        except (ValueError, OverflowError, TypeError):
            pass
        raise self.error(f"{self.name}: {name} is not a list of integers")

    def booleans(self, *names: str, default: Any = _MISSING) -> tuple[bool, ...]:
        return tuple(map(bool, self.integers(*names, default=default)))

    def parameters(self, *names: str) -> dict[str, Any]:
        """The parameters of an attribute such as #stablehlo.gather<...>."""
        return self.as_parameters(self.get(*names), names[0])

    def as_parameters(self, value: Any, name: str) -> dict[str, Any]:
        value = value.value if isinstance(value, DialectAttribute) else value
        if value == "":
            return {}
        if not isinstance(value, dict):
            raise self.error(f"{self.name}: {name} has no parameters")
        return value  # pyright: ignore[reportUnknownVariableType]

    def ranges(self) -> list[tuple[int, ...]] | None:
        """The [0:4:2, 1] of the pretty form."""
        for word in self.operation.words:
            if isinstance(word, list):
                return word  # pyright: ignore[reportUnknownVariableType]
        return None

    # -- regions

    def computation(self, index: int, parameters: Sequence[Shape], name: str = "region") -> Computation:
        """A region as a computation of these parameters; of what is outside it may use constants alone."""
        return self.scope.computation(self.region(index), parameters, name, self)

    def region(self, index: int) -> Any:
        regions = self.operation.regions
        block = regions[index] if index < len(regions) else None
        if block is None:
            raise self.error(f"{self.name} has {len(regions)} regions, too few")
        return block

    def promoted(self, operands: Sequence[XlaOp], index: int = 0) -> list[XlaOp]:
        """Each operand, an array of reduction, in the type in which the region reduces it, which may be wider."""
        declared = [t for _, t in self.region(index).arguments]
        if any(isinstance(t, QuantizedTensor) for t in declared):
            return list(operands)
        types = list(map(self.shape, declared))
        types = types[: len(operands)] if len(types) >= len(operands) else [types[0]] * len(operands) if types else []
        return [
            elementwise.convert_element_type(operand, wide.dtype)
            if wide.is_array and operand.shape.is_array and _is_promotion(operand.dtype, wide.dtype)
            else operand
            for operand, wide in zip(operands, types, strict=True)
        ] or list(operands)

    def reducer(self, operands: Sequence[XlaOp], index: int = 0) -> Computation:
        """The region of a reduction: two scalars of each operand's type."""
        scalars = [o.dtype[()] if o.shape.is_array else o.shape for o in operands]
        declared = [self.shape(t) for _, t in self.region(index).arguments]
        return self.computation(index, declared if len(declared) == 2 * len(scalars) else [*scalars, *scalars])

    # -- constants

    def constant(self, index: int) -> np.ndarray[Any, Any] | None:
        """The value of an operand that depends on no argument; else None."""
        return self.scope.constant(self.operand(index))

    def known(self, index: int, what: str) -> tuple[int, ...]:
        """The integers of an operand that must be constant."""
        value = self.constant(index)
        if value is None or value.dtype.kind not in "iu":
            raise self.unsupported(f"{what} that are not known before the program runs")
        return tuple(map(int, value.reshape(-1)))

    # -- errors

    def error(self, message: str, label: str | None = None) -> ParseError:
        return self.scope.lexer.error(message, self.operation.start, label)

    def unsupported(self, message: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: {self.name}: {message}")

    @property
    def where(self) -> str:
        """The text by which an error that is not a ParseError names the operation's position."""
        return self.scope.lexer.where(self.operation.start)
