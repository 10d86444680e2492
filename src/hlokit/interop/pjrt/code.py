"""Functions of PJRT's table: the machine code at the beginning of each."""

from __future__ import annotations

from hlokit.cpu.llvm import I8, POINTER, Function, Pointer
from hlokit.interop.pjrt import layouts


def api_function(name: str, *, fails: bool = True) -> tuple[Function, Pointer]:
    """A function of PJRT's table and the pointer to its arguments' struct. If it can fail it gives an error or null."""
    f = Function(name, [(POINTER, "args")], POINTER if fails else "void")
    return f, f.pointer("args", layouts.record(name) if name in layouts.known() else I8)
