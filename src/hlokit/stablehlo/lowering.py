"""The tree of a StableHLO module to an HloModule: functions and regions become computations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from hlokit.builder.control import tuple_
from hlokit.builder.core import Builder, XlaOp
from hlokit.errors import (
    ArgumentError,
    BuildError,
    HlokitError,
    ParseError,
    ShapeError,
    UnsupportedError,
    VerifyError,
)
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction, Metadata
from hlokit.hlo.module import Alias, HloModule
from hlokit.hlo.values import is_ndarray
from hlokit.hlo.verifier import verify
from hlokit.ops.elementwise import Copy
from hlokit.stablehlo import quantized
from hlokit.stablehlo.lexer import Lexer
from hlokit.stablehlo.mapping import rule_of
from hlokit.stablehlo.parser import parse_program
from hlokit.stablehlo.shardings import mesh_of, sharding_of
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import (
    Block,
    Function,
    Operation,
    Place,
    Program,
    Quantized,
    QuantizedTensor,
    Symbol,
    Type,
)
from hlokit.text.lexer import MAX_NESTING
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

_Array: TypeAlias = np.ndarray[Any, Any]

_RETURNS = ("func.return", "stablehlo.return", "mhlo.return", "sdy.return", "chlo.return")
_COPIED_DEPTH = 8
"""Instructions in a row that a region makes anew."""
_MOST_SPECIAL = 1_000
"""Functions that are made anew for other sizes, beside four of each that the text has."""
_MOST_WORK = 10_000
"""Instructions that run to know a constant while the text is read."""
_MOST_KNOWN = 64
"""Elements of an integer array that is followed through calls and regions, as sizes are made of it."""
_OWN_CHANNELS = 1 << 20
"""Above the channels that programs name themselves."""
MEMORY_KINDS = "hlokit.result_memory_kinds"
"""The frontend attribute that names the memory of each result, where a program asks for one: a list with commas."""
GLOBAL_VALUES = {"hlokit.values": "global"}
"""Frontend attributes of a module of several partitions that runs on whole values: shardings are only kept."""


class UnknownSizes(UnsupportedError):
    """The entry has arguments of unknown sizes. `parameters`: names and types of all."""

    def __init__(self, message: str, parameters: Sequence[tuple[str, Any]]) -> None:
        super().__init__(message)
        self.parameters = parameters


def parse_stablehlo(text: str, arguments: Sequence[Shape] | None = None) -> HloModule:
    """The module that a StableHLO text says. Its entry is the function `main`, or the one that is public.

    `arguments`: the shapes of the entry's arguments, for those of unknown sizes; all others follow from them.
    Raises ArgumentError for shapes that the entry does not take; ParseError with line, column and caret for what is
    no legal StableHLO; UnsupportedError, naming line and operation, type or attribute, for what is legal and not
    supported.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ParseError(f"no UTF-8: {error.reason}", line=text.count("\n", 0, error.start) + 1, column=1) from None
    return lowered(*parse_program(text), arguments)


def lowered(program: Program, lexer: Lexer, arguments: Sequence[Shape] | None = None) -> HloModule:
    """The module that a tree of operations is, for arguments of these shapes; `lexer` places its errors."""
    module = _Lowering(program, lexer).module(arguments)
    if module.replica_count * module.num_partitions > 1:  # groups of devices are known to fit only now
        try:
            verify(module)
        except VerifyError as error:
            raise lexer.error(error.findings[0], 0) from None
    return module


