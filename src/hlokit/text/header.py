"""The module's header and debug tables in text (HMOD): reading and writing."""

from __future__ import annotations

from collections.abc import Callable

from hlokit.hlo.module import (
    DEBUG_FIELDS,
    FRAME_FIELDS,
    LOCATION_FIELDS,
    Alias,
    DebugAttributes,
    HloModule,
    StackTables,
)
from hlokit.text.attributes import read_dictionary
from hlokit.text.common import dictionary_text, quoted_or_json, read_booleans, read_config
from hlokit.text.lexer import ATTRIBUTE, INTEGER, Lexer, escaped
from hlokit.text.lists import read_integers
from hlokit.text.shapes import read_shape
from hlokit.types.shape import Shape

# -- reading


def read_header(lexer: Lexer) -> HloModule:
    """Reads `HloModule name, attribute=value, ...` and the debug tables."""
    lexer.expect("HloModule", "HMOD-1")
    module = HloModule(lexer.name("HMOD-1"))
    seen: set[str] = set()
    while lexer.accept(","):
        name = lexer.value[:-1]
        reader = _READERS.get(name) if lexer.kind == ATTRIBUTE else None
        if reader is None:
            raise lexer.unexpected("a module attribute: " + " ".join(f"{known}=" for known in _READERS), "HMOD-1")
        if name in seen:
            raise lexer.error(f"{name} is given twice", "HMOD-1")
        seen.add(name)
        lexer.advance()
        reader(lexer, module)
    _read_tables(lexer, module.stack_tables)
    return module


def _read_layout(lexer: Lexer, module: HloModule) -> None:
    """{(shape, ...)->shape} (HMOD-4)."""
    lexer.expect("{", "HMOD-4")
    lexer.expect("(", "HMOD-4")
    shapes: list[Shape] = []
    while lexer.value != ")":
        shapes.append(read_shape(lexer))
        if not lexer.accept(","):
            break
    lexer.expect(")", "HMOD-4")
    lexer.expect("->", "HMOD-4")
    module.parameter_layouts, module.result_layout = shapes, read_shape(lexer)
    lexer.expect("}", "HMOD-4")


def _read_aliases(lexer: Lexer, module: HloModule) -> None:
    """{ {out}: (param, {index}, may-alias), ... } (HMOD-6)."""
    lexer.expect("{", "HMOD-6")
    seen: set[tuple[int, ...]] = set()
    while lexer.value == "{":
        start = lexer.start
        output = read_integers(lexer, "HMOD-6")
        lexer.expect(":", "HMOD-6")
        lexer.expect("(", "HMOD-6")
        parameter = lexer.integer("HMOD-6", 0)
        lexer.expect(",", "HMOD-6")
        index = read_integers(lexer, "HMOD-6")
        kind = "may-alias"
        if lexer.accept(","):
            kind = lexer.choice(("may-alias", "must-alias"), "HMOD-6")
        lexer.expect(")", "HMOD-6")
        if output in seen:
            raise lexer.error(f"output {{{','.join(map(str, output))}}} is aliased twice", "HMOD-7", start)
        seen.add(output)
        module.input_output_alias.append(Alias(output, parameter, index, kind))
        if not lexer.accept(","):
            break
    lexer.expect("}", "HMOD-6")


def _read_donors(lexer: Lexer, module: HloModule) -> None:
    """{ (param, {index}), ... } (HMOD-8)."""
    lexer.expect("{", "HMOD-8")
    while lexer.accept("("):
        parameter = lexer.integer("HMOD-8", 0)
        lexer.expect(",", "HMOD-8")
        module.buffer_donor.append((parameter, read_integers(lexer, "HMOD-8")))
        lexer.expect(")", "HMOD-8")
        if not lexer.accept(","):
            break
    lexer.expect("}", "HMOD-8")


def _boolean_setter(field: str) -> Callable[[Lexer, HloModule], None]:
    return lambda lexer, module: setattr(module, field, lexer.boolean("HMOD-2"))


def _count_setter(field: str) -> Callable[[Lexer, HloModule], None]:
    return lambda lexer, module: setattr(module, field, lexer.integer("HMOD-3", 1))


def _booleans_setter(field: str) -> Callable[[Lexer, HloModule], None]:
    """`true`, or `{true,false}` (HMOD-11)."""

    def read(lexer: Lexer, module: HloModule) -> None:
        setattr(module, field, read_booleans(lexer, "HMOD-11") if lexer.value == "{" else (lexer.boolean("HMOD-11"),))

    return read


