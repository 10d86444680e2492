"""Metadata in text: where an instruction comes from (HCATTR-6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlokit.hlo.instruction import Metadata
from hlokit.text.lexer import Lexer, escaped
from hlokit.text.lists import integers_text, read_integers


def _string(lexer: Lexer) -> str:
    return lexer.string("HCATTR-6")


def _integer(lexer: Lexer) -> int:
    return lexer.integer("HCATTR-6", -(2**31), 2**31 - 1)


_FIELDS: dict[str, Callable[[Lexer], object]] = {
    "op_type": _string,
    "op_name": _string,
    "source_file": _string,
    "source_line": _integer,
    "source_end_line": _integer,
    "source_column": _integer,
    "source_end_column": _integer,
    "profile_type": lambda lexer: read_integers(lexer, "HCATTR-6"),
    "deduplicated_name": _string,
    "scheduling_name": _string,
    "metadata_payload": _string,
    "stack_frame_id": _integer,
}
"""The fields in printing order."""

_OLD_FIELDS: dict[str, Callable[[Lexer], object]] = {
    "preserve_layout": lambda lexer: lexer.boolean("HCATTR-6"),
    "size_of_generated_code_in_bytes": lambda lexer: lexer.integer("HCATTR-6"),
    "size_of_memory_working_set_in_bytes": lambda lexer: lexer.integer("HCATTR-6"),
}
"""Fields of older files: read and dropped."""


def read_metadata(lexer: Lexer, label: str) -> Metadata:
    """Reads `{op_name="..." ...}`: fields in any order, each once, separated by white space or commas."""
    lexer.expect("{", label)
    metadata = Metadata()
    seen: set[str] = set()
    while lexer.value != "}":
        name = lexer.value[:-1] if lexer.value.endswith("=") else ""
        if name not in _FIELDS and name not in _OLD_FIELDS:
            raise lexer.unexpected("one of " + " ".join(f"{field}=" for field in _FIELDS), label)
        if name in seen:
            raise lexer.error(f"{name} is given twice", label)
        seen.add(name)
        lexer.advance()
        if name in _FIELDS:
            setattr(metadata, name, _FIELDS[name](lexer))
        else:
            _OLD_FIELDS[name](lexer)
        lexer.accept(",")
    lexer.expect("}", label)
    return metadata


def read_metadata_list(lexer: Lexer, label: str) -> list[Metadata]:
    """Reads the metadata of a sharding: `{op_name="x"}`, or a list `{{op_name="x"}, {op_name="y"}}`."""
    if lexer.peek() != "{":
        return [read_metadata(lexer, label)]
    lexer.advance()
    found: list[Metadata] = []
    while lexer.value == "{":
        found.append(read_metadata(lexer, label))
        if not lexer.accept(","):
            break
    lexer.expect("}", label)
    return found


def metadata_list_text(metadata: Sequence[Metadata]) -> str:
    """The metadata of a sharding: one without the braces of a list, as XLA prints it."""
    texts = [metadata_text(each) for each in metadata]
    return texts[0] if len(texts) == 1 else f"{{{', '.join(texts)}}}"


def metadata_text(metadata: Metadata) -> str:
    """{op_name="..." ...}: the fields that say something."""
    parts: list[str] = []
    for name in _FIELDS:
        value: str | int | tuple[int, ...] = getattr(metadata, name)
        if isinstance(value, str) and value:
            parts.append(f'{name}="{escaped(value)}"')
        elif value:
            parts.append(f"{name}={integers_text(value) if isinstance(value, tuple) else value}")
    return f"{{{' '.join(parts)}}}"
