"""Attributes that every instruction may carry after its own (HCATTR): reading and writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hlokit.hlo.instruction import Extra, Instruction, Metadata, normal_config
from hlokit.hlo.names import KEYWORDS, is_identifier
from hlokit.text.attributes import read_dictionary
from hlokit.text.groups import read_sharding
from hlokit.text.lexer import Lexer, balanced_end, escaped
from hlokit.text.metadata import read_metadata
from hlokit.text.origin import read_origin

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
    extra.backend_config = read_config(lexer, "HCATTR-7")


def read_config(lexer: Lexer, label: str) -> str:
    """Reads "text" or {json}; gives it in its normal form."""
    return normal_config(lexer.balanced(label) if lexer.value == "{" else lexer.string(label))


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
        parts.append(f"{name}{lexer.decimal('HCATTR-8'):g}")
        if not lexer.accept(","):
            break
    lexer.expect("}", "HCATTR-8")
    extra.statistics = ",".join(parts)


def _read_origin(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    extra.origin = read_origin(lexer, "HCATTR-9")


def _read_metadata(lexer: Lexer, extra: Extra, scope: Scope) -> None:
    metadata = read_metadata(lexer, "HCATTR-6")
    extra.metadata = metadata if metadata != Metadata() else None  # one that says nothing is not printed


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


def dictionary_text(values: dict[str, str]) -> str:
    """{k="v",k2={json}}, sorted by key (HCATTR-2)."""
    return "{" + ",".join(f"{_key(key)}={quoted_or_json(values[key])}" for key in sorted(values)) + "}"


def _key(key: str) -> str:
    return key if is_identifier(key) and key not in KEYWORDS else f'"{escaped(key)}"'


def quoted_or_json(text: str) -> str:
    """A JSON dictionary as it is, anything else as a quoted string."""
    return text if is_dictionary(text) else f'"{escaped(text)}"'


def is_dictionary(text: str) -> bool:
    """Whether the text is `{...}` with balanced braces."""
    return text.startswith("{") and balanced_end(text, 0) == len(text)
