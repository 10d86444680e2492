"""hlokit print: shows a program."""

from __future__ import annotations

import sys
from pathlib import Path

from hlokit.errors import visible
from hlokit.tools.convert import Form, rendered
from hlokit.tools.files import write


def print_module(file: Path, *, form: Form = "default") -> None:
    """Prints a module.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    form:
        one of XLA's text presets, the bytes of a HloModuleProto or HloProto, a Graphviz graph, StableHLO text, or the
        bytes of a StableHLO artifact.
    """
    data = rendered(file, form)
    if sys.stdout.isatty():  # text of others is not to move the cursor
        print(visible(data.decode(errors="replace")), end="")
        return
    write(None, data)
