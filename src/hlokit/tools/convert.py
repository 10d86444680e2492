"""hlokit convert: converts a program from one form to another."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hlokit.api import to_stablehlo, to_stablehlo_artifact
from hlokit.errors import ArgumentError
from hlokit.files.reading import is_stablehlo
from hlokit.tools.dot import dot_text
from hlokit.tools.files import content_of, is_standard, loaded, write

Form = Literal[
    "default",
    "short_parsable",
    "canonical",
    "fingerprint",
    "proto",
    "hlo_proto",
    "proto_text",
    "dot",
    "stablehlo",
    "artifact",
]

_FORMS: dict[str, Form] = {
    ".hlo.pb": "hlo_proto",
    ".pb": "proto",
    ".pbtxt": "proto_text",
    ".txtpb": "proto_text",
    ".textproto": "proto_text",
    ".hlo": "default",
    ".txt": "default",
    ".dot": "dot",
    ".gv": "dot",
    ".mlir": "stablehlo",
    ".mlirbc": "artifact",
}
"""Formats by the suffix of a file's name, the longer suffixes first."""


def convert(
    file: Path, output: Path, *, to: Form | None = None, version: str = "1.17.0", entry: str | None = None
) -> None:
    """Writes a program in another format.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    output:
        the file to write; `-` is standard output.
    to:
        the format; by default it follows from the suffix of the output's name: .hlo or .txt for HLO text, .hlo.pb for a
        HloProto as in XLA's dumps, .pb for a HloModuleProto as in jaxlib, .pbtxt or .txtpb for a HloProto in protobuf's
        text format, .dot or .gv for a graph, .mlir for StableHLO text, .mlirbc for a portable StableHLO artifact. HLO
        text for a name without a suffix, and for `-`.
    version:
        for an artifact: the oldest version of StableHLO that must be able to read it.
    entry:
        the function of StableHLO that is the program; by default main, or the only public function.
    """
    form = to or form_of(output)
    write(output, rendered(file, form, version, entry))


def form_of(output: Path) -> Form:
    """The format that follows from the name of a file. Raises ArgumentError for an unknown suffix."""
    if is_standard(output) or not output.suffix:
        return "default"
    for end, form in _FORMS.items():
        if output.name.endswith(end):
            return form
    raise ArgumentError(
        f"{output}: no program format has the suffix {output.suffix}; the known suffixes are "
        f"{', '.join(_FORMS)}. --to FORM selects a format explicitly"
    )


def rendered(file: Path, form: str, version: str = "1.17.0", entry: str | None = None) -> bytes:
    """The module in `file` in one of the formats; StableHLO text is converted to an artifact as it is written."""
    if form == "artifact":
        text = stablehlo_of(file) if entry is None else None
        return to_stablehlo_artifact(loaded(file, entry=entry) if text is None else text, version)
    module = loaded(file, entry=entry)
    if form == "proto":
        from hlokit.proto.module import module_to_proto

        return module_to_proto(module)
    if form == "hlo_proto":
        from hlokit.proto.module import hlo_proto

        return hlo_proto(module)
    if form == "proto_text":
        from hlokit.proto.module import hlo_proto
        from hlokit.proto.text_format import text_of_message

        return text_of_message(hlo_proto(module), "HloProto").encode("utf-8", "surrogateescape")
    if form == "dot":
        return dot_text(module).encode()
    if form == "stablehlo":
        return to_stablehlo(module).encode()
    return module.to_text(form).encode()


def stablehlo_of(file: Path) -> str | None:
    """The content of a file with StableHLO text."""
    try:
        text = content_of(file).decode()
    except UnicodeDecodeError:
        return None
    return text if is_stablehlo(text) else None
