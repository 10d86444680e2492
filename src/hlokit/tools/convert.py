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
"""Forms by the end of a file's name, the longer ones first."""


def convert(file: Path, output: Path, *, to: Form | None = None, version: str = "1.17.0") -> None:
    """Writes a module in another form.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is the standard input.
    output:
        the file to write; `-` is the standard output.
    to:
        the form; without it the end of the output's name decides: .hlo or .txt HLO text, .hlo.pb a HloProto as XLA's
        dumps hold, .pb a HloModuleProto as jaxlib gives, .pbtxt or .txtpb a HloProto in protobuf's
        text format, .dot or .gv a graph, .mlir StableHLO text, .mlirbc a portable
        StableHLO artifact. HLO text for a name without a suffix, and for `-`.
    version:
        of an artifact: the StableHLO version whose readers, and those of later ones, are to read it.
    """
    form = to or form_of(output)
    write(output, rendered(file, form, version))


def form_of(output: Path) -> Form:
    """The form that the name of a file asks for. Raises ArgumentError for a name that no form has."""
    if is_standard(output) or not output.suffix:
        return "default"
    for end, form in _FORMS.items():
        if output.name.endswith(end):
            return form
    raise ArgumentError(
        f"{output}: no form of a program has names with {output.suffix}; those that can be written end in "
        f"{', '.join(_FORMS)}. --to FORM writes a form whatever the name"
    )


def rendered(file: Path, form: str, version: str = "1.17.0") -> bytes:
    """The module in `file` in one of the forms; StableHLO text becomes an artifact as it is written."""
    if form == "artifact":
        text = stablehlo_of(file)
        return to_stablehlo_artifact(loaded(file) if text is None else text, version)
    module = loaded(file)
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
    """The content of a file that is StableHLO text."""
    try:
        text = content_of(file).decode()
    except UnicodeDecodeError:
        return None
    return text if is_stablehlo(text) else None
