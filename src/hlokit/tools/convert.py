"""hlokit convert: from one form of a program to another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from hlokit.api import load, to_stablehlo, to_stablehlo_artifact
from hlokit.files.reading import is_stablehlo
from hlokit.tools.dot import dot_text

Form = Literal["default", "short_parsable", "canonical", "fingerprint", "proto", "dot", "stablehlo", "artifact"]


def convert(file: Path, output: Path, *, to: Form | None = None, version: str = "1.17.0") -> None:
    """Writes a module in another form.

    Parameters
    ----------
    file:
        HLO or StableHLO text, a StableHLO artifact, or a proto that holds a module.
    output:
        the file to write; `-` is the standard output.
    to:
        the form; without it the output's suffix decides: .pb proto, .dot a graph, .mlir StableHLO text,
        .mlirbc a portable StableHLO artifact, anything else HLO text.
    version:
        of an artifact: the StableHLO version whose readers, and those of later ones, are to read it.
    """
    form = to or _FORMS.get(output.suffix, "default")
    data = rendered(file, form, version)
    if str(output) == "-":
        sys.stdout.buffer.write(data)
        return
    output.write_bytes(data)


_FORMS: dict[str, Form] = {".pb": "proto", ".dot": "dot", ".mlir": "stablehlo", ".mlirbc": "artifact"}
"""By the output's suffix."""


def rendered(file: Path, form: str, version: str = "1.17.0") -> bytes:
    """The module in `file` in one of the forms; StableHLO text becomes an artifact as it is written."""
    if form == "artifact":
        text = stablehlo_of(file)
        if text is not None:
            return to_stablehlo_artifact(text, version)
    module = load(file)
    if form == "artifact":
        return to_stablehlo_artifact(module, version)
    if form == "proto":
        from hlokit.proto.module import module_to_proto

        return module_to_proto(module)
    if form == "dot":
        return dot_text(module).encode()
    if form == "stablehlo":
        return to_stablehlo(module).encode()
    return module.to_text(form).encode()


def stablehlo_of(file: Path) -> str | None:
    """The content of a file that is StableHLO text."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
    return text if is_stablehlo(text) else None
