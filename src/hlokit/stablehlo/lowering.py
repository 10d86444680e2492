"""The tree of a StableHLO module to an HloModule: functions and regions become computations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hlokit.builder.control import tuple_
from hlokit.builder.core import Builder, XlaOp
from hlokit.errors import ArgumentError, HlokitError, ParseError, ShapeError, UnsupportedError, VerifyError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import Alias, HloModule
from hlokit.hlo.verifier import verify
from hlokit.ops.elementwise import Copy
from hlokit.stablehlo.attributes import shape_of
from hlokit.stablehlo.lexer import MlirLexer
from hlokit.stablehlo.manual import prioritize
from hlokit.stablehlo.parser import parse_program
from hlokit.stablehlo.partial import Terms
from hlokit.stablehlo.scope import Scope, fits
from hlokit.stablehlo.shardings import groups_to_sum, mesh_of, placement_of, sharding_of
from hlokit.stablehlo.tree import DialectAttribute, Function, Operation, Program, QuantizedTensor, Symbol
from hlokit.text.printer import PrintOptions
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

_Array: TypeAlias = np.ndarray[Any, Any]

_MOST_SPECIAL = 1_000
"""Functions that are made anew for other sizes, beside four of each that the text has."""
_MOST_INLINED = 10_000
"""Operations of functions that take the place of calls."""
_OWN_CHANNELS = 1 << 20
"""Above the channels that programs name themselves."""
MEMORY_KINDS = "hlokit.result_memory_kinds"
"""The frontend attribute that names the memory of each result, where a program asks for one: a list with commas."""
OTHER_LAYOUT = "hlokit.layout"
"""The frontend attribute that names the first value for which a program asks for a layout that is not row-major."""
GLOBAL_VALUES = {"hlokit.values": "global"}
"""Frontend attributes of a module of several partitions that runs on whole values: shardings are only kept."""


class UnknownSizes(UnsupportedError):
    """The entry has arguments of unknown sizes. `parameters`: names and types of all."""

    def __init__(self, message: str, parameters: Sequence[tuple[str, Any]]) -> None:
        super().__init__(message)
        self.parameters = parameters


def parse_stablehlo(
    text: str, arguments: Sequence[Shape] | None = None, keeps_regions: bool = False, entry: str | None = None
) -> HloModule:
    """The module that a StableHLO text says. Its entry is the function `entry`; by default main, or the public one.

    `arguments`: the shapes of the entry's arguments, for those of unknown sizes; all others follow from them.
    `keeps_regions`: regions that devices run by themselves begin and end in custom calls that `hlokit.partition`
    understands, and all shardings are kept by the axes of meshes; else the program runs as it is, on whole values.
    Raises ArgumentError for shapes that the entry does not take; ParseError with line, column and caret for what is
    no legal StableHLO; UnsupportedError, naming line and operation, type or attribute, for what is legal and not
    supported.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ParseError(f"no UTF-8: {error.reason}", line=text.count("\n", 0, error.start) + 1, column=1) from None
    return lowered(*parse_program(text), arguments, keeps_regions, entry)


def lowered(
    program: Program,
    lexer: MlirLexer,
    arguments: Sequence[Shape] | None = None,
    keeps_regions: bool = False,
    entry: str | None = None,
) -> HloModule:
    """The module that a tree of operations is, for arguments of these shapes; `lexer` places its errors."""
    lowering = Lowering(program, lexer, keeps_regions)
    module = lowering.module(arguments, lowering.function_called(entry) if entry is not None else None)
    if module.replica_count * module.num_partitions > 1:  # groups of devices are known to fit only now
        try:
            verify(module)
        except VerifyError as error:
            raise lexer.error(error.findings[0], 0) from None
    return module


