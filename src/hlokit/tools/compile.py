"""hlokit compile: a program as machine code, or any stage on the way there."""

from __future__ import annotations

import json as json_module
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from hlokit.api import compile as compile_module
from hlokit.api import export_object, verify
from hlokit.cpu.target import host, parse
from hlokit.hlo.module import HloModule
from hlokit.runtime.executable import Executable
from hlokit.tools.files import loaded, write


def compile(
    file: Path,
    *,
    emit: Literal["hlo", "loops", "llvm", "llvm-opt", "asm", "obj"] | None = None,
    target: str = "host",
    strict: bool = False,
    threads: int | None = None,
    json: bool = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> None:
    """Compiles a module for the CPU and describes the result, or prints a stage on the way to machine code.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    emit:
        the stage to print: hlo after the passes, loops of the kernels, llvm as written by hlokit, llvm-opt as passed to
        code generation, asm; obj writes an object file and a C header.
    target:
        the machine: host, a baseline (x86-64, x86-64-avx2, x86-64-avx512, aarch64), or TRIPLE/CPU,+FEATURE...
    strict:
        keep the interpreter's order of operations, so that results are identical bit for bit.
    threads:
        number of threads of a call; by default one for each core.
    json:
        without `emit`, print the result as JSON.
    output:
        the file to write; by default standard output (also `-`), for obj NAME.o with the module's name.
    """
    module = loaded(file)
    verify(module)
    if emit == "obj":
        for path in export_object(module, target, output, strict=strict):
            print(path)
        return
    if emit is not None:
        write(output, _stage(module, emit, target, strict).encode())
        return
    start = time.perf_counter()
    machine = host() if target == "host" else parse(target)
    made: Any = compile_module(module, strict=strict, threads=threads, target=machine)
    executable: Executable = made if isinstance(made, Executable) else made.executable
    seconds = time.perf_counter() - start
    memory = executable.memory_analysis()
    steps = Counter(type(step).__name__.removesuffix("Step").lower() for step in executable.program.block.steps)
    if json:
        facts = {
            "module": module.name, "seconds": seconds, "from_cache": not executable.recompiled, "steps": dict(steps),
            "code_bytes": memory.generated_code_size_in_bytes, "peak_bytes": memory.peak_memory_in_bytes,
            "temporary_bytes": memory.temp_size_in_bytes, "peak_holder": memory.peak_holder,
            "peak_held_bytes": memory.peak_held,
            "reasons": [{"instruction": name, "what": what, "why": why} for name, what, why in executable.reasons],
        }  # fmt: skip
        print(json_module.dumps(facts, indent=2))
        return
    print(f"{module.name}: {seconds:.3f} s" + ("" if executable.recompiled else ", from the cache"))
    print("steps: " + ", ".join(f"{count} {kind}" for kind, count in sorted(steps.items())))
    print(
        f"bytes: {memory.generated_code_size_in_bytes:,} code, {memory.peak_memory_in_bytes:,} at the peak "
        f"({memory.temp_size_in_bytes:,} temporary; {memory.peak_holder} holds {memory.peak_held:,})"
    )
    for name, what, why in executable.reasons:
        if what in ("not compiled", "copied", "lower level"):
            print(f"{what}: {name}: {why}")


def _stage(module: HloModule, emit: str, target: str, strict: bool) -> str:
    from hlokit.runtime.dump import compiled, settings
    from hlokit.runtime.inspection import stage_text

    machine = parse(target)
    program = compiled(module, machine, strict=strict, donated=(), settings=settings(), dump=None)
    return stage_text(program, machine, emit)
