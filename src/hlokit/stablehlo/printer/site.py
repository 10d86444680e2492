"""An instruction that is being printed: its operands as MLIR values, and the ways to write operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlokit.errors import UnsupportedError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction, Metadata
from hlokit.stablehlo.printer.spelling import (
    dictionary_text,
    list_text,
    results_text,
    string_text,
    type_text,
    types_text,
)
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.stablehlo.printer.function import FunctionWriter


class Value(NamedTuple):
    """A value of MLIR: `%x` and its shape. A part of an asynchronous state that nothing computes has no name."""

    name: str
    shape: Shape


Rule: TypeAlias = "Callable[[PrintSite], Sequence[Value]]"
"""Writes one instruction: gives the leaves of its result, in order."""


class PrintSite:
    """The instruction that a rule prints, as the rule may ask of it.

    HLO's tuples exist only here: a value of a tuple's shape is the list of its leaves.
    """

    __slots__ = ("instruction", "into")

    def __init__(self, into: FunctionWriter, instruction: Instruction) -> None:
        self.into = into
        self.instruction = instruction

    # -- what is printed

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def leaves(self) -> list[Shape]:
        """The shapes of the result's leaves."""
        return list(self.shape.leaves())

    def operand(self, index: int = 0) -> Value:
        """An operand that is not a tuple."""
        (value,) = self.parts(index)
        return value

    @property
    def operands(self) -> list[Value]:
        """The leaves of all operands."""
        return [value for i in range(len(self.instruction.operands)) for value in self.parts(i)]

    def parts(self, index: int) -> list[Value]:
        """The leaves of an operand."""
        return self.known(self.states(index))

    def states(self, index: int) -> Sequence[Value]:
        """The leaves of an operand, of which some may have no name."""
        return self.into.values[self.instruction.operands[index]]

    def packed(self, index: int) -> Value:
        """An operand as one value: a tuple is made anew of its leaves."""
        return self._pack(self.instruction.operands[index].shape, iter(self.parts(index)))

    def _pack(self, shape: Shape, leaves: Iterator[Value]) -> Value:
        """One value of the next leaves."""
        if not shape.is_tuple:
            return next(leaves)
        elements = [self._pack(element, leaves) for element in shape.elements]
        return self.short("stablehlo.tuple", elements, Shape.tuple(e.shape for e in elements), types="result")

    def unpack(self, value: Value) -> list[Value]:
        """The leaves of a value of MLIR that is a tuple."""
        if not value.shape.is_tuple:
            return [value]
        found: list[Value] = []
        for i, element in enumerate(value.shape.elements):
            part = self.short("stablehlo.get_tuple_element", [value], element, f"[{i}]", types="function")
            found += self.unpack(part)
        return found

    def known(self, values: Sequence[Value]) -> list[Value]:
        """The values, with a constant for those that have no name."""
        return [value if value.name else self.zeros(value.shape) for value in values]

    # -- operations

    def short(
        self,
        name: str,
        operands: Sequence[Value],
        result: Shape | None = None,
        middle: str = "",
        attributes: Mapping[str, str] | None = None,
        types: str = "",
        between: str = ", ",
    ) -> Value:
        """Writes the pretty form with one result: `%0 = name %a, %b MIDDLE {attributes} : types`.

        result  a shape other than the instruction's, which alone carries sharding and frontend attributes
        types   "function" or "result"; by default the result's alone where all operands are of its type
        """
        shape = self.shape if result is None else result
        written = {**(attributes or {}), **(self.marks() if result is None else {})}
        is_one = types == "result" or (types != "function" and all(o.shape.logical is shape.logical for o in operands))
        target = self.into.fresh()
        listed = between.join(operand.name for operand in operands)
        line = f"{target} = {name}{' ' if listed else ''}{listed}{middle}"
        line += f" {dictionary_text(written)}" if written else ""
        line += " : " + (
            type_text(shape) if is_one else f"({types_text(o.shape for o in operands)}) -> {type_text(shape)}"
        )
        self.into.line(line + self.location())
        return Value(target, shape.logical)

    def chlo(self, name: str, operands: Sequence[Value]) -> Value:
        """Writes the pretty form of chlo's functions: `chlo.erf %x : type -> type`."""
        target = self.into.fresh()
        line = f"{target} = {name} {', '.join(o.name for o in operands)}{self.marks_text()}"
        self.into.line(f"{line} : {types_text(o.shape for o in operands)} -> {type_text(self.shape)}{self.location()}")
        return Value(target, self.shape.logical)

    def applied(self, name: str, operands: Sequence[Value], middle: str, attributes: Mapping[str, str]) -> Value:
        """Writes `%0 = name(%a, %b) MIDDLE {attributes} : (types) -> type`."""
        target = self.into.fresh()
        line = f"{target} = {name}({', '.join(o.name for o in operands)}){middle}"
        line += f" {dictionary_text({**attributes, **self.marks()})}"
        types = f"({types_text(o.shape for o in operands)}) -> {type_text(self.shape)}"
        self.into.line(f"{line} : {types}{self.location()}")
        return Value(target, self.shape.logical)

    def chosen(self, name: str, pred: Value, on_true: Value, on_false: Value) -> Value:
        """Writes a select: `pred type, type` where both values and the result are of one type."""
        shapes = {on_true.shape, on_false.shape, self.shape.logical}
        if len(shapes) > 1:
            return self.short(name, [pred, on_true, on_false], types="function")
        target = self.into.fresh()
        line = f"{target} = {name} {pred.name}, {on_true.name}, {on_false.name}{self.marks_text()}"
        self.into.line(f"{line} : {type_text(pred.shape)}, {type_text(self.shape)}{self.location()}")
        return Value(target, self.shape.logical)

    def generic(
        self,
        name: str,
        operands: Sequence[Value],
        results: Sequence[Shape] | None = None,
        properties: Mapping[str, str] | None = None,
        regions: Sequence[Callable[[], None]] = (),
        attributes: Mapping[str, str] | None = None,
    ) -> list[Value]:
        """Writes the generic form: `%0:2 = "name"(%a, %b) <{properties}> ({region}) {attributes} : types`."""
        shapes = self.leaves if results is None else list(results)
        marks = {**(attributes or {}), **(self.marks() if results is None else {})}
        bound, values = self.into.bind(shapes)
        head = f'{bound}"{name}"({", ".join(o.name for o in operands)})'
        head += f" <{dictionary_text(properties)}>" if properties else ""
        tail = f" {dictionary_text(marks)}" if marks else ""
        tail += f" : ({types_text(o.shape for o in operands)}) -> {results_text(shapes)}{self.location()}"
        if not regions:
            self.into.line(head + tail)
            return values
        self.into.line(f"{head} ({{")
        for number, region in enumerate(regions):
            if number:
                self.into.line("}, {")
            with self.into.indented():
                region()
        self.into.line("})" + tail)
        return values

    def region(self, number: int = 0) -> Callable[[], None]:
        """The region that is a called computation, with arguments of its parameters' leaves."""
        computation = self.instruction.called[number]
        return lambda: self.into.region(computation)

    def branch(self, number: int, values: Sequence[Value]) -> Callable[[], None]:
        """The region without arguments that is a called computation on these values."""
        computation = self.instruction.called[number]
        return lambda: self.into.returned(computation, values)

    @property
    def called(self) -> Sequence[Computation]:
        return self.instruction.called

    # -- constants

    def dense(self, content: str, shape: Shape, *, is_own: bool = False) -> Value:
        """Writes a constant."""
        marks = self.marks() if is_own else {}
        target = self.into.fresh("cst" if shape.dtype.is_floating or shape.dtype.is_complex else "c")
        middle = f" {dictionary_text(marks)}" if marks else ""
        line = f"{target} = stablehlo.constant{middle} {content} : {type_text(shape)}"
        self.into.line(line + self.location())
        return Value(target, shape.logical)

    def integers(self, values: Sequence[int], dtype: DType) -> Value:
        """A vector of integers."""
        return self.dense(f"dense<{list_text(values) if values else ''}>", dtype[len(values)])

    def zeros(self, shape: Shape) -> Value:
        """A constant that nothing looks at."""
        if not shape.is_array:
            return self.short("stablehlo.create_token", [], shape)
        zero = {"pred": "false", "complex": "(0.0, 0.0)", "floating": "0.0"}.get(shape.dtype.kind, "0")
        return self.dense(f"dense<{zero}>", shape)

    # -- what does not change the value

    def marks(self) -> dict[str, str]:
        """Sharding and frontend attributes."""
        return marks_of(self.instruction)

    def marks_text(self) -> str:
        """The marks as a dictionary after a blank; nothing where there are none."""
        marks = self.marks()
        return f" {dictionary_text(marks)}" if marks else ""

    def location(self) -> str:
        """The origin of the instruction: loc("op_name"("file":line:column))."""
        return self.into.location(self.instruction)

    def unsupported(self, message: str) -> UnsupportedError:
        return unsupported(self.instruction, message)


def unsupported(instruction: Instruction, message: str) -> UnsupportedError:
    """The error that names an instruction and its opcode."""
    return UnsupportedError(f"{instruction.name} = {instruction.opcode}(...): {message}")


def marks_of(instruction: Instruction) -> dict[str, str]:
    """The sharding and the frontend attributes of a value."""
    extra = instruction.extra
    if extra is None:
        return {}
    marks: dict[str, str] = {}
    if extra.frontend_attributes:
        given = {name: string_text(value) for name, value in sorted(extra.frontend_attributes.items())}
        marks["mhlo.frontend_attributes"] = dictionary_text(given)
    if extra.sharding is not None:
        marks["mhlo.sharding"] = string_text(str(extra.sharding))
    return marks


def location_text(metadata: Metadata, file: str, line: int, column: int) -> str:
    """loc("name"("file":1:2)), or one of the two alone."""
    place = f"{string_text(file)}:{line}:{column}" if file else ""
    if not metadata.op_name:
        return f" loc({place})" if place else ""
    return f" loc({string_text(metadata.op_name)}{f'({place})' if place else ''})"