class _Lowering:
    """Functions by name and the shapes of their arguments, each lowered once."""

    def __init__(self, program: Program, lexer: Lexer) -> None:
        self.program = program
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

    def module(self, arguments: Sequence[Shape] | None = None, main: Function | None = None) -> HloModule:
        main = main or self._main()
        shapes = self._arguments(main, arguments)
        for function in self._callees_first(main):
            types = [t for _, t in function.arguments]
            known = [t for t in types if isinstance(t, Shape) and not t.is_unbounded]
            if function is not main and len(known) == len(types) and not self.is_dynamic:
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
        module.num_partitions, module.replica_count = self.partitions, self.replicas
        given = self.program.attributes.get("mhlo.frontend_attributes")
        if isinstance(given, dict):
            module.frontend_attributes.update({k: v for k, v in given.items() if isinstance(v, str)})  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]
        if self.partitions > 1 and self._is_sharded:
            module.frontend_attributes.update(GLOBAL_VALUES)
        kinds = [str(attributes.get("mhlo.memory_kind", "device")) for attributes in main.result_attributes]
        if any(kind != "device" for kind in kinds):
            module.frontend_attributes[MEMORY_KINDS] = ",".join(kinds)
        return module

    def program_of(self, name: str, shapes: Sequence[Shape], counts: tuple[int, int], start: int) -> str:
        """A module whose entry is a function, for (replicas, partitions), as HLO text."""
        function = self.program.functions.get(name)
        if function is None or function.body is None:
            raise self.lexer.error(f"the function @{name} is not defined", start)
        inner = _Lowering(self.program, self.lexer)
        inner.replicas, inner.partitions = counts
        inner.depth = self.depth + 4
        return inner.module(shapes, function).to_text()

    def channel(self, handle: int, *meeting: Any) -> int:
        """The channel of a collective that is written with this handle: HLO's serves one meeting (GRP-6).

        `meeting`: the kind of the collective and its groups. The first that has a handle keeps it; another gets a
        number that is not written anywhere near.
        """
        key = (handle, *meeting)
        if key not in self._channels:
            first = self._handles.setdefault(handle, key) == key
            self._channels[key] = handle if first else _OWN_CHANNELS + len(self._channels)
        return self._channels[key]

    def _main(self) -> Function:
        functions = self.program.functions
        public = [f for f in functions.values() if f.is_public and f.body is not None]
        if "main" not in functions and len(public) != 1:
            raise self.lexer.error("no function is called main, and not just one is public", 0)
        main = functions.get("main") or public[0]
        if main.body is None:
            raise self.lexer.error(f"the function @{main.name} has no body", main.start)
        return main

    def _mesh_size(self) -> int:
        """The devices of the largest mesh: as many partitions there are where the module does not say."""
        try:
            return max((len(mesh_of(mesh).devices) for mesh in self.program.meshes.values()), default=1)
        except ShapeError as error:
            raise self.lexer.error(f"sdy.mesh: {error}", 0, error.label) from None

    def _count(self, name: str, default: int) -> int:
        count = self.program.attributes.get(name, default)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 2**31:
            raise self.lexer.error(f"{name} is no count of devices", 0)
        return count

    def _arguments(self, main: Function, given: Sequence[Shape] | None) -> list[Shape]:
        """The shapes of the entry's arguments: as given, which has to fit what is written, else as written."""
        if given is not None and len(given) != len(main.arguments):
            raise ArgumentError(f"@{main.name} takes {len(main.arguments)} arguments, found the shapes of {len(given)}")
        found: list[Shape] = []
        for i, (name, written) in enumerate(main.arguments):
            written = written.shape if isinstance(written, QuantizedTensor) else written
            if not isinstance(written, Shape):
                raise self._unsupported(main, f"argument {i} ({name}) of type {written}")
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
            scope.define(name, [handle], function.start, [written])
            self.mark(handle.instruction, function.argument_attributes[i], function.start)

    def mark(self, instruction: Instruction, attributes: Mapping[str, Any], start: int) -> None:
        """Keeps the sharding and the frontend attributes that a value has."""
        sharding = self.sharding(attributes, instruction.shape.is_tuple, start)
        if sharding is not None:
            instruction.ensure_extra().sharding = sharding
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
            found = sharding_of(given, self.program.meshes, is_tuple)
        except HlokitError as error:
            raise self.lexer.error(f"the sharding {given!r}: {error}", start) from None
        if found is None or (found.kind == "tuple" and not is_tuple):
            return None
        self._is_sharded = True
        return found

    def _root(self, builder: Builder, main: Function, results: Sequence[XlaOp]) -> XlaOp:
        """The entry's result, with the shardings of the parts; a part without one is the same on every device."""
        root = results[0] if len(results) == 1 else tuple_(builder, results)
        pairs = zip(main.result_attributes, results)
        given = [self.sharding(attributes, r.shape.is_tuple, main.start) for attributes, r in pairs]
        if not any(given) or any(r.shape.is_tuple for r in results):
            return root
        found = tuple(sharding or Sharding("replicated") for sharding in given)
        if root.instruction.opcode == "parameter":
            root = builder.emit(Copy(), [root])
        root.instruction.ensure_extra().sharding = found[0] if len(results) == 1 else Sharding("tuple", elements=found)
        return root

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


class _Deeper:
    """One level of nesting deeper: functions in functions, regions in regions."""

    def __init__(self, lowering: _Lowering, start: int) -> None:
        self._lowering = lowering
        self._start = start

    def __enter__(self) -> None:
        self._lowering.depth += 1
        if self._lowering.depth > MAX_NESTING:
            raise self._lowering.lexer.error(f"nested more than {MAX_NESTING} deep", self._start)

    def __exit__(self, *_: object) -> None:
        self._lowering.depth -= 1


