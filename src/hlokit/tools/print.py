"""hlokit print: shows a program."""

from __future__ import annotations

import sys
from pathlib import Path

from hlokit.errors import visible
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
    data = rendered(file, form)
    if sys.stdout.isatty():  # text of others is not to move the cursor
        print(visible(data.decode(errors="replace")), end="")
        return
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
