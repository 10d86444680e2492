"""hlokit convert: from one form of a program to another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from hlokit.api import load, to_stablehlo
from hlokit.tools.dot import dot_text

Form = Literal["default", "short_parsable", "canonical", "fingerprint", "proto", "dot", "stablehlo"]


def convert(file: Path, output: Path, *, to: Form | None = None) -> None:
    """Writes a module in another form.

    Parameters
    ----------
    file:
        HLO or StableHLO text, or a serialized HloModuleProto.
    output:
        the file to write; `-` is the standard output.
    to:
        the form; without it the output's suffix decides: .pb proto, .dot a graph, .mlir StableHLO text,
        anything else HLO text.
    """
    form = to or {".pb": "proto", ".dot": "dot", ".mlir": "stablehlo"}.get(output.suffix, "default")
    data = rendered(file, form)
    if str(output) == "-":
        sys.stdout.buffer.write(data)
        return
    output.write_bytes(data)


def rendered(file: Path, form: str) -> bytes:
    """The module in `file` in one of the forms."""
    module = load(file)
    if form == "proto":
        from hlokit.proto.module import module_to_proto

        return module_to_proto(module)
    if form == "dot":
        return dot_text(module).encode()
    if form == "stablehlo":
        return to_stablehlo(module).encode()
    return module.to_text(form).encode()