class Scope:
    """The values of a function or region while it is lowered."""

    def __init__(self, lowering: _Lowering, builder: Builder, outer: Scope | None = None) -> None:
        self.lowering = lowering
        self.lexer = lowering.lexer
        self.builder = builder
        self.outer = outer
        self._values: dict[str, list[XlaOp]] = {}
        self._quantized: dict[str, list[Quantized | None]] = {}
        self._captured: dict[str, XlaOp] = {}
        self._constants: dict[int, Any] = {}

    # -- values

    def define(self, name: str, handles: Sequence[XlaOp], start: int, types: Sequence[Type] = ()) -> None:
        """Binds values, of the types that are written for them."""
        if name in self._values:
            raise self.lexer.error(f"{name} is defined twice", start)
        self._values[name] = list(handles)
        if self.lowering.is_quantized:
            self._quantized[name] = quantized.elements(types)

    def quantized(self, reference: str) -> Quantized | None:
        """How the value `%name` or `%name#i` is quantised."""
        name, _, number = reference.partition("#")
        scope: Scope | None = self
        while scope is not None and name not in scope._values:
            scope = scope.outer
        found = scope._quantized.get(name, ()) if scope is not None else ()
        index = int(number or 0)
        return found[index] if index < len(found) else None

    def replace(self, values: Mapping[str, _Array]) -> None:
        """Constants for names that are bound to parameters."""
        for name, array in values.items():
            self._values[name] = [self.builder.constant(array)]

    def size(self, handle: XlaOp) -> _Array | None:
        """The value of what sizes may be made of, if it is known: a few integers, in programs of unknown sizes."""
        if not self.lowering.is_dynamic or not handle.shape.is_array or handle.shape.is_dynamic:
            return None
        if not handle.dtype.is_integral or handle.shape.size > _MOST_KNOWN:
            return None
        return self.constant(handle)

    def sizes(self, handles: Sequence[XlaOp]) -> dict[int, _Array]:
        """Those of the values that are known, by number."""
        found = {i: self.size(handle) for i, handle in enumerate(handles)}
        return {i: array for i, array in found.items() if array is not None}

    def value(self, reference: str, start: int) -> XlaOp:
        """The value of `%name` or `%name#i`."""
        found = self._find(reference)
        if found is not None:
            return found
        outside = self.outer.value(reference, start) if self.outer is not None else None
        if outside is None:
            raise self.lexer.error(f"{reference} is not defined (above)", start)
        if _is_copied(outside.instruction):
            copy = self._copied(outside.instruction)
        elif (known := self._outer_size(outside)) is not None:
            copy = self.builder.constant(known)
        else:
            message = f"the region uses {reference} of the outside, which is no constant"
            raise UnsupportedError(f"{self.lexer.where(start)}: {message}")
        self._captured[reference] = copy
        return copy

    def _outer_size(self, outside: XlaOp) -> _Array | None:
        scope = self.outer
        while scope is not None and scope.builder is not outside.builder:
            scope = scope.outer
        return scope.size(outside) if scope is not None else None

    def _find(self, reference: str) -> XlaOp | None:
        if reference in self._captured:
            return self._captured[reference]
        name, _, number = reference.partition("#")
        handles = self._values.get(name)
        index = int(number or 0) if len(number) < 10 else -1
        return handles[index] if handles is not None and 0 <= index < len(handles) else None

    def _copied(self, instruction: Instruction) -> XlaOp:
        """The same value, which `_is_copied`, made in this scope."""
        operands = [self._copied(operand) for operand in instruction.operands]
        return self.builder.emit(instruction.op, operands, shape=instruction.shape)

    def constant(self, handle: XlaOp) -> Any:
        """The array that `handle` is, whatever the arguments; None if it depends on them."""
        key = handle.instruction.id
        if key not in self._constants:
            self._constants[key] = self._evaluated(handle)
        return self._constants[key]

    def _evaluated(self, handle: XlaOp) -> Any:
        from hlokit.interpreter.evaluate import evaluate

        if not handle.shape.is_array or handle.shape.size > 4096 or not self.builder.is_constant(handle):
            return None
        if _work(handle.instruction, self.lowering.work) > _MOST_WORK:
            return None
        try:
            value = evaluate(self.builder.build_constant_sub_graph(handle))
        except HlokitError:
            return None
        return np.asarray(value) if is_ndarray(value) else None

    def inline(self) -> Scope:
        """A scope for a region whose operations are made in place."""
        inner = Scope(self.lowering, self.builder)
        inner.inherit(self)
        return inner

    def inherit(self, outer: Scope) -> None:
        """Makes the values of `outer`, which has the same builder, visible."""
        self.outer = outer.outer
        self._values.update(outer._values)
        self._captured.update(outer._captured)
        self._quantized.update(outer._quantized)

    # -- regions

    def computation(self, block: Block, parameters: Sequence[Shape], name: str, site: Site) -> Computation:
        """A region as a computation, one parameter for each argument."""
        inner = Scope(self.lowering, Builder(name, source_info=False), self)
        self._check_arguments(block, parameters, site)
        for i, ((argument, written), shape) in enumerate(zip(block.arguments, parameters, strict=True)):
            inner.define(argument, [inner.builder.parameter(i, shape)], block.start, [written])
        return inner._finished(block, site)

    def tupled(
        self, block: Block, parameters: Sequence[Shape], captured: Mapping[str, XlaOp], name: str, site: Site
    ) -> tuple[Scope, list[XlaOp]]:
        """The scope of a region whose arguments, and values of the outside, are the elements of one tuple."""
        inner = Scope(self.lowering, Builder(name, source_info=False), self)
        self._check_arguments(block, parameters, site)
        shapes = [*parameters, *(handle.shape for handle in captured.values())]
        state = inner.builder.parameter(0, Shape.tuple(shape.logical for shape in shapes), "state")
        elements = list(state)
        for (argument, written), element in zip(block.arguments, elements):
            inner.define(argument, [element], block.start, [written])
        inner._captured.update(zip(captured, elements[len(parameters) :], strict=True))
        return inner, elements

    def _check_arguments(self, block: Block, parameters: Sequence[Shape], site: Site) -> None:
        if len(block.arguments) != len(parameters):
            message = f"{site.name}: a region of {len(block.arguments)} arguments, expected {len(parameters)}"
            raise self.lexer.error(message, block.start)
        for (argument, declared), shape in zip(block.arguments, parameters, strict=True):
            if not fits(declared, shape):
                raise self.lexer.error(f"{site.name}: {argument} is of type {declared}, expected {shape}", block.start)

    def _finished(self, block: Block, site: Site) -> Computation:
        results = self.results(block, None, block.start)
        return self.builder.build_computation(results[0] if len(results) == 1 else results)

    def free(self, blocks: Iterable[Block]) -> list[str]:
        """The references of the blocks to values that they do not define, in order of first use."""
        found: dict[str, None] = {}

        def visit(block: Block, known: set[str]) -> None:
            known = known | {name for name, _ in block.arguments}
            for operation in block.operations:
                for reference in operation.operands:
                    if reference.partition("#")[0] not in known:
                        found[reference] = None
                for inner in operation.regions:
                    if inner is not None:
                        visit(inner, known)
                known.update(name for name, _ in operation.results)

        for block in blocks:
            visit(block, set())
        return list(found)

    def captures(self, blocks: Iterable[Block], start: int) -> dict[str, XlaOp]:
        """What the blocks use of this scope and its outside, but for what they can make anew."""
        found = {reference: self.value(reference, start) for reference in self.free(blocks)}
        return {
            r: handle for r, handle in found.items() if not _is_copied(handle.instruction) and self.size(handle) is None
        }

    # -- operations

    def results(self, block: Block | None, declared: Sequence[Any] | None, start: int) -> list[XlaOp]:
        """Lowers the operations of a block; gives what it returns."""
        if block is None or not block.operations or block.operations[-1].name not in _RETURNS:
            raise self.lexer.error("a block that ends without a return", block.start if block is not None else start)
        with _Deeper(self.lowering, block.start):
            for operation in block.operations[:-1]:
                self.operation(operation)
        last = block.operations[-1]
        values = [self.value(reference, last.start) for reference in last.operands]
        if declared is not None:
            self._check(last, declared, values)
        return values

    def operation(self, operation: Operation) -> None:
        """Lowers one operation and binds its results."""
        site = Site(self, operation, [self.value(reference, operation.start) for reference in operation.operands])
        if operation.name in _RETURNS:
            raise site.error(f"{operation.name} is not the last operation of its block")
        for written in (*operation.operand_types, *operation.result_types):
            site.shape(written)
        if operation.operand_types:
            self._check(operation, operation.operand_types, site.operands)
        rule = rule_of(operation.name)
        if rule is None:
            raise site.unsupported("the operation is not known")
        before = self.builder.computation.next_id
        results = self._lowered(self._rule(rule, operation), site)
        if operation.result_types:
            self._check(operation, operation.result_types, results)
        for result in results:
            if result.instruction.id >= before:
                self.lowering.mark(result.instruction, operation.attributes, operation.start)
        self._bind(operation, results)

    def _rule(self, rule: Rule, operation: Operation) -> Rule:
        """The rule, or on quantised values what that makes of it."""
        if not self.lowering.is_quantized:
            return rule
        given = [self.quantized(reference) for reference in operation.operands]
        if not any(given) and not any(quantized.elements(operation.result_types)):
            return rule
        return partial(quantized.lower, rule=rule, given=given)

    def _lowered(self, rule: Rule, site: Site) -> list[XlaOp]:
        place = self._place(site.operation.place)
        before = self.builder.current_metadata
        if place is not None and (place.name or place.file):
            self.builder.set_metadata(Metadata(op_name=place.name, source_file=place.file, source_line=place.line))
        try:
            results = rule(site)
        except (ShapeError, BuildError) as error:
            if isinstance(error, ShapeError):
                error.location = None
            raise site.error(f"{site.name}: {error}", getattr(error, "label", None)) from None
        finally:
            self.builder.set_metadata(before)
        return [results] if isinstance(results, XlaOp) else list(results)

    def _bind(self, operation: Operation, results: Sequence[XlaOp]) -> None:
        wanted = sum(count for _, count in operation.results)
        if wanted not in (0, len(results)):
            message = f"{operation.name} gives {len(results)} results, bound to {wanted} names"
            raise self.lexer.error(message, operation.start)
        at = 0
        for name, count in operation.results:
            self.define(name, results[at : at + count], operation.start, operation.result_types[at : at + count])
            at += count

    def _check(self, operation: Operation, declared: Sequence[Any], found: Sequence[XlaOp]) -> None:
        if len(declared) != len(found):
            message = f"{operation.name}: {len(declared)} types for {len(found)} values"
            raise self.lexer.error(message, operation.start)
        for written, handle in zip(declared, found, strict=True):
            self.check_type(written, handle, operation.name, operation.start)

    def check_type(self, written: Any, handle: XlaOp, what: str, start: int) -> None:
        """ParseError for a type that is written and is not the value's."""
        if not fits(written, handle.shape):
            message = f"{what}: the type {written} is written, the value has {handle.shape}"
            raise self.lexer.error(message, start)

    def _place(self, place: Place | None) -> Place | None:
        for _ in range(MAX_NESTING):
            if place is None or not place.alias:
                return place
            target = self.lowering.program.places.get(place.alias)
            if target is None:
                return place
            place = Place(place.name or target.name, place.file or target.file, place.line or target.line, target.alias)
        return place


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