def _read_frontend_attributes(lexer: Lexer, module: HloModule) -> None:
    module.frontend_attributes = read_dictionary(lexer, "HMOD-10")


def _read_recovery_table(lexer: Lexer, module: HloModule) -> None:
    module.origin_recovery_table = lexer.balanced("HMOD-12")


def _read_backend_config(lexer: Lexer, module: HloModule) -> None:
    module.backend_config = read_config(lexer, "HMOD-20")


def _read_debug_attributes(lexer: Lexer, module: HloModule) -> None:
    """{ {"name" {index}}:({callback_id=1},{op_id=2}), {"other"}:{op_id=3} } (HMOD-19)."""
    lexer.expect("{", "HMOD-19")
    while lexer.accept("{"):
        name = lexer.string("HMOD-19")
        index = read_integers(lexer, "HMOD-19") if lexer.value == "{" else ()
        lexer.expect("}", "HMOD-19")
        lexer.expect(":", "HMOD-19")
        given: list[tuple[tuple[str, str], ...]] = []
        if lexer.value == "{":
            given.append(_read_debug_values(lexer))
        else:
            lexer.expect("(", "HMOD-19")
            while lexer.value == "{":
                given.append(_read_debug_values(lexer))
                if not lexer.accept(","):
                    break
            lexer.expect(")", "HMOD-19")
        if given:
            module.debug_attributes.append(DebugAttributes(name, index, tuple(given)))
        if not lexer.accept(","):
            break
    lexer.expect("}", "HMOD-19")


def _read_debug_values(lexer: Lexer) -> tuple[tuple[str, str], ...]:
    """{callback_id=1, log_mode=default}."""
    lexer.expect("{", "HMOD-19")
    values: dict[str, str] = {}
    while True:
        name = lexer.value[:-1]
        if lexer.kind != ATTRIBUTE or name not in DEBUG_FIELDS or name in values:
            raise lexer.unexpected("one of " + " ".join(f"{field}=" for field in DEBUG_FIELDS), "HMOD-19")
        lexer.advance()
        choices = DEBUG_FIELDS[name]
        values[name] = lexer.choice(choices, "HMOD-19") if choices else str(lexer.integer("HMOD-19"))
        if not lexer.accept(","):
            break
    lexer.expect("}", "HMOD-19")
    return tuple((name, values[name]) for name in DEBUG_FIELDS if name in values)


_TO_PARAMETERS = "allow_spmd_sharding_propagation_to_parameters"
_TO_OUTPUT = "allow_spmd_sharding_propagation_to_output"

_READERS: dict[str, Callable[[Lexer, HloModule], None]] = {
    "is_scheduled": _boolean_setter("is_scheduled"),
    "input_output_alias": _read_aliases,
    "buffer_donor": _read_donors,
    "alias_passthrough_params": _boolean_setter("alias_passthrough_params"),
    "entry_computation_layout": _read_layout,
    _TO_PARAMETERS: _booleans_setter(_TO_PARAMETERS),
    _TO_OUTPUT: _booleans_setter(_TO_OUTPUT),
    "replica_count": _count_setter("replica_count"),
    "num_partitions": _count_setter("num_partitions"),
    "frontend_attributes": _read_frontend_attributes,
    "origin_recovery_table": _read_recovery_table,
    "backend_config": _read_backend_config,
    "debug_attributes": _read_debug_attributes,
}


def _read_tables(lexer: Lexer, tables: StackTables) -> None:
    """The debug tables, in this order, each at most once (HMOD-14)."""
    for title, table in (("FileNames", tables.file_names), ("FunctionNames", tables.function_names)):
        if lexer.accept(title):
            while lexer.kind == INTEGER:
                _read_id(lexer, len(table) + 1)
                table.append(lexer.string("HMOD-14"))
    for title, table, fields in (
        ("FileLocations", tables.file_locations, LOCATION_FIELDS),
        ("StackFrames", tables.stack_frames, FRAME_FIELDS),
    ):
        if lexer.accept(title):
            while lexer.kind == INTEGER:
                _read_id(lexer, len(table) + 1)
                table.append(_read_row(lexer, fields))


def _read_id(lexer: Lexer, expected: int) -> None:
    start = lexer.start
    found = lexer.integer("HMOD-14")
    if found != expected:
        raise lexer.error(f"ids count from 1 upward: expected {expected}, found {found}", "HMOD-14", start)


