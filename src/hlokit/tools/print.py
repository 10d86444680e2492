"""hlokit print: shows a program."""

from __future__ import annotations

import sys
from pathlib import Path

from hlokit.tools.convert import Form, rendered


def print_module(file: Path, *, form: Form = "default") -> None:
    """Prints a module.

    Parameters
    ----------
    file:
        HLO or StableHLO text, or a serialized HloModuleProto.
    form:
        XLA's text presets, the proto's bytes, a Graphviz graph, or StableHLO text.
    """
    sys.stdout.buffer.write(rendered(file, form))
    sys.stdout.flush()
