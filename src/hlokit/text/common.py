"""What every instruction may carry after its own attributes (HCATTR): reading and writing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hlokit.hlo.instruction import Extra, Instruction, Metadata
from hlokit.text.attributes import int_list_text, read_dictionary, read_int_list
from hlokit.text.groups import read_sharding
from hlokit.text.lexer import Lexer, escaped
from hlokit.text.numbers import float_text
from hlokit.types import dtype as dtypes

Scope = Mapping[str, Instruction]
"""The instructions defined so far in the computation, by name."""

# -- reading


def _read_sharding(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    extra.sharding = read_sharding(lexer)


def _read_frontend_attributes(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    extra.frontend_attributes = read_dictionary(lexer)


def _read_replication(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    extra.parameter_replication = read_booleans(lexer, "HCATTR-3")


def read_booleans(lexer: Lexer, label: str) -> tuple[bool, ...]:
    """Reads `{true,false}`."""
    lexer.expect("{", label)
    values: list[bool] = []
    while lexer.value != "}":
        values.append(lexer.boolean(label))
        if not lexer.accept(","):
            break
    lexer.expect("}", label)
    return tuple(values)


def _read_predecessors(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    lexer.expect("{", "HCATTR-4")
    while lexer.value != "}":
        start = lexer.start
        name = lexer.name("HCATTR-4")
        if name not in scope:
            raise lexer.error(f"the control predecessor {name} is not defined above", "HCATTR-5", start)
        extra.control_predecessors.append(scope[name])
        if not lexer.accept(","):
            break
    lexer.expect("}", "HCATTR-4")


def _read_backend_config(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    extra.backend_config_is_json = lexer.value == "{"
    extra.backend_config = lexer.balanced("HCATTR-7") if lexer.value == "{" else lexer.string("HCATTR-7")


def _read_statistics(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    """{visualizing_index=N,name=float,...}, kept as it will be printed."""
    lexer.expect("{", "HCATTR-8")
    parts: list[str] = []
    if lexer.accept("visualizing_index="):
        parts.append(f"visualizing_index={lexer.integer('HCATTR-8')}")
        lexer.accept(",")
    while lexer.value != "}":
        name = lexer.value
        if not name.endswith("="):
            raise lexer.unexpected("a statistic's name followed by =", "HCATTR-8")
        lexer.advance()
        parts.append(name + float_text(lexer.decimal("HCATTR-8"), dtypes.f64))
        if not lexer.accept(","):
            break
    lexer.expect("}", "HCATTR-8")
    extra.statistics = ",".join(parts)


def _read_origin(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    extra.origin = lexer.balanced("HCATTR-9")


def _read_metadata(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    """Fields in any order, each once, separated by white space or commas (HCATTR-6)."""
    lexer.expect("{", "HCATTR-6")
    metadata = Metadata()
    seen: set[str] = set()
    while lexer.value != "}":
        name = lexer.value[:-1] if lexer.value.endswith("=") else ""
        if name not in _METADATA_FIELDS:
            raise lexer.unexpected("one of " + " ".join(f"{field}=" for field in _METADATA_FIELDS), "HCATTR-6")
        if name in seen:
            raise lexer.error(f"{name} is given twice", "HCATTR-6")
        seen.add(name)
        lexer.advance()
        value = _METADATA_FIELDS[name](lexer)
        if name not in _DROPPED_FIELDS:
            setattr(metadata, name, value)
        lexer.accept(",")
    lexer.expect("}", "HCATTR-6")
    extra.metadata = metadata if metadata != Metadata() else None  # one that says nothing is not printed


def _string(lexer: Lexer) -> str:
    return lexer.string("HCATTR-6")


def _integer(lexer: Lexer) -> int:
    return lexer.integer("HCATTR-6")


_DROPPED_FIELDS: dict[str, Callable[[Lexer], object]] = {
    "preserve_layout": lambda lexer: lexer.boolean("HCATTR-6"),
    "size_of_generated_code_in_bytes": _integer,
    "size_of_memory_working_set_in_bytes": _integer,
}
"""Fields of older files."""

_METADATA_FIELDS: dict[str, Callable[[Lexer], object]] = {
    "op_type": _string,
    "op_name": _string,
    "source_file": _string,
    "source_line": _integer,
    "source_end_line": _integer,
    "source_column": _integer,
    "source_end_column": _integer,
    "profile_type": read_int_list,
    "deduplicated_name": _string,
    "scheduling_name": _string,
    "metadata_payload": _string,
    "stack_frame_id": _integer,
    **_DROPPED_FIELDS,
}

COMMON_READERS: dict[str, Callable[[Lexer, Extra, Scope], None]] = {
    "parameter_replication": _read_replication,
    "sharding": _read_sharding,
    "frontend_attributes": _read_frontend_attributes,
    "control-predecessors": _read_predecessors,
    "statistics": _read_statistics,
    "origin": _read_origin,
    "metadata": _read_metadata,
    "backend_config": _read_backend_config,
}
"""Attribute name -> what reads its value into an instruction's Extra."""

# -- writing


def metadata_text(metadata: Metadata) -> str:
    """{op_type="..." ...}: the fields that say something."""
    parts: list[str] = []
    for name in _METADATA_FIELDS:
        value = None if name in _DROPPED_FIELDS else getattr(metadata, name)
        if not value:
            continue
        if isinstance(value, str):
            parts.append(f'{name}="{escaped(value)}"')
        else:
            parts.append(f"{name}={int_list_text(value) if isinstance(value, tuple) else value}")
    return f"{{{' '.join(parts)}}}"


def dictionary_text(values: dict[str, str]) -> str:
    """{k="v",k2={json}}, sorted by key (HCATTR-2)."""
    return "{" + ",".join(f"{key}={quoted_or_json(values[key])}" for key in sorted(values)) + "}"


def quoted_or_json(text: str) -> str:
    """A JSON dictionary as it is, anything else as a quoted string."""
    return text if is_dictionary(text) else f'"{escaped(text)}"'


_PARTS = re.compile(r"""[^"{}]++|"(?s:[^"\\]++|\\.)*+"|[{}]""")


def is_dictionary(text: str) -> bool:
    """Whether the text is `{...}` with balanced braces."""
    if not text.startswith("{"):
        return False
    depth = end = 0
    for part in _PARTS.finditer(text):
        if part.start() != end:
            return False
        end = part.end()
        depth += (part[0] == "{") - (part[0] == "}")
        if depth == 0:
            break
    return depth == 0 and end == len(text)

