"""Compiled programs in the debugger: the kernel that differs from the reference, and the instruction in it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlokit.debugger.debugger import Debugger
from hlokit.errors import HlokitError, ShadowMismatch, UnsupportedError
from hlokit.files.arrays import arguments_from_arrays, arrays_in
from hlokit.files.reading import module_of_text
from hlokit.hlo.instruction import Instruction
from hlokit.runtime.compile import compile_module
from hlokit.runtime.executable import Executable
from hlokit.runtime.shadow import shadowed


@dataclass(frozen=True)
class Parting:
    """Where machine code parts from the reference.

    instruction   of the program as it was given: the origin of the first wrong value
    compiled      the name, after the passes, of the instruction whose code is wrong
    mismatch      the kernel's error: its instructions, the elements that differ, the reproducer
    """

    instruction: Instruction
    compiled: str
    mismatch: ShadowMismatch

    def __str__(self) -> str:
        where = f"%{self.compiled}, which comes from %{self.instruction.name}"
        return f"the machine code of {where}, is wrong\n{self.mismatch}"


def parting_of(executable: Executable, arguments: Sequence[Any], folder: Path | None = None) -> Parting | None:
    """The first kernel that is wrong on these arguments; None if all agree with the reference.

    `folder`: for the reproducer. UnsupportedError for programs with dynamic dimensions.
    """
    if not executable.compilation.is_static:
        raise UnsupportedError(f"{executable.source.name}: the machine code of a program with dynamic dimensions")
    try:
        shadowed(executable, folder)(*arguments)
    except ShadowMismatch as mismatch:
        compiled = _least(mismatch, executable.strict) or mismatch.result
        origin = executable.lineage.passes.origins(compiled)[0]
        return Parting(origin.instruction, compiled, mismatch)
    return None


def debug_compiled(executable: Executable, arguments: Sequence[Any], **options: Any) -> Debugger:
    """A debugger of the program as it was given that stands where the machine code parts from the reference.

    It stands before the instruction, in the pass of its loop in which the kernel went wrong, with a breakpoint there;
    at the beginning, if the machine code is right. `parting` says what was found.
    """
    if not isinstance(executable, Executable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UnsupportedError(f"debug: found {type(executable).__name__}, expected an HloModule or an Executable")
    debugger = Debugger(executable.source, arguments, **options)
    debugger.parting = found = parting_of(executable, arguments)
    if found is not None and found.instruction.opcode != "parameter":
        debugger.break_at(found.instruction.name)
        stands_there = debugger.next is found.instruction  # a run goes on from there
        for _ in range(found.mismatch.run + (not stands_there)):
            if debugger.run().kind != "breakpoint":
                break
    return debugger


def _least(mismatch: ShadowMismatch, strict: bool) -> str:
    """The first instruction of a kernel that is wrong as a kernel of its own with what it depends on; "" if none is."""
    path = Path(str(mismatch.reproducer))
    try:
        module = module_of_text(path.read_text(encoding="utf-8"), None, verify=True)
        arguments = arguments_from_arrays(module, arrays_in(path.with_suffix(".npz").read_bytes()))
        names = [i.name for i in module.entry.post_order() if i.opcode not in ("parameter", "constant", "tuple")]
        for name in names:
            part = module.clone()
            part.entry.set_root(next(i for i in part.entry.instructions if i.name == name))
            with tempfile.TemporaryDirectory(prefix="hlokit-debug-") as folder:
                try:
                    shadowed(compile_module(part, strict=strict), folder)(*arguments)
                except ShadowMismatch:
                    return name
    except (HlokitError, OSError, ValueError, KeyError):
        pass  # the kernel's result tells as much as is known
    return ""
