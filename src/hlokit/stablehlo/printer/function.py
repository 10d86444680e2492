"""The writer of functions: computations as private functions or as regions in place, values by name."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule, StackTables
from hlokit.hlo.names import Names
from hlokit.stablehlo.printer.site import PrintSite, Value, location_text, unsupported
from hlokit.stablehlo.printer.spelling import NoTypeError, results_text, symbol_text, type_text, types_text
from hlokit.types.shape import Shape

_SMALL = 8
"""A computation of so few instructions is written wherever it is called as a region."""
_DEEPEST = 20
"""The depth of nested regions beyond which functions are called instead."""


class Symbols:
    """The names of the functions, and which of them are still to be written."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._names = Names(["main"])
        self._known: dict[Computation, str] = {}
        self.pending: list[Computation] = []
        self._calls: dict[Computation, int] = {}
        for computation in module.all_computations:
            for instruction in computation.instructions:
                for callee in instruction.called:
                    self._calls[callee] = self._calls.get(callee, 0) + 1

    def function(self, computation: Computation) -> str:
        """The symbol of a computation that is to be a function."""
        if computation not in self._known:
            self._known[computation] = self._names.unique(computation.name)
            self.pending.append(computation)
        return symbol_text(self._known[computation])

    def stands_in_place(self, computation: Computation, depth: int) -> bool:
        """A region holds the computation itself, not a call: else text could grow beyond all bounds."""
        if depth >= _DEEPEST:
            return False
        is_small = len(computation) <= _SMALL and not any(i.called for i in computation.instructions)
        return is_small or self._calls.get(computation, 0) <= 1


class FunctionWriter:
    """Writes one function.

    values  the leaves of each instruction's value
    """

    def __init__(self, symbols: Symbols, indent: int = 1) -> None:
        self.symbols = symbols
        self.values: dict[Instruction, Sequence[Value]] = {}
        self.lines: list[str] = []
        self._indent = indent
        self._numbers: dict[str, int] = {}
        self._taken: set[str] = set()
        self._depth = 0

    # -- lines and names

    def line(self, text: str) -> None:
        self.lines.append("  " * self._indent + text)

    @contextmanager
    def indented(self) -> Generator[None]:
        self._indent += 1
        self._depth += 1
        yield
        self._indent -= 1
        self._depth -= 1

    def fresh(self, kind: str = "") -> str:
        """A new name: %0, %1, ..; %c, %c_0, ..; no two of a function are alike."""
        while True:
            number = self._numbers.get(kind, 0)
            self._numbers[kind] = number + 1
            name = str(number) if not kind else f"{kind}_{number - 1}" if number else kind
            if name not in self._taken:
                return f"%{name}"

    def reserve(self, names: Iterable[str]) -> None:
        """Names that `fresh` must not give."""
        self._taken.update(names)

    def bind(self, shapes: Sequence[Shape]) -> tuple[str, list[Value]]:
        """`%0:2 = ` and the values %0#0, %0#1."""
        if not shapes:
            return "", []
        name = self.fresh()
        if len(shapes) == 1:
            return f"{name} = ", [Value(name, shapes[0].logical)]
        return f"{name}:{len(shapes)} = ", [Value(f"{name}#{i}", s.logical) for i, s in enumerate(shapes)]

    def location(self, instruction: Instruction) -> str:
        metadata = instruction.extra.metadata if instruction.extra is not None else None
        if metadata is None:
            return ""
        if metadata.source_file:
            return location_text(metadata, metadata.source_file, metadata.source_line, metadata.source_column)
        return location_text(metadata, *_frame(self.symbols.module.stack_tables, metadata.stack_frame_id))

    # -- computations

    def body(self, computation: Computation, arguments: Sequence[Value]) -> list[Value]:
        """Writes the instructions of a computation on the leaves of its parameters; gives the leaves of its value."""
        from hlokit.stablehlo.printer.mapping import RULES

        rest = iter(arguments)
        for parameter in computation.parameters:
            self.values[parameter] = [next(rest) for _ in parameter.shape.leaves()]
        for instruction in computation.post_order():
            if instruction in self.values and instruction.opcode == "parameter":
                continue
            if instruction.opcode == "constant" and not instruction.users and instruction is not computation.root:
                continue
            site = PrintSite(self, instruction)
            rule = RULES.get(instruction.opcode)
            if rule is None:
                raise site.unsupported("StableHLO has no such operation")
            try:
                self.values[instruction] = list(rule(site))
            except NoTypeError as error:
                raise site.unsupported(str(error)) from None
        return PrintSite(self, computation.root).known(self.values[computation.root])

    def region(self, computation: Computation) -> None:
        """The computation as the block of a region, with arguments."""
        arguments = [Value(self.fresh("arg"), s.logical) for p in computation.parameters for s in p.shape.leaves()]
        if arguments:
            self._indent -= 1
            self.line(f"^bb0({', '.join(f'{a.name}: {type_text(a.shape)}' for a in arguments)}):")
            self._indent += 1
        self.returned(computation, arguments)

    def returned(self, computation: Computation, arguments: Sequence[Value]) -> None:
        """The computation's value on these arguments, returned from a region."""
        if self.symbols.stands_in_place(computation, self._depth):
            results = self.body(computation, arguments)
        else:
            results = self.call(computation, arguments)
        self.line(returned_text("stablehlo.return", results))

    def call(
        self, computation: Computation, arguments: Sequence[Value], location: str = "", marks: str = ""
    ) -> list[Value]:
        """Calls the computation as a function."""
        shapes = list(computation.root.shape.leaves())
        bound, values = self.bind(shapes)
        listed = ", ".join(a.name for a in arguments)
        types = f"({types_text(a.shape for a in arguments)}) -> {results_text(shapes)}"
        parameters = [s for p in computation.parameters for s in p.shape.leaves()]
        for given, wanted in zip(arguments, parameters, strict=True):
            if given.shape is not wanted.logical:
                raise NoTypeError(f"a value of {given.shape} for a parameter of {wanted}")
        self.line(f"{bound}func.call {self.symbols.function(computation)}({listed}){marks} : {types}{location}")
        return values


