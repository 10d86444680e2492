"""The operations of an artifact: their tree as it is encoded, names and attributes of their own dialects."""

from __future__ import annotations

from typing import Any

from hlokit.errors import UnsupportedError
from hlokit.stablehlo.artifact.builtin import NumberedDictionary, place_of
from hlokit.stablehlo.artifact.container import (
    BRIEF_ARGUMENTS,
    LAZY_REGIONS,
    OPERATIONS,
    PROPERTIES,
    SEGMENT_PROPERTIES,
    USE_LISTS,
    BytecodeContainer,
)
from hlokit.stablehlo.artifact.cursor import Cursor, failure
from hlokit.stablehlo.artifact.entries import Entries
from hlokit.stablehlo.artifact.properties import properties_of
from hlokit.stablehlo.artifact.text import written
from hlokit.stablehlo.artifact.versions import check_version, upgraded
from hlokit.stablehlo.tree import Block, Dictionary, Operation, Type
from hlokit.text.lexer import MAX_NESTING

ATTRIBUTES_BIT, RESULTS_BIT, OPERANDS_BIT, _SUCCESSORS, REGIONS_BIT, _USE_LISTS, PROPERTIES_BIT = (
    1 << bit for bit in range(7)
)

_KEPT_AS_TEXT = {
    "stablehlo.composite": ("composite_attributes",),
    "stablehlo.custom_call": ("backend_config", "mhlo.backend_config"),
}


class _Values:
    """Numbers of values: each region takes as many as it says, after those of the regions around it.

    An isolated region begins at 0 again; `base` makes the names of its values others than those around it.
    """

    __slots__ = ("base", "end")

    def __init__(self, base: int) -> None:
        self.base = base
        self.end = 0