class Lowering:
    """Functions by name and the shapes of their arguments, each lowered once."""

    def __init__(self, program: Program, lexer: MlirLexer, keeps_regions: bool = False) -> None:
        self.program = program
        self.keeps_regions = keeps_regions
        self.lexer = lexer
        self._done: dict[tuple[Any, ...], Computation] = {}
        self._open: set[tuple[Any, ...]] = set()
        self.depth = 0
        self.work: dict[Computation, int] = {}
        self.partitions = self._count("mhlo.num_partitions", self._mesh_size())
        self.replicas = self._count("mhlo.num_replicas", 1)
        self._is_sharded = False
        self.is_dynamic = self.is_quantized = False
        for written in _types(program):
            self.is_quantized = self.is_quantized or isinstance(written, QuantizedTensor)
            self.is_dynamic = self.is_dynamic or (isinstance(written, Shape) and written.is_unbounded)
        self._channels: dict[tuple[Any, ...], int] = {}
        self._handles: dict[int, tuple[Any, ...]] = {}
        self.terms = Terms(self.partitions, self.replicas, self.channel)
        is_unreduced = bool(program.meshes) and any("unreduced" in text for text in _placements(program))
        self.is_unreduced = is_unreduced and not keeps_regions
        self._inlined = 0
        self.other_layout = ""
        self.is_process = False
        """Whether it is one of a grid of processes: what these send to the host another receives."""

    def module(self, arguments: Sequence[Shape] | None = None, main: Function | None = None) -> HloModule:
        main = main or self._main()
        shapes = self._arguments(main, arguments)
        for function in self._callees_first(main):
            types = [t for _, t in function.arguments]
            known = [t for t in types if isinstance(t, Shape) and not t.is_unbounded]
            if function is not main and len(known) == len(types) and not self.is_dynamic and not self.is_unreduced:
                self.function(function.name, known, function.start)
        scope = Scope(self, Builder(self.program.name or main.name, source_info=False))
        self._parameters(scope, main, shapes, is_entry=True)
        results = scope.results(main.body, main.results, main.start)
        root = self._root(scope.builder, main, results)
        scope.builder.computation.name = main.name
        self._alias(scope.builder, main, results)
        try:
            module = scope.builder.build(root)
        except HlokitError as error:
            raise self.lexer.error(str(error), main.start) from None
        self.terms.remove_unused()
        module.num_partitions, module.replica_count = self.partitions, self.replicas
        given = self.program.attributes.get("mhlo.frontend_attributes")
        if isinstance(given, dict):
            module.frontend_attributes.update({k: v for k, v in given.items() if isinstance(v, str)})  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]
        if self.partitions > 1 and self._is_sharded:
            module.frontend_attributes.update(GLOBAL_VALUES)
        listed = (("argument", main.argument_attributes, shapes), ("result", main.result_attributes, _shapes(results)))
        for what, each, of in listed:
            for i, (attributes, shape) in enumerate(zip(each, of, strict=True)):
                self.ask_for_layout(f"{what} {i}", shape, attributes.get("mhlo.layout_mode"))
        if self.other_layout:
            module.frontend_attributes[OTHER_LAYOUT] = self.other_layout
        kinds = [str(attributes.get("mhlo.memory_kind", "device")) for attributes in main.result_attributes]
        if any(kind != "device" for kind in kinds):
            module.frontend_attributes[MEMORY_KINDS] = ",".join(kinds)
        return module

    def program_of(self, name: str, shapes: Sequence[Shape], counts: tuple[int, int], start: int) -> str:
        """A module whose entry is a function, for (replicas, partitions), as HLO text."""
        function = self.program.functions.get(name)
        if function is None or function.body is None:
            raise self.lexer.error(f"the function @{name} is not defined", start)
        inner = Lowering(self.program, self.lexer, self.keeps_regions)
        inner.replicas, inner.partitions = counts
        inner.is_process = True
        inner.depth = self.depth + 4
        return inner.module(shapes, function).to_text(PrintOptions(print_large_constants=True))

    def channel(self, handle: int, *rendezvous: Any) -> int:
        """The channel of a collective that is written with this handle: HLO's serves one rendezvous (GRP-6).

        `rendezvous`: the kind of the collective and its groups. The first that has a handle keeps it; another gets a
        number that is not written anywhere near.
        """
        key = (handle, *rendezvous)
        if key not in self._channels:
            first = self._handles.setdefault(handle, key) == key
            self._channels[key] = handle if first else _OWN_CHANNELS + len(self._channels)
        return self._channels[key]

    def _main(self) -> Function:
        functions = self.program.functions
        public = [f for f in functions.values() if f.is_public and f.body is not None]
        if "main" not in functions and len(public) != 1:
            count = f"{len(public)} are public: {_listed(public)}" if public else "none is public"
            raise self.lexer.error(f"no function is called main, and {count}; entry= (convert --entry) chooses one", 0)
        return self._with_body(functions.get("main") or public[0])

    def function_called(self, name: str) -> Function:
        """The function of this name. Raises ArgumentError if there is none."""
        function = self.program.functions.get(name.removeprefix("@"))
        if function is None:
            found = _listed(self.program.functions.values())
            raise ArgumentError(f"entry: no function is called {name!r}; found {found}")
        return self._with_body(function)

    def _with_body(self, function: Function) -> Function:
        if function.body is None:
            raise self.lexer.error(f"the function @{function.name} has no body", function.start)
        return function

    def _mesh_size(self) -> int:
        """The devices of the largest mesh: as many partitions there are where the module does not say."""
        try:
            return max((mesh_of(mesh).size for mesh in self.program.meshes.values()), default=1)
        except ShapeError as error:
            raise self.lexer.error(f"sdy.mesh: {error}", 0, error.label) from None

    def _count(self, name: str, default: int) -> int:
        count = self.program.attributes.get(name, default)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 2**31:
            raise self.lexer.error(f"{name} is not a count of devices", 0)
        return count

    def _arguments(self, main: Function, given: Sequence[Shape] | None) -> list[Shape]:
        """The shapes of the entry's arguments: as given, which has to fit what is written, else as written."""
        if given is not None and len(given) != len(main.arguments):
            raise ArgumentError(f"@{main.name} takes {len(main.arguments)} arguments, found the shapes of {len(given)}")
        found: list[Shape] = []
        for i, (name, written) in enumerate(main.arguments):
            type, written = written, shape_of(written)
            if written is None:
                raise self._unsupported(main, f"argument {i} ({name}) of type {type}")
            if given is not None and not fits(written, given[i]):
                raise ArgumentError(f"argument {i} ({name}) of @{main.name} is {written}, found {given[i]}")
            shape = written if given is None or not written.is_unbounded else given[i]
            if shape.is_unbounded:
                what = (
                    f"argument {i} ({name}), {shape}, is of unknown sizes: say which with arguments=[hk.f32[2,3], ...]"
                )
                error = self._unsupported(main, what)
                raise UnknownSizes(str(error), [(_named(n, j), t) for j, (n, t) in enumerate(main.arguments)])
            found.append(shape)
        return found

    def _unsupported(self, function: Function, what: str) -> UnsupportedError:
        return UnsupportedError(f"{self.lexer.where(function.start)}: func.func @{function.name}: {what}")

    def _parameters(self, scope: Scope, function: Function, shapes: Sequence[Shape], is_entry: bool = False) -> None:
        for i, ((name, written), shape) in enumerate(zip(function.arguments, shapes, strict=True)):
            handle = scope.builder.parameter(i, shape, _named(name, i) if is_entry else "")
            attributes = function.argument_attributes[i]
            self.mark(handle.instruction, attributes, function.start)
            if is_entry:
                handle = self._entering(handle, attributes)
            scope.define(name, [handle], function.start, [written])

    def _entering(self, parameter: XlaOp, attributes: Mapping[str, Any]) -> XlaOp:
        """The whole value of an argument of the program, of which devices may have terms."""
        extra = parameter.instruction.extra
        if self.keeps_regions:
            return parameter
        groups = self._groups(extra.sharding if extra is not None else None)
        whole = self.terms.summed(parameter, groups) if groups else parameter
        placement = placement_of(attributes.get("sdy.sharding"), self.program.meshes)
        if placement is not None:
            self.terms.placed[whole.instruction] = placement
        return whole

    def _groups(self, sharding: Sharding | None) -> tuple[tuple[int, ...], ...]:
        """The devices whose terms make up a value of this sharding, which is of all the program's devices."""
        groups = groups_to_sum(sharding, self.partitions)
        if groups and sorted(device for group in groups for device in group) != list(range(self.partitions)):
            raise UnsupportedError(f"the sharding {sharding} among {self.partitions} partitions")
        return groups

    def mark(self, instruction: Instruction, attributes: Mapping[str, Any], start: int) -> None:
        """Keeps the sharding and the frontend attributes that a value has."""
        sharding = self.sharding(attributes, instruction.shape.is_tuple, start)
        if sharding is not None:
            instruction.ensure_extra().sharding = sharding
            placement = placement_of(attributes.get("sdy.sharding"), self.program.meshes)
            if placement is not None:
                prioritize(instruction, placement)
        self.keep_frontend_attributes(instruction, attributes)

    def keep_frontend_attributes(self, instruction: Instruction, attributes: Mapping[str, Any]) -> None:
        """Keeps the frontend attributes alone: those of an operation of several results are its tuple's, too."""
        frontend = attributes.get("mhlo.frontend_attributes")
        if isinstance(frontend, dict):
            found = {k: v for k, v in frontend.items() if isinstance(v, str)}  # pyright: ignore[reportUnknownVariableType]
            instruction.ensure_extra().frontend_attributes.update(found)  # pyright: ignore[reportUnknownArgumentType]

    def sharding(self, attributes: Mapping[str, Any], is_tuple: bool, start: int) -> Sharding | None:
        """The sharding that a value has by its attributes."""
        given = attributes.get("mhlo.sharding", attributes.get("sdy.sharding"))
        if given is None:
            return None
        try:
            found = sharding_of(given, self.program.meshes, is_tuple, self.keeps_regions)
            for part in (found.elements or (found,)) if found is not None else ():
                part.check_count()
        except UnsupportedError as error:
            raise UnsupportedError(f"{self.lexer.where(start)}: {error}") from None
        except HlokitError as error:
            raise self.lexer.error(f"the sharding {given!r}: {error}", start) from None
        if found is None or (found.kind == "tuple" and not is_tuple):
            return None
        self._is_sharded = True
        return found

    def _root(self, builder: Builder, main: Function, results: Sequence[XlaOp]) -> XlaOp:
        """The entry's result, with the shardings of the parts; a part without one is the same on every device."""
        pairs = zip(main.result_attributes, results)
        given = [self.sharding(attributes, r.shape.is_tuple, main.start) for attributes, r in pairs]
        results = [self._leaving(*parts) for parts in zip(results, given, main.result_attributes, strict=True)]
        root = results[0] if len(results) == 1 else tuple_(builder, results)
        if not any(given) or any(r.shape.is_tuple for r in results):
            return root
        found = tuple(sharding or Sharding("replicated") for sharding in given)
        sharding = found[0] if len(results) == 1 else Sharding("tuple", elements=found)
        extra = root.instruction.extra
        own = extra.sharding if extra is not None else None
        if root.instruction.opcode == "parameter" or own not in (None, sharding):  # of the value, not of the result
            root = builder.emit(Copy(), [root])
        root.instruction.ensure_extra().sharding = sharding
        return root

    def ask_for_layout(self, what: str, shape: Shape, layout: Any) -> None:
        """Notes the first layout, in minor-to-major order, that is not row-major; "default" and "auto" ask for none."""
        if not isinstance(layout, str) or not layout.startswith("{") or not shape.is_array:
            return
        if layout != "{" + ",".join(map(str, reversed(range(shape.rank)))) + "}" and not self.other_layout:
            self.other_layout = f"{what}, {shape.logical}, in the layout {layout}"

    def _leaving(self, value: XlaOp, sharding: Sharding | None, attributes: Mapping[str, Any]) -> XlaOp:
        """A result as devices have it: the whole value, or terms of it."""
        groups = self._groups(sharding) if not self.keeps_regions else ()
        if not groups:
            return value
        return self.terms.term(value, groups, placement_of(attributes.get("sdy.sharding"), self.program.meshes))

    def _alias(self, builder: Builder, main: Function, results: Sequence[XlaOp]) -> None:
        """Donated arguments: to a result (tf.aliasing_output) or to whoever wants the buffer."""
        for i, attributes in enumerate(main.argument_attributes):
            output = attributes.get("tf.aliasing_output")
            if isinstance(output, int) and not isinstance(output, bool):
                if not 0 <= output < len(results):
                    raise self.lexer.error(
                        f"argument {i} is to share result {output}, which does not exist", main.start
                    )
                index = () if len(results) == 1 else (output,)
                builder.set_up_alias(index, i, (), Alias(index, i).kind)
            elif attributes.get("jax.buffer_donor") is True:
                builder.add_buffer_donor(i)

    def _callees_first(self, main: Function) -> list[Function]:
        """The functions that are called, each before its callers. ParseError for one that calls itself."""
        order: list[Function] = []
        state = {main.name: 1}
        stack = [(main, iter(self._called(main)))]
        while stack:
            function, rest = stack[-1]
            name = next(rest, None)
            if name is None:
                stack.pop()
                state[function.name] = 2
                order.append(function)
            elif state.get(name) == 1:
                raise self.lexer.error(f"the function @{name} calls itself", self.program.functions[name].start)
            elif name not in state and name in self.program.functions:
                state[name] = 1
                callee = self.program.functions[name]
                stack.append((callee, iter(self._called(callee))))
        return order

    def _called(self, function: Function) -> list[str]:
        found: dict[str, None] = {}
        stack = list(function.body.operations) if function.body is not None else []
        while stack:
            operation = stack.pop()
            for value in (*operation.words, *operation.attributes.values()):
                for part in value if isinstance(value, list) else (value,):  # pyright: ignore[reportUnknownVariableType]
                    if isinstance(part, Symbol):
                        found[part.name] = None
            for block in operation.regions:
                stack += block.operations if block is not None else []
        return list(found)

    def inlined(self, name: str) -> Function | None:
        """A function whose calls become its operations, so that it is seen which terms its values are sums of.

        None for a call that stays one: where nothing is unreduced, and beyond a number of operations.
        """
        function = self.program.functions.get(name)
        if not self.is_unreduced or self.is_dynamic or function is None or function.body is None:
            return None
        self._inlined += len(function.body.operations)
        return function if self._inlined <= _MOST_INLINED else None

    def function(
        self, name: str, shapes: Sequence[Shape], start: int, constants: Mapping[int, _Array] | None = None
    ) -> Computation:
        """A function as a computation of arguments of these shapes, of which `constants` are known by number."""
        constants = constants or {}
        known = tuple((i, array.dtype.str, array.shape, array.tobytes()) for i, array in constants.items())
        key = (name, tuple(shape.logical for shape in shapes), known)
        if key in self._done:
            return self._done[key]
        function = self.program.functions.get(name)
        if function is None or function.body is None:
            raise self.lexer.error(f"the function @{name} is not defined", start)
        if len(function.arguments) != len(shapes):
            message = f"@{name} takes {len(function.arguments)} arguments, found {len(shapes)}"
            raise self.lexer.error(message, start)
        for (_, declared), shape in zip(function.arguments, shapes, strict=True):
            if not fits(declared, shape):
                raise self.lexer.error(f"@{name} takes an argument of type {declared}, found {shape}", start)
        if key in self._open:
            raise self.lexer.error(f"the function @{name} calls itself", start)
        if len(self._done) > _MOST_SPECIAL + 4 * len(self.program.functions):
            raise UnsupportedError(f"{self.lexer.where(start)}: @{name}: functions for too many different sizes")
        self._open.add(key)
        scope = Scope(self, Builder(name, source_info=False))
        self._parameters(scope, function, shapes)
        scope.replace({function.arguments[i][0]: array for i, array in constants.items()})
        results = scope.results(function.body, function.results, function.start)
        root = results[0] if len(results) == 1 else tuple_(scope.builder, results)
        self._done[key] = scope.builder.build_computation(root)
        self._open.discard(key)
        return self._done[key]