def _work(root: Instruction, known: dict[Computation, int]) -> int:
    """How many instructions run for a value, those of functions each time; too many where a loop runs."""
    work, stack, seen = 0, [root], {root}
    while stack and work <= _MOST_WORK:
        instruction = stack.pop()
        work += 1 if instruction.opcode != "while" else _MOST_WORK
        for computation in instruction.called:
            if computation not in known:
                known[computation] = 0
                known[computation] = _work(computation.root, known)
            work += known[computation] * (1 + instruction.shape.size if instruction.shape.is_array else 1)
        for operand in instruction.operands:
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return work


def fits(written: Any, shape: Shape) -> bool:
    """Whether a value of `shape` may have the type that is written, in which `?` stands for any size."""
    if written is shape:
        return True
    if isinstance(written, QuantizedTensor):
        written = written.shape
    if not isinstance(written, Shape):
        return False
    if written.is_tuple or not written.is_array:
        same_count = written.dtype is shape.dtype and len(written.elements) == len(shape.elements)
        return same_count and all(map(fits, written.elements, shape.elements))
    if written.dtype is not shape.dtype or written.rank != shape.rank:
        return False
    pairs = zip(written.dimensions, shape.dimensions, written.dynamic, strict=True)
    return all(size == other or (size < 0 and flag) for size, other, flag in pairs)


def _named(value: str, index: int) -> str:
    """A parameter's name: the argument's, unless that is only a number."""
    return value[1:] if value[1:2].isalpha() and not value[1:].removeprefix("arg").isdecimal() else f"arg{index}"


def _is_copied(instruction: Instruction, depth: int = _COPIED_DEPTH) -> bool:
    """Whether a region makes the value anew, which needs no parameter then: it depends on constants alone, over few
    instructions, each of which says what an element is."""
    if not depth or instruction.op.form not in ("map", "index") or instruction.called:
        return False
    return all(_is_copied(operand, depth - 1) for operand in instruction.operands)
