"""StableHLO to a portable artifact: vhlo of a target version in MLIR bytecode."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.stablehlo.artifact.container import BRIEF_ARGUMENTS, LAZY_REGIONS, OPERATIONS, PROPERTIES, USE_LISTS
from hlokit.stablehlo.artifact.encoding import Encoder, version_text
from hlokit.stablehlo.artifact.generic import element_of, generic_attributes
from hlokit.stablehlo.artifact.operations import ATTRIBUTES_BIT, OPERANDS_BIT, PROPERTIES_BIT, REGIONS_BIT, RESULTS_BIT
from hlokit.stablehlo.artifact.tables import Tables, flagged, section, varint, varints
from hlokit.stablehlo.artifact.versioned import NEWEST, OLDEST, Version, is_versioned, versioned
from hlokit.stablehlo.lexer import MlirLexer
from hlokit.stablehlo.parser import parse_program
from hlokit.stablehlo.tree import (
    Block,
    Dense,
    DialectAttribute,
    Function,
    FunctionType,
    Location,
    Operation,
    Program,
    Type,
)

DEFAULT_VERSION = "1.17.0"
"""The version that is written where none is asked for: what jaxlib 0.10.2 reads."""

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})\Z")
_FORMATS = (((0, 15, 0), 6), ((0, 14, 0), 4), ((0, 12, 0), 3), ((0, 10, 0), 1), (OLDEST, 0))
"""From which version on which version of the bytecode is written."""
_OTHER_DIALECTS: Version = (1, 11, 0)
_OTHER_KIND = (AttributeError, LookupError, OverflowError, TypeError, ValueError)
_CAST = "builtin.unrealized_conversion_cast"


def write_artifact(text: str, version: str = DEFAULT_VERSION) -> bytes:
    """The portable artifact of StableHLO text, for readers of `version` and later.

    ArgumentError for a version that is not one of 0.9.0 to 1.22.0; ParseError for what is not StableHLO;
    UnsupportedError that names the operation, type or attribute, for what the version lacks with the first that has it.
    """
    target = _target(version)
    program, lexer = parse_program(text, keeps_types=True)
    return _Writer(program, lexer, target).artifact(version)


def _target(version: str) -> Version:
    found = _VERSION.match(version)
    if found is None:
        raise ArgumentError(f"the version {version[:40]!r} of an artifact is not like {DEFAULT_VERSION}")
    major, minor, _ = map(int, found.groups())
    if not OLDEST <= (major, minor, 0) <= NEWEST:
        limits = f"{version_text(OLDEST)} to {version_text(NEWEST)}"
        raise ArgumentError(f"version {version} of an artifact is not supported; {limits} are")
    return major, minor, 0


@dataclass(slots=True, eq=False)
class _Value:
    """An operation's result or a block's argument.

    index   of its type
    number  in its region, once that is written
    """

    type: Type
    vhlo: bool
    index: int
    number: int = -1


@dataclass(slots=True)
class _Region:
    arguments: list[_Value] = field(default_factory=list[_Value])
    operations: list[_Low] = field(default_factory=list["_Low"])
    has_block: bool = True

    def values(self) -> Iterator[_Value]:
        yield from self.arguments
        for operation in self.operations:
            yield from operation.results


@dataclass(slots=True)
class _Low:
    """An operation as it is written, but for the numbers of its values."""

    name: str
    place: int
    operands: list[_Value] = field(default_factory=list[_Value])
    results: list[_Value] = field(default_factory=list[_Value])
    regions: list[_Region] = field(default_factory=list[_Region])
    properties: dict[str, int] | None = None
    attributes: dict[str, int] = field(default_factory=dict[str, int])


class _Writer:
    def __init__(self, program: Program, lexer: MlirLexer, target: Version) -> None:
        self._program = program
        self._lexer = lexer
        self._format = next(number for first, number in _FORMATS if target >= first)
        self._tables = Tables(self._format)
        self._encoder = Encoder(self._tables, target)
        self._target = target

    def artifact(self, version: str) -> bytes:
        program, encoder = self._program, self._encoder
        body = _Region()
        for name, mesh in program.meshes.items():
            with self._of_kind(f"sdy.mesh @{name}", 0):
                body.operations.append(self._mesh(name, mesh))
        for function in program.functions.values():
            body.operations.append(self._function(function))
        encoder.where = "module: "
        with self._of_kind("module", 0):
            attributes = {
                name: encoder.attribute(value, False)
                for name, value in program.attributes.items()
                if name not in ("sym_name", "sym_visibility")
            }
        module = _Low("builtin.module", encoder.location(None), regions=[body], attributes=attributes)
        module.properties = {}
        if program.name:
            module.properties["sym_name"] = encoder.attribute(program.name, False)
        data = varint(1 << 1) + self._operation_bytes(module, 0)
        return self._tables.artifact(f"StableHLO_v{version}", data)

    @contextmanager
    def _of_kind(self, name: str, start: int) -> Generator[None, None, None]:
        """Raises errors inside as those of an attribute whose value is of another kind than that of its name."""
        try:
            yield
        except _OTHER_KIND as error:
            found = f"{name}: an attribute of another kind than expected ({str(error)[:80]})"
            raise self._lexer.error(found, start) from None

    # -- functions and regions

    def _mesh(self, name: str, mesh: Any) -> _Low:
        self._encoder.where = f"sdy.mesh @{name}: "
        self._encoder.require(_OTHER_DIALECTS, "an operation of another dialect")
        value = mesh if isinstance(mesh, DialectAttribute) else DialectAttribute("sdy.mesh", mesh)
        given = {"sym_name": name, "mesh": value, **self._program.mesh_attributes.get(name, {})}
        attributes = {k: self._encoder.attribute(v, False) for k, v in given.items()}
        return _Low("sdy.mesh", self._encoder.location(None), attributes=attributes)

    def _function(self, function: Function) -> _Low:
        encoder = self._encoder
        encoder.where = f"{self._lexer.where(function.start)}: func.func @{function.name}: "
        kind = FunctionType(tuple(t for _, t in function.arguments), tuple(function.results))
        with self._of_kind(f"func.func @{function.name}", function.start):
            properties = {
                "arg_attrs": self._each(function.argument_attributes),
                "function_type": encoder.attribute(kind, True),
                "res_attrs": self._each(function.result_attributes),
                "sym_name": encoder.attribute(function.name, True),
                "sym_visibility": encoder.attribute(function.visibility, True),
            }
            others = {k: encoder.attribute(v, True) for k, v in function.attributes.items()}
        region = _Region(has_block=False)
        if function.body is not None:
            region = self._region(function.body, {}, True)
        return _Low(
            "vhlo.func_v1", self._place(function.place), regions=[region], properties=properties, attributes=others
        )

    def _each(self, attributes: Sequence[Mapping[str, Any]]) -> int:
        """A dictionary for each argument or result; an empty list where none has any."""
        if not any(attributes):
            return self._encoder.list_of([], True)
        return self._encoder.list_of([dict(given) for given in attributes], True)

    def _region(self, block: Block, outer: Mapping[str, _Value], vhlo: bool) -> _Region:
        """`vhlo`: the block's arguments are of versioned types; in other dialects' regions they are not."""
        region = _Region()
        scope = dict(outer)
        for name, type in block.arguments:
            region.arguments.append(self._value(type, vhlo))
            scope[name] = region.arguments[-1]
        for operation in block.operations:
            self._operation(operation, region, scope)
        return region

    def _place(self, place: Location | None) -> int:
        seen: set[str] = set()
        while place is not None and place.alias and not (place.name or place.file) and place.alias not in seen:
            seen.add(place.alias)
            place = self._program.places.get(place.alias)
        inner = self._program.places.get(place.alias) if place is not None and place.alias else None
        while inner is not None and inner.alias and not inner.file and inner.alias not in seen:
            seen.add(inner.alias)
            inner = self._program.places.get(inner.alias)
        if place is not None and inner is not None and not place.file:
            place = replace(place, file=inner.file, line=inner.line)
        return self._encoder.location(place)

    # -- operations

    def _operation(self, operation: Operation, region: _Region, scope: dict[str, _Value]) -> None:
        where = f"{self._lexer.where(operation.start)}: "
        self._encoder.where = f"{where}{operation.name}: "
        values = [self._found(name, scope, operation) for name in operation.operands]
        types = self._result_types(operation, [value.type for value in values])
        place = self._place(operation.place)
        operation = _spelled_out(operation, [value.type for value in values])
        is_ours = is_versioned(operation)
        low = _Low("", place)
        low.operands = [self._as(value, is_ours, region, place) for value in values]
        low.results = [self._value(type, is_ours) for type in types]
        low.regions = [
            _Region(has_block=False) if block is None else self._region(block, scope, is_ours)
            for block in operation.regions
        ]
        self._encoder.where = f"{where}{operation.name}: "
        with self._of_kind(operation.name, operation.start):
            if is_ours:
                made = versioned(self._encoder, operation, [v.type for v in values], types, where)
                low.name, low.properties, low.attributes = made.name, made.properties, made.others
            else:
                self._encoder.require(_OTHER_DIALECTS, "an operation of another dialect")
                low.name = operation.name
                given = generic_attributes(operation, where)
                low.attributes = {k: self._encoder.attribute(v, False) for k, v in given.items()}
        region.operations.append(low)
        position = 0
        for name, count in operation.results:
            for i in range(count):
                value = low.results[position]
                position += 1
                scope[f"{name}#{i}"] = value
                if count == 1:
                    scope[name] = value

    def _value(self, type: Type, vhlo: bool) -> _Value:
        return _Value(type, vhlo, self._encoder.type(type, vhlo))

    def _found(self, name: str, scope: Mapping[str, _Value], operation: Operation) -> _Value:
        if name not in scope:
            raise self._lexer.error(f"{operation.name}: the value {name} is not defined", operation.start)
        return scope[name]

    def _as(self, value: _Value, vhlo: bool, region: _Region, place: int) -> _Value:
        """The value under a versioned type, or under one that other dialects know: by a cast where it is not."""
        if value.vhlo is vhlo:
            return value
        cast = _Low(_CAST, place, [value], [self._value(value.type, vhlo)])
        region.operations.append(cast)
        return cast.results[0]

    def _result_types(self, operation: Operation, operands: Sequence[Type]) -> tuple[Type, ...]:
        count = sum(count for _, count in operation.results)
        value = operation.attributes.get("value")
        types = operation.result_types
        if not types and count and operation.name.endswith(".constant") and isinstance(value, Dense):
            types = (value.shape,)
        if len(types) != count and operation.results:
            message = f"{operation.name}: {len(types)} types for {count} values"
            raise self._lexer.error(message, operation.start)
        return types

    # -- bytes

    def _operation_bytes(self, low: _Low, end: int) -> bytes:
        """`end`: how many values the regions around it have, where it does not begin anew."""
        encoder, tables = self._encoder, self._tables
        attributes, properties = low.attributes, low.properties
        if self._format < PROPERTIES and properties:
            attributes, properties = {**attributes, **properties}, None
        mask = 0
        tail: list[bytes] = []
        if attributes:
            mask |= ATTRIBUTES_BIT
            tail.append(varint(encoder.dictionary(attributes, False)))
        if properties or (low.name == "builtin.module" and self._format >= PROPERTIES):
            mask |= PROPERTIES_BIT
            tail.append(varint(tables.properties(_properties_bytes(low.name, properties or {}))))
        if low.results:
            mask |= RESULTS_BIT
            tail.append(varints([value.index for value in low.results]))
        if low.operands:
            mask |= OPERANDS_BIT
            tail.append(varints([value.number for value in low.operands]))
        if low.regions:
            mask |= REGIONS_BIT
            tail.append(self._regions_bytes(low, end))
        head = varint(tables.name(low.name, True)) + bytes([mask]) + varint(low.place)
        return head + b"".join(tail)

    def _regions_bytes(self, low: _Low, end: int) -> bytes:
        is_isolated = not any(map(_uses_outside, low.regions))
        inner = b"".join(self._region_bytes(region, 0 if is_isolated else end) for region in low.regions)
        head = flagged(len(low.regions), is_isolated)
        if is_isolated and self._format >= LAZY_REGIONS:
            return head + section(OPERATIONS, inner)
        return head + inner

    def _region_bytes(self, region: _Region, first: int) -> bytes:
        if not region.has_block:
            return varint(0)
        number = first
        for value in region.values():
            value.number = number
            number += 1
        parts = [varint(1), varint(number - first)]
        parts.append(flagged(len(region.operations), bool(region.arguments)))
        if region.arguments:
            parts.append(varint(len(region.arguments)))
            for value in region.arguments:
                is_brief = self._format >= BRIEF_ARGUMENTS
                parts.append(flagged(value.index, False) if is_brief else varint(value.index))
                if self._format < BRIEF_ARGUMENTS:
                    parts.append(varint(self._encoder.location(None)))
            if self._format >= USE_LISTS:
                parts.append(b"\0")
        parts += [self._operation_bytes(operation, number) for operation in region.operations]
        return b"".join(parts)


def _properties_bytes(name: str, properties: Mapping[str, int]) -> bytes:
    """In the order of their names; those of a module may be left out."""
    if name == "builtin.module":
        index = properties.get("sym_name")
        return (varint(0) if index is None else flagged(index, True)) + varint(0)
    return b"".join(map(varint, properties.values()))


def _uses_outside(region: _Region) -> bool:
    """Whether an operation in it, at any depth, uses a value that is defined around it."""
    defined: set[_Value] = set()
    open_regions = [region]
    used: set[_Value] = set()
    while open_regions:
        inner = open_regions.pop()
        defined.update(inner.values())
        for operation in inner.operations:
            used.update(operation.operands)
            open_regions += operation.regions
    return not used <= defined


def _spelled_out(operation: Operation, operands: Sequence[Type]) -> Operation:
    """`applies stablehlo.add` as the region that it is short for."""
    name = operation.attributes.get("applies")
    if name is None:
        return operation
    elements = [element_of(type) for type in operands]
    if len(elements) != 2:
        raise UnsupportedError(f"{operation.name}: {name} applied to {len(elements)} values")
    start = operation.start
    body = [
        Operation(str(name), start, [("%2", 1)], ["%0", "%1"], result_types=(elements[0],)),
        Operation("stablehlo.return", start, [], ["%2"]),
    ]
    region = Block([("%0", elements[0]), ("%1", elements[1])], body, start)
    return replace(operation, regions=[region])
