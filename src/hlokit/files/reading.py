"""Programs in texts and in files, of any kind that hlokit reads; they are recognised by content."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlokit.errors import ArgumentError, HlokitError, ParseError, UnsupportedError
from hlokit.files.exported import artifact_of
from hlokit.hlo.module import HloModule
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.proto.container import ProtoContainer
    from hlokit.proto.snapshot import Snapshot

_BYTECODE = b"ML\xefR"
_GZIP = b"\x1f\x8b"
_MOST = 1 << 30
"""Bytes that a compressed file may have when it is not."""
_EXPECTED = (
    "expected HLO or StableHLO text, a StableHLO artifact, a program exported by JAX, or a proto that holds a module"
)
_FIELD = re.compile(r"(?:\s|#[^\n]*\n)*+[a-z]\w*\s*[:{<]")
"""The start of a text in protobuf's text format, a field; others are spared the import of what reads it."""
_MLIR = re.compile(r'(?:module[ {@]|"?builtin\.module\b|func\.func|sdy\.mesh|#|!|\{-#)(?!.*HloModule)')


def module_of_text(
    text: str,
    arguments: Sequence[Shape] | None = None,
    verify: bool = True,
    keeps_regions: bool = False,
    entry: str | None = None,
) -> HloModule:
    """The module in HLO or StableHLO text. Raises ParseError, which says what the text is if it is of a known kind.

    verify   whether HLO is checked by the rules of its ops; keeps_regions, entry: see parse_stablehlo
    """
    if container := _container_of_text(text):
        return _fitting(_module_of_container(container, verify), arguments, entry)
    try:
        if is_stablehlo(text):
            from hlokit.stablehlo.lowering import parse_stablehlo

            return parse_stablehlo(text, arguments, keeps_regions, entry)
        from hlokit.text.parser import parse_hlo

        return _fitting(parse_hlo(text, verify), arguments, entry)
    except HlokitError as error:
        kind = _kind_of_text(text) if isinstance(error, (ParseError, UnsupportedError)) else ""
        if not kind:
            raise
    raise _no_program(kind)


def _no_program(kind: str) -> ParseError:
    """The error for a file of a known kind."""
    error = ParseError(f"found {kind}; {_EXPECTED}")
    error.kind = kind
    return error


def module_of_bytes(
    data: bytes,
    arguments: Sequence[Shape] | None = None,
    name: str = "",
    verify: bool = True,
    keeps_regions: bool = False,
    entry: str | None = None,
) -> HloModule:
    """The module in the content of a file, whose name tells files apart that hold none.

    `verify`, `keeps_regions`, `entry`: as for text.
    """
    data = unpacked(data)
    artifact = data if data.startswith(_BYTECODE) else artifact_of(data)
    if artifact is not None:
        from hlokit.stablehlo.artifact import parse_artifact

        return parse_artifact(artifact, arguments, keeps_regions, entry)
    if _is_text(data):
        return module_of_text(_decoded(data), arguments, verify, keeps_regions, entry)
    from hlokit.proto.container import container_of

    container = container_of(data)
    if container is None:
        from hlokit.files.kinds import kind_of_bytes

        raise _no_program(kind_of_bytes(data, name))
    return _fitting(_module_of_container(container, verify), arguments, entry)


def _container_of_text(text: str) -> ProtoContainer | None:
    """The message that holds a module, if the text is one in protobuf's text format."""
    if not _FIELD.match(text):
        return None
    from hlokit.proto.text_format import container_of_text

    return container_of_text(text)


def _module_of_container(container: ProtoContainer, verify: bool) -> HloModule:
    from hlokit.proto.module import module_from_message

    return module_from_message(container.module, verify)


def findings_of_bytes(data: bytes, name: str = "") -> list[HlokitError]:
    """The errors in the content of a file; empty for a legal program.

    Of HLO text they are all that can be told from each other, of other kinds of files the first.
    """
    try:
        module_of_bytes(data, name=name)
    except HlokitError as error:
        if not isinstance(error, ParseError) or not error.line:
            return [error]
        text = _decoded(unpacked(data)) if _is_text(unpacked(data)) else ""
        from hlokit.proto.text_format import message_kind

        if not text or is_stablehlo(text) or message_kind(text):
            return [error]
        from hlokit.text.findings import findings

        return [*findings(text)] or [error]
    return []


def snapshot_of_bytes(data: bytes, name: str = "") -> Snapshot | None:
    """The module, arguments and result in the content of a file; None if it holds no arguments."""
    from hlokit.proto.container import container_of
    from hlokit.proto.snapshot import snapshot_from_container

    data = unpacked(data)
    container = _container_of_text(_decoded(data)) if _is_text(data) else container_of(data)
    return snapshot_from_container(container) if container is not None and container.has_arguments else None


def unpacked(data: bytes) -> bytes:
    """`data`, or what gzip made it of. Raises ParseError for broken data and for more than 1 GiB."""
    if not data.startswith(_GZIP):
        return data
    unzip = zlib.decompressobj(wbits=31)
    try:
        found = unzip.decompress(data, _MOST)
    except zlib.error as error:
        raise ParseError(f"data compressed by gzip: {error}") from None
    if not unzip.eof:
        what = f"more than {_MOST:,} bytes" if unzip.unconsumed_tail else "the data ends too early"
        raise ParseError(f"data compressed by gzip: {what}")
    return found


def is_stablehlo(text: str) -> bool:
    """Whether a text is MLIR, which opens with a module, a function, an alias, a location or a generic operation."""
    for line in text.splitlines():
        word = line.strip()
        if word and not word.startswith("//"):
            return _MLIR.match(word) is not None
    return False


def _kind_of_text(text: str) -> str:
    """Describes a text that could not be read; empty if it may well be a program with an error in it."""
    from hlokit.files.kinds import kind_of_text, other_dialects

    kind = kind_of_text(text)
    if kind or not is_stablehlo(text):
        return kind
    dialects = other_dialects(text)
    return f"MLIR of the dialect{'s' * (len(dialects) > 1)} {', '.join(dialects)}, not of StableHLO" if dialects else ""


def _fitting(module: HloModule, arguments: Sequence[Shape] | None, entry: str | None) -> HloModule:
    """The module, whose parameters are of these shapes and whose entry has this name, else raises ArgumentError."""
    if entry is not None and module.entry.name != entry:
        found = f"that of {module.name} is {module.entry.name!r}"
        raise ArgumentError(f"entry: found {entry!r}; HLO names its entry, {found}")
    shapes = [parameter.shape.logical for parameter in module.entry.parameters]
    if arguments is not None and shapes != [shape.logical for shape in arguments]:
        expected, found = (", ".join(map(str, listed)) for listed in (shapes, arguments))
        raise ArgumentError(f"{module.name} takes ({expected}), not ({found})")
    return module


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ParseError(f"byte {data[error.start]:#x} at offset {error.start} (line {line}) is not UTF-8") from None


def _is_text(data: bytes) -> bool:
    """Whether the first bytes hold no control characters but white space; a proto's hold a tag and a length."""
    return not any(byte < 9 or 13 < byte < 32 for byte in data[:512])