def private_function(symbols: Symbols, computation: Computation) -> list[str]:
    """The lines of a function that is called."""
    writer = FunctionWriter(symbols, indent=2)
    arguments = [Value(writer.fresh("arg"), s.logical) for p in computation.parameters for s in p.shape.leaves()]
    results = writer.body(computation, arguments)
    for parameter in computation.parameters:
        check_type(parameter)
    listed = ", ".join(f"{a.name}: {type_text(a.shape)}" for a in arguments)
    types = results_text([r.shape for r in results])
    head = f"  func.func private {symbols.function(computation)}({listed}) -> {types} {{"
    writer.line(returned_text("return", results))
    return [head, *writer.lines, "  }"]


def check_type(instruction: Instruction) -> None:
    """Raises UnsupportedError if StableHLO has no type for the instruction's value."""
    try:
        results_text(list(instruction.shape.leaves()))
    except NoTypeError as error:
        raise unsupported(instruction, str(error)) from None


def returned_text(name: str, results: Sequence[Value]) -> str:
    """The last line of a block."""
    if not results:
        return name
    return f"{name} {', '.join(r.name for r in results)} : {types_text(r.shape for r in results)}"


def _frame(tables: StackTables, number: int) -> tuple[str, int, int]:
    """File, line and column of a frame of the module's stack tables."""
    if not 1 <= number <= len(tables.stack_frames):
        return "", 0, 0
    at = tables.stack_frames[number - 1].get("file_location_id", 0)
    if not 1 <= at <= len(tables.file_locations):
        return "", 0, 0
    place = tables.file_locations[at - 1]
    file = place.get("file_name_id", 0)
    if not 1 <= file <= len(tables.file_names):
        return "", 0, 0
    return tables.file_names[file - 1], place.get("line", 0), place.get("column", 0)