class OperationReader:
    """Reads operations; their values are called %0, %1, ... by number."""

    def __init__(self, container: BytecodeContainer, entries: Entries) -> None:
        self._version = container.version
        self._names = container.names
        self._properties = container.properties
        self._entries = entries
        self._depth = 0
        self._checked: set[str] = set()
        self._known_properties: dict[tuple[int, str], dict[str, Any]] = {}

    def module(self, cursor: Cursor) -> Operation:
        """The one operation of the top level, which is a module."""
        count, has_arguments = cursor.flagged()
        if has_arguments or count != 1:
            raise cursor.error("not just a module at the top level")
        module, _ = self._operation(cursor, _Values(0), 0)
        if module.name != "builtin.module":
            raise failure(f"{module.name} at the top level, expected builtin.module", module.start)
        if cursor.rest:
            raise cursor.error(f"{cursor.rest} bytes after the module")
        return module

    def _region(self, cursor: Cursor, outer: _Values, is_isolated: int) -> Block:
        """A region of one block; a region of none is an empty block."""
        start = cursor.offset
        count = cursor.varint()
        if not count:
            return Block([], [], start)
        values = _Values(outer.base + outer.end) if is_isolated else outer
        first = values.end
        values.end += cursor.varint()
        if count > 1:
            message = "regions of several blocks (control flow by branches) are not supported"
            raise UnsupportedError(f"byte {start}: {message}")
        count, has_arguments = cursor.flagged()
        block = Block(self._arguments(cursor, values.base + first) if has_arguments else [], [], start)
        defined = first + len(block.arguments)
        for _ in range(count):
            operation, defined = self._operation(cursor, values, defined)
            block.operations.append(operation)
        if defined != values.end:
            raise cursor.error(f"a region of {defined - first} values, which says that it has {values.end - first}")
        values.end = first
        return block

    def _arguments(self, cursor: Cursor, first: int) -> list[tuple[str, Type]]:
        found: list[tuple[str, Type]] = []
        for number in range(first, first + cursor.varint()):
            index, has_place = cursor.flagged() if self._version >= BRIEF_ARGUMENTS else (cursor.varint(), 1)
            found.append((f"%{number}", self._entries.type(index, cursor)))
            if has_place:
                place_of(self._entries.inner(cursor), cursor)
        if self._version >= USE_LISTS and cursor.byte():
            self._skip_use_lists(cursor, len(found))
        return found

    def _operation(self, cursor: Cursor, values: _Values, defined: int) -> tuple[Operation, int]:
        """An operation, and the number of the value that is defined next."""
        entries = self._entries
        start = cursor.base + cursor.position
        index, mask, location = cursor.head()
        if index >= len(self._names):
            raise cursor.error(f"operation name {index} of {len(self._names)}")
        name, is_known = self._names[index]
        if name not in self._checked:
            check_version(name, start)
            self._checked.add(name)
        place = place_of(entries.attribute(location, cursor), cursor)
        entries.count(0, cursor)
        attributes = dict(self._dictionary(cursor)) if mask & ATTRIBUTES_BIT else {}
        if mask & PROPERTIES_BIT:
            attributes.update(self._held(cursor, name, is_known))
        types: list[Type] = []
        results: list[tuple[str, int]] = []
        if mask & RESULTS_BIT:
            types = [entries.type(number, cursor) for number in cursor.varints(cursor.varint())]
            first = values.base + defined
            defined += len(types)
            results = [(f"%{number}", 1) for number in range(first, first + len(types))]
        operands: list[str] = []
        if mask & OPERANDS_BIT:
            base = values.base
            numbers = cursor.varints(cursor.varint())
            if numbers and max(numbers) >= values.end:
                raise cursor.error(f"value {max(numbers)} of {values.end}")
            operands = [f"%{base + number}" for number in numbers]
        if mask & _SUCCESSORS:
            raise UnsupportedError(f"byte {start}: {name}: successors are not supported")
        if mask & _USE_LISTS:
            self._skip_use_lists(cursor, len(results))
        regions = self._regions(cursor, values) if mask & REGIONS_BIT else []
        operation = Operation(name, start, results, operands, attributes, [], regions, (), tuple(types), place)
        upgraded(operation)
        if operation.name in _KEPT_AS_TEXT:
            self._write(operation)
        return operation, defined

    def _write(self, operation: Operation) -> None:
        """Gives the dictionaries that are kept as text their text."""
        for name in _KEPT_AS_TEXT[operation.name]:
            value = operation.attributes.get(name)
            if isinstance(value, NumberedDictionary) and not value.text:
                value.text = written(self._entries, value)

    def _regions(self, cursor: Cursor, values: _Values) -> list[Block | None]:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise cursor.error(f"nested more than {MAX_NESTING} deep")
        count, is_isolated = cursor.flagged()
        inner = cursor
        if is_isolated and self._version >= LAZY_REGIONS and count:
            number, inner = cursor.section()
            if number != OPERATIONS:
                raise inner.error(f"section {number} where operations are expected")
        found: list[Block | None] = [self._region(inner, values, is_isolated) for _ in range(count)]
        if inner is not cursor and inner.rest:
            raise inner.error(f"{inner.rest} bytes after the last region")
        self._depth -= 1
        return found

    def _dictionary(self, cursor: Cursor) -> Dictionary:
        found = self._entries.inner(cursor)
        if not isinstance(found, Dictionary):
            raise cursor.error("an operation's attributes that are not a dictionary")
        return found

    def _held(self, cursor: Cursor, name: str, is_known: int) -> dict[str, Any]:
        """The attributes that are properties: one after the other, or, for an operation not known, a dictionary."""
        index = cursor.varint()
        if self._version < PROPERTIES or index >= len(self._properties):
            raise cursor.error(f"properties {index} of {len(self._properties)}")
        if (index, name) in self._known_properties:
            return self._known_properties[index, name]
        held = Cursor(*self._properties[index])
        try:
            found = self._by_name(held, name) if is_known else self._dictionary(held)
        except IndexError:
            raise held.error(f"properties of {name} that end too early") from None
        if held.rest:
            raise held.error(f"{held.rest} bytes too many in the properties of {name}")
        self._known_properties[index, name] = found
        return found

    def _by_name(self, cursor: Cursor, name: str) -> dict[str, Any]:
        known = properties_of(name)
        if known is None:
            raise UnsupportedError(f"byte {cursor.offset}: {name}: what its properties are is not known")
        if any(attribute.endswith("+") for attribute in known) and cursor.count() < len(known):
            known = tuple(attribute for attribute in known if not attribute.endswith("+"))
        found: dict[str, Any] = {}
        for attribute in (attribute.rstrip("+") for attribute in known):
            if attribute.startswith("#"):
                found[attribute[1:]] = self._segments(cursor, name)
                continue
            if not attribute.endswith("?"):
                found[attribute] = self._entries.inner(cursor)
                continue
            index, is_there = cursor.flagged()
            if is_there:
                found[attribute[:-1]] = self._entries.attribute(index, cursor)
        return found

    def _segments(self, cursor: Cursor, name: str) -> list[int]:
        """Numbers of operands or results: a list."""
        if self._version < SEGMENT_PROPERTIES:
            raise UnsupportedError(f"byte {cursor.offset}: {name} in MLIR bytecode of version {self._version}")
        count, is_sparse = cursor.flagged()
        if is_sparse:
            raise UnsupportedError(f"byte {cursor.offset}: {name}: sparse numbers of operands")
        return cursor.varints(count)

    def _skip_use_lists(self, cursor: Cursor, count: int) -> None:
        """The order in which the uses of values are kept in memory: no matter here."""
        for _ in range(cursor.varint() if count > 1 else 1):
            if count > 1:
                cursor.varint()
            indices, _ = cursor.flagged()
            for _ in range(indices):
                cursor.varint()