def _listed(functions: Iterable[Function]) -> str:
    """Their names, ten at most."""
    names = [f"@{function.name}" for function in functions]
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "") if names else "none"


def _types(program: Program) -> Iterator[Any]:
    """All types that are written."""
    stack: list[Operation] = []
    for function in program.functions.values():
        yield from (t for _, t in function.arguments)
        yield from function.results
        stack += function.body.operations if function.body is not None else []
    while stack:
        operation = stack.pop()
        yield from operation.result_types
        for block in operation.regions:
            if block is not None:
                yield from (t for _, t in block.arguments)
                stack += block.operations


def _shapes(values: Sequence[XlaOp]) -> list[Shape]:
    return [value.shape for value in values]


def _placements(program: Program) -> Iterator[str]:
    """The texts of all of Shardy's attributes that say where values are."""
    stack: list[Operation] = []
    written: list[Any] = []
    for function in program.functions.values():
        for attributes in (*function.argument_attributes, *function.result_attributes):
            written += attributes.values()
        stack += function.body.operations if function.body is not None else []
    while stack:
        operation = stack.pop()
        written += operation.attributes.values()
        for block in operation.regions:
            stack += block.operations if block is not None else []
    yield from (str(a.value) for a in written if isinstance(a, DialectAttribute) and a.name.startswith("sdy.sharding"))


def _named(value: str, index: int) -> str:
    """A parameter's name: the argument's, unless that is only a number."""
    return value[1:] if value[1:2].isalpha() and not value[1:].removeprefix("arg").isdecimal() else f"arg{index}"
