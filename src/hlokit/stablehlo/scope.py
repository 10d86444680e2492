"""The values of a function or region while it is lowered, and the operations that make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hlokit.builder.core import Builder, XlaOp
from hlokit.errors import BuildError, HlokitError, ShapeError, UnsupportedError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction, Metadata
from hlokit.hlo.values import is_ndarray
from hlokit.stablehlo import quantized
from hlokit.stablehlo.attributes import shape_of
from hlokit.stablehlo.mapping import rule_of
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import Block, Function, Location, Operation, Quantized, Type
from hlokit.text.lexer import MAX_NESTING
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.stablehlo.lowering import Lowering

_Array: TypeAlias = np.ndarray[Any, Any]

_RETURNS = ("func.return", "stablehlo.return", "mhlo.return", "sdy.return", "chlo.return")
_COPIED_DEPTH = 8
"""Instructions in a row that a region makes anew."""
_MOST_WORK = 10_000
"""Instructions that run to know a constant while the text is read."""
_MOST_KNOWN = 64
"""Elements of an integer array that is followed through calls and regions, as sizes are made of it."""


class _Deeper:
    """One level of nesting deeper: functions in functions, regions in regions."""

    def __init__(self, lowering: Lowering, start: int) -> None:
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

    def __init__(self, lowering: Lowering, builder: Builder, outer: Scope | None = None) -> None:
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
        """The quantised type of the value `%name` or `%name#i`."""
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
            message = f"the region uses {reference} of the outside, which is not a constant"
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
        from hlokit.devices.evaluate import evaluate

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

    def body(self, function: Function, site: Site) -> list[XlaOp]:
        """The operations of a function in place of a call of it."""
        if len(function.arguments) != len(site.operands):
            raise site.error(f"@{function.name} takes {len(function.arguments)} arguments, found {len(site.operands)}")
        inner = Scope(self.lowering, self.builder)
        for (name, declared), operand in zip(function.arguments, site.operands, strict=True):
            self.check_type(declared, operand, f"@{function.name}", site.operation.start)
            inner.define(name, [operand], function.start, [declared])
        return inner.results(function.body, function.results, function.start)

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
        """The values of this scope and its outside that the blocks use, but for what they can make anew."""
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
        for result in results[:1]:
            if result.instruction.opcode == "get-tuple-element" and result.instruction.operands[0].id >= before:
                self.lowering.keep_frontend_attributes(result.instruction.operands[0], operation.attributes)
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

    def _place(self, place: Location | None) -> Location | None:
        for _ in range(MAX_NESTING):
            if place is None or not place.alias:
                return place
            target = self.lowering.program.places.get(place.alias)
            if target is None:
                return place
            file, line = place.file or target.file, place.line or target.line
            place = Location(place.name or target.name, file, line, target.alias)
        return place


def _work(root: Instruction, known: dict[Computation, int]) -> int:
    """The number of instructions that run for a value, those of functions each time; too many where a loop runs."""
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
    written = shape_of(written)
    if written is None:
        return False
    if written.is_tuple or not written.is_array:
        same_count = written.dtype is shape.dtype and len(written.elements) == len(shape.elements)
        return same_count and all(map(fits, written.elements, shape.elements))
    if written.dtype is not shape.dtype or written.rank != shape.rank:
        return False
    pairs = zip(written.dimensions, shape.dimensions, written.dynamic, strict=True)
    return all(size == other or (size < 0 and flag) for size, other, flag in pairs)


def _is_copied(instruction: Instruction, depth: int = _COPIED_DEPTH) -> bool:
    """Whether a region makes the value anew, which needs no parameter then: it depends on constants alone, over few
    instructions, each of which says what an element is."""
    if not depth or instruction.op.form not in ("map", "index") or instruction.called:
        return False
    return all(_is_copied(operand, depth - 1) for operand in instruction.operands)