def _read_row(lexer: Lexer, fields: tuple[str, ...]) -> dict[str, int]:
    start = lexer.start
    lexer.expect("{", "HMOD-14")
    row: dict[str, int] = {}
    while lexer.value != "}":
        name = lexer.value[:-1]
        if lexer.kind != ATTRIBUTE or name not in fields or name in row:
            raise lexer.unexpected("one of " + " ".join(f"{field}=" for field in fields), "HMOD-14")
        lexer.advance()
        row[name] = lexer.integer("HMOD-14", 0, 2**31 - 1)
        lexer.accept(",")
    lexer.advance()
    missing = [field for field in fields if field not in row]
    if missing:
        raise lexer.error(f"{missing[0]} is missing", "HMOD-14", start)
    return {field: row[field] for field in fields}


# -- writing


def header_text(module: HloModule, name: str) -> str:
    """The header line (HMOD-13)."""
    parts = [f"HloModule {name}"]
    if module.is_scheduled:
        parts.append("is_scheduled=true")
    if module.input_output_alias:
        parts.append("input_output_alias={ " + ", ".join(map(_alias_text, module.input_output_alias)) + " }")
    if module.buffer_donor:
        donors = (f"({number}, {_index_text(index)})" for number, index in module.buffer_donor)
        parts.append("buffer_donor={ " + ", ".join(donors) + " }")
    if module.alias_passthrough_params:
        parts.append("alias_passthrough_params=true")
    if module.entry_or_none is not None:
        parts.append(f"entry_computation_layout={{{_layout_text(module)}}}")
    for field in (_TO_PARAMETERS, _TO_OUTPUT):
        flags = getattr(module, field)
        if flags:
            parts.append(f"{field}={{{','.join('true' if flag else 'false' for flag in flags)}}}")
    if module.replica_count != 1:
        parts.append(f"replica_count={module.replica_count}")
    if module.num_partitions != 1:
        parts.append(f"num_partitions={module.num_partitions}")
    if module.frontend_attributes:
        parts.append(f"frontend_attributes={dictionary_text(module.frontend_attributes)}")
    if module.origin_recovery_table:
        parts.append(f"origin_recovery_table={module.origin_recovery_table}")
    if module.backend_config:
        parts.append(f"backend_config={quoted_or_json(module.backend_config)}")
    header = ", ".join(parts)
    if not module.debug_attributes:
        return header
    rows = ",\n".join(f"  {_debug_text(entry)}" for entry in module.debug_attributes)
    return f"{header},\ndebug_attributes={{\n{rows}\n}}"


def _debug_text(entry: DebugAttributes) -> str:
    index = f" {_index_text(entry.index)}" if entry.index else ""
    values = (",".join(f"{name}={value}" for name, value in given) for given in entry.attributes)
    return f'{{"{escaped(entry.instruction)}"{index}}}:({",".join(f"{{{text}}}" for text in values)})'


def _index_text(index: tuple[int, ...]) -> str:
    return f"{{{','.join(map(str, index))}}}"


def _alias_text(alias: Alias) -> str:
    return f"{_index_text(alias.output_index)}: ({alias.parameter}, {_index_text(alias.parameter_index)}, {alias.kind})"


def _layout_text(module: HloModule) -> str:
    entry = module.entry
    shapes = module.parameter_layouts
    if shapes is None:
        shapes = [parameter.shape for parameter in entry.parameters]
    result = module.result_layout if module.result_layout is not None else entry.root.shape
    inside = ", ".join(f"/*index={i}*/{s.to_text()}" if i and i % 5 == 0 else s.to_text() for i, s in enumerate(shapes))
    return f"({inside})->{result.to_text()}"


def tables_text(tables: StackTables) -> str:
    """The debug tables (HMOD-14)."""
    lines: list[str] = []
    for title, table in (("FileNames", tables.file_names), ("FunctionNames", tables.function_names)):
        if table:
            lines += [title, *(f'{i} "{escaped(text)}"' for i, text in enumerate(table, 1)), ""]
    for title, rows in (("FileLocations", tables.file_locations), ("StackFrames", tables.stack_frames)):
        if rows:
            lines += [title, *(f"{i} {_row_text(row)}" for i, row in enumerate(rows, 1)), ""]
    return "\n".join(lines) + "\n\n" if lines else ""


def _row_text(row: dict[str, int]) -> str:
    return f"{{{' '.join(f'{name}={value}' for name, value in row.items())}}}"
